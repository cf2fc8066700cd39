//! The client's key agent as a socket in the server, for as long as the session that asked for it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::serve::forward::listen::{BREATH, Client, listen};
use crate::serve::forward::{Count, Link, carry};

const DIRECTORY: &str = "agents";

/// The path of a socket may not be longer; what is longer goes where paths are short.
const LONGEST_PATH: usize = 107;
const ELSEWHERE: &str = "/tmp/odc-agents";

pub struct Door {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Door {
    /// `number` tells the sessions of all clients apart.
    pub async fn open(client: Client, state: &Path, number: u64) -> io::Result<Self> {
        let name = format!("{}-{number}", std::process::id());
        let path = state.join(DIRECTORY).join(&name);
        let path = if path.as_os_str().len() <= LONGEST_PATH { path } else { Path::new(ELSEWHERE).join(name) };
        let directory = path.parent().unwrap_or(state);
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Where everybody may write, somebody else may have been first.
        let there = fs::symlink_metadata(directory)?;
        if !there.is_dir() || there.uid() != getuid().as_raw() || there.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!("{} is not ours alone", directory.display())));
        }
        let listener = listen(&client.apart, &path).await?;
        Ok(Self { path, task: tokio::spawn(accept(listener, client)) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes away what an earlier `serve` left: it had no time to, if it was killed.
pub async fn sweep(state: &Path) {
    for directory in [state.join(DIRECTORY), PathBuf::from(ELSEWHERE)] {
        let Ok(left) = fs::read_dir(directory) else { continue };
        let sockets = left.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        for path in sockets.map(|entry| entry.path()) {
            // Where nobody listens, nobody will: each is bound once.
            let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if UnixStream::connect(&path).await.is_err_and(refused) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

async fn accept(listener: UnixListener, client: Client) {
    loop {
        // Too many files may be open, which passes.
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let Client { handle, inboxes, activity, .. } = client.clone();
        tokio::spawn(async move {
            if let Ok(channel) = handle.channel_open_agent().await {
                let count = Count { activity, port: None };
                carry(channel, handle, inboxes, Link::Unix(stream), count).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sockets_of_the_dead_are_swept_and_others_stay() {
        let state = tempfile::tempdir().unwrap();
        let agents = state.path().join(DIRECTORY);
        fs::create_dir(&agents).unwrap();
        drop(UnixListener::bind(agents.join("7-1")).unwrap());
        let _alive = UnixListener::bind(agents.join("7-2")).unwrap();
        fs::write(agents.join("file"), "").unwrap();
        sweep(state.path()).await;
        let mut left: Vec<_> = fs::read_dir(agents).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["7-2", "file"]);
    }
}
