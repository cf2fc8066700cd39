//! Agent forwarding: the client's SSH agent as a Unix socket in the server, for the duration of a session.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::serve::accept_retry::accept_retrying;
use crate::serve::forward::listener::{ForwardContext, listen};
use crate::serve::forward::relay::{ByteCounter, Upstream, relay};

const DIRECTORY: &str = "agents";

/// Limit of `sun_path`, see unix(7).
const MAX_SOCKET_PATH: usize = 107;
/// Used if the path in the state directory would be too long.
const FALLBACK_DIR: &str = "/tmp/odc-agents";

pub struct AgentSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl AgentSocket {
    /// `number` must be unique in this process.
    pub async fn open(forward: ForwardContext, state_dir: &Path, number: u64) -> io::Result<Self> {
        let name = format!("{}-{number}", std::process::id());
        let path = state_dir.join(DIRECTORY).join(&name);
        let path = if path.as_os_str().len() <= MAX_SOCKET_PATH { path } else { Path::new(FALLBACK_DIR).join(name) };
        let directory = path.parent().unwrap_or(state_dir);
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // In a world-writable directory, another user may have created it.
        let metadata = fs::symlink_metadata(directory)?;
        if !metadata.is_dir() || metadata.uid() != getuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!("{} is accessible to other users", directory.display())));
        }
        let listener = listen(&forward.blocking, &path).await?;
        Ok(Self { path, task: tokio::spawn(accept(listener, forward)) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes sockets that a killed `serve` has left.
pub async fn remove_stale(state_dir: &Path) {
    for directory in [state_dir.join(DIRECTORY), PathBuf::from(FALLBACK_DIR)] {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        for path in sockets.map(|entry| entry.path()) {
            // Each socket is bound only once, so one without a listener is stale.
            let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if UnixStream::connect(&path).await.is_err_and(is_refused) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

async fn accept(listener: UnixListener, forward: ForwardContext) {
    loop {
        let (stream, _) = accept_retrying(|| listener.accept()).await;
        let ForwardContext { handle, buffers, activity, .. } = forward.clone();
        tokio::spawn(async move {
            if let Ok(channel) = handle.channel_open_agent().await {
                let counter = ByteCounter { activity, port: None };
                relay(channel, handle, buffers, Upstream::Unix(stream), counter).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stale_sockets_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(DIRECTORY);
        fs::create_dir(&directory).unwrap();
        drop(UnixListener::bind(directory.join("7-1")).unwrap());
        let _listening = UnixListener::bind(directory.join("7-2")).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        remove_stale(state.path()).await;
        let mut remaining: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        remaining.sort();
        assert_eq!(remaining, ["7-2", "file"]);
    }
}
