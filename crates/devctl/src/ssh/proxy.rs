//! `devctl ssh --stdio`, the `ProxyCommand` of OpenSSH: relays standard input and output to a server. Messages go to
//! standard error only.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::ssh::disconnect::disconnect_message;
use crate::ssh::relay::{self, ClosedBy, Error};

/// How long to drain the input of the client after a disconnect message.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

const BUFFER_SIZE: usize = 64 * 1024;
const BANNER_BUFFER_SIZE: usize = 1024;

type Input = Box<dyn AsyncRead + Unpin + Send>;
type Output = Box<dyn AsyncWrite + Unpin + Send>;

/// Relays between standard input and output and a connection whose banner was read already.
pub async fn relay(connection: impl AsyncRead + AsyncWrite + Unpin, banner: &[u8]) -> Result<ClosedBy, Error> {
    let (reader, mut writer) = (input().map_err(Error::Local)?, output().map_err(Error::Local)?);
    if writer.write_all(banner).await.is_err() {
        return Ok(ClosedBy::Local);
    }
    relay::relay(connection, reader, writer).await
}

/// Reads the version banner, which an SSH server sends first. It proves that the server responds.
pub async fn read_version_banner(connection: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut banner = vec![0; BANNER_BUFFER_SIZE];
    let count = connection.read(&mut banner).await?;
    banner.truncate(count);
    if banner.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(banner) }
}

/// Sends the reason to the client as an SSH disconnect message if standard error is `/dev/null`, so that the user would
/// not see it otherwise.
pub async fn send_disconnect(reason: &str) -> io::Result<()> {
    if !is_dev_null(&io::stderr())? {
        return Ok(());
    }
    let mut output = output()?;
    output.write_all(&disconnect_message(reason)).await?;
    output.flush().await?;
    // The client reads only after its own banner was accepted.
    let mut rest = input()?;
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    Ok(())
}

/// While it exists, standard error goes to the terminal if it is `/dev/null`, as with `ControlPersist`, so that the user
/// sees the progress of a server that wakes.
pub struct TtyStderr(Option<OwnedFd>);

impl TtyStderr {
    pub fn redirect() -> Self {
        let redirect = || -> io::Result<Option<OwnedFd>> {
            if !is_dev_null(&io::stderr())? {
                return Ok(None);
            }
            let terminal = std::fs::File::options().write(true).open("/dev/tty")?;
            let original = io::stderr().as_fd().try_clone_to_owned()?;
            rustix::stdio::dup2_stderr(terminal)?;
            Ok(Some(original))
        };
        // Without a terminal there is nothing to redirect to.
        Self(redirect().unwrap_or_default())
    }
}

impl Drop for TtyStderr {
    fn drop(&mut self) {
        if let Some(original) = self.0.take() {
            // From now on devctl is in the background and must not write to the terminal.
            let _ = rustix::stdio::dup2_stderr(original);
        }
    }
}

fn is_dev_null(file: &impl AsFd) -> io::Result<bool> {
    let (file, null) = (fstat(file)?, rustix::fs::stat("/dev/null")?);
    Ok(FileType::from_raw_mode(file.st_mode) == FileType::CharacterDevice && file.st_rdev == null.st_rdev)
}

/// Returns standard input: asynchronous for pipes and sockets, through a thread for other files.
fn input() -> io::Result<Input> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(stdin_thread()),
    })
}

fn output() -> io::Result<Output> {
    let fd = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(tokio::fs::File::from_std(fd.into())),
    })
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = StdStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Reads standard input on a thread. A pending read of `tokio::io::stdin` would keep the runtime from shutting down.
fn stdin_thread() -> impl AsyncRead + Unpin + Send {
    let (reader, mut writer) = tokio::io::duplex(BUFFER_SIZE);
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let mut buffer = vec![0; BUFFER_SIZE];
        while let Ok(count @ 1..) = io::stdin().lock().read(&mut buffer) {
            if runtime.block_on(writer.write_all(&buffer[..count])).is_err() {
                break;
            }
        }
    });
    reader
}
