//! The client's key agent as a socket in the server, for as long as the session that asked for it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::serve::forward::listen::{Client, listen};
use crate::serve::forward::{Count, Link, carry};

const DIRECTORY: &str = "agents";

/// The path of a socket may not be longer; what is longer goes where paths are short.
const LONGEST_PATH: usize = 107;

pub struct Door {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Door {
    /// `number` tells the sessions of all clients apart.
    pub fn open(client: Client, state: &Path, number: u64) -> io::Result<Self> {
        let name = format!("{}-{number}", std::process::id());
        let path = state.join(DIRECTORY).join(&name);
        let path = if path.as_os_str().len() <= LONGEST_PATH { path } else { Path::new("/tmp/odc-agents").join(name) };
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
        let listener = listen(&path)?;
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

async fn accept(listener: UnixListener, client: Client) {
    while let Ok((stream, _)) = listener.accept().await {
        let Client { handle, inboxes, activity } = client.clone();
        tokio::spawn(async move {
            if let Ok(channel) = handle.channel_open_agent().await {
                let count = Count { activity, port: None };
                carry(channel, handle, inboxes, Link::Unix(stream), count).await;
            }
        });
    }
}
