//! A connection to a server on standard input and output, as OpenSSH's `ProxyCommand` wants it. Nothing else is ever
//! written there; whatever is to be said goes to standard error.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::ssh::carry::{self, Ended, Error};
use crate::ssh::refusal::refusal;

const LAST_WORDS: Duration = Duration::from_secs(2);

type Input = Box<dyn AsyncRead + Unpin + Send>;
type Output = Box<dyn AsyncWrite + Unpin + Send>;

/// Carries bytes between whoever called us and a connection, until either ends. `greeting` is what came of it already.
pub async fn carry(there: impl AsyncRead + AsyncWrite + Unpin, greeting: &[u8]) -> Result<Ended, Error> {
    let (reader, mut writer) = (input().map_err(Error::Here)?, output().map_err(Error::Here)?);
    if writer.write_all(greeting).await.is_err() {
        return Ok(Ended::Here);
    }
    carry::carry(there, reader, writer).await
}

/// The first bytes of a server that speaks first, as those of SSH do: then it is there.
pub async fn greeting(there: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut first = vec![0; 1024];
    let count = there.read(&mut first).await?;
    first.truncate(count);
    if first.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(first) }
}

/// Tells whoever waits for a connection that there will be none. Only needed where they cannot see our standard error;
/// where they can, standard output stays empty.
pub async fn refuse(reason: &str) -> io::Result<()> {
    if !is_nowhere(&io::stderr())? {
        return Ok(());
    }
    let mut output = output()?;
    output.write_all(&refusal(reason)).await?;
    output.flush().await?;
    // A client whose first words nobody takes does not read ours.
    let mut rest = input()?;
    let _ = tokio::time::timeout(LAST_WORDS, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    Ok(())
}

/// While this is held, what is said on a standard error that leads nowhere goes to the person's terminal, if they have
/// one: whoever waits for a server to wake wants to see it.
pub struct Aloud(Option<OwnedFd>);

impl Aloud {
    pub fn begin() -> Self {
        let redirect = || -> io::Result<Option<OwnedFd>> {
            if !is_nowhere(&io::stderr())? {
                return Ok(None);
            }
            let terminal = std::fs::File::options().write(true).open("/dev/tty")?;
            let before = io::stderr().as_fd().try_clone_to_owned()?;
            rustix::stdio::dup2_stderr(terminal)?;
            Ok(Some(before))
        };
        // No terminal: nobody is there to look.
        Self(redirect().unwrap_or_default())
    }
}

impl Drop for Aloud {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            // From here on we are in the background of somebody's terminal and must not write to it.
            let _ = rustix::stdio::dup2_stderr(before);
        }
    }
}

fn is_nowhere(place: &impl AsFd) -> io::Result<bool> {
    let (place, nowhere) = (fstat(place)?, rustix::fs::stat("/dev/null")?);
    Ok(FileType::from_raw_mode(place.st_mode) == FileType::CharacterDevice && place.st_rdev == nowhere.st_rdev)
}

/// Pipes and sockets without a thread in between; anything else with one.
fn input() -> io::Result<Input> {
    let place = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match FileType::from_raw_mode(fstat(&place)?.st_mode) {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(place)?),
        FileType::Socket => Box::new(socket(place)?),
        _ => Box::new(from_thread()),
    })
}

fn output() -> io::Result<Output> {
    let place = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match FileType::from_raw_mode(fstat(&place)?.st_mode) {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(place)?),
        FileType::Socket => Box::new(socket(place)?),
        _ => Box::new(tokio::fs::File::from_std(place.into())),
    })
}

fn socket(place: OwnedFd) -> io::Result<UnixStream> {
    let socket = StdStream::from(place);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Not tokio's own: the program could not end while a read of it waits.
fn from_thread() -> impl AsyncRead + Unpin + Send {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = io::stdin().lock().read(&mut buffer) {
            if runtime.block_on(theirs.write_all(&buffer[..count])).is_err() {
                break;
            }
        }
    });
    ours
}
