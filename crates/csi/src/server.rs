//! gRPC servers on Unix sockets.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server as Grpc;

use crate::authority;

/// Time for calls in progress to complete on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_CALLS_PER_CONNECTION: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another process is serving {}", path.display())]
    InUse { path: PathBuf },
    #[error("removing the stale socket {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("creating the socket {}", path.display())]
    Bind { path: PathBuf, source: io::Error },
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Creates the socket, which only root can open, and serves on it. Replaces the stale socket of a process that has
    /// ended.
    pub async fn open(path: &Path, services: Routes) -> Result<Self, Error> {
        remove_stale_socket(path).await?;
        let bind_error = |source| Error::Bind { path: path.to_owned(), source };
        let listener = UnixListener::bind(path).map_err(bind_error)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(bind_error)?;
        let connections = UnixListenerStream::new(listener).map(|accepted| accepted.map(authority::normalize));
        let (shutdown, closed) = oneshot::channel();
        let serve = Grpc::builder()
            .concurrency_limit_per_connection(MAX_CALLS_PER_CONNECTION)
            .add_routes(services)
            .serve_with_incoming_shutdown(connections, async {
                // An error means that the sender was dropped, which also ends the server.
                let _: Result<(), _> = closed.await;
            });
        let socket = path.display().to_string();
        let task = tokio::spawn(async move {
            if let Err(error) = serve.await {
                tracing::error!("serving {socket}: {error}");
            }
        });
        Ok(Self { path: path.to_owned(), shutdown, task })
    }

    /// Removes the socket and waits for calls in progress.
    pub async fn close(self) {
        let Self { path, shutdown, mut task } = self;
        if let Err(error) = fs::remove_file(&path) {
            tracing::error!("removing {}: {error}", path.display());
        }
        drop(shutdown);
        if timeout(SHUTDOWN_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn remove_stale_socket(path: &Path) -> Result<(), Error> {
    let is_socket = |path: &Path| fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    match UnixStream::connect(path).await {
        Ok(_) => Err(Error::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
            fs::remove_file(path).map_err(|source| Error::Remove { path: path.to_owned(), source })
        }
        // The file does not exist, or bind will report the error.
        Err(_) => Ok(()),
    }
}
