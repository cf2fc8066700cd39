//! Relays bytes in both directions independently.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const BUFFER_SIZE: usize = 64 * 1024;
/// The transport may not support half-close. After the end of local input the connection therefore stays open until the
/// remote side is silent for this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The side that closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    Remote,
    Local,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading standard input")]
    Local(#[source] io::Error),
    #[error(transparent)]
    Remote(io::Error),
}

/// Relays until either side closes the connection.
pub async fn relay(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> Result<ClosedBy, Error> {
    let (mut from, to) = tokio::io::split(connection);
    let upload = upload(reader, to);
    tokio::pin!(upload);
    let mut sending = true;
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count.map_err(Error::Remote)?,
            sent = &mut upload, if sending => {
                sent?;
                sending = false;
                continue;
            }
            () = tokio::time::sleep(DRAIN_TIMEOUT), if !sending => return Ok(ClosedBy::Local),
        };
        if count == 0 {
            return Ok(ClosedBy::Remote);
        }
        let write = async {
            writer.write_all(&buffer[..count]).await?;
            writer.flush().await
        };
        tokio::pin!(write);
        loop {
            tokio::select! {
                outcome = &mut write => {
                    // The reader closed standard output.
                    if outcome.is_err() {
                        return Ok(ClosedBy::Local);
                    }
                    break;
                }
                // Keep sending while the local reader is slow.
                sent = &mut upload, if sending => {
                    sent?;
                    sending = false;
                }
            }
        }
    }
}

async fn upload(mut reader: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        match reader.read(&mut buffer).await.map_err(Error::Local)? {
            0 => return Ok(()),
            count => {
                to.write_all(&buffer[..count]).await.map_err(Error::Remote)?;
                to.flush().await.map_err(Error::Remote)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pending_data_arrives_after_local_eof() {
        let (connection, mut far) = duplex(64);
        let server = async {
            let mut request = [0; 7];
            far.read_exact(&mut request).await.unwrap();
            for part in [b"one " as &[u8], b"two"] {
                tokio::time::sleep(DRAIN_TIMEOUT / 2).await;
                far.write_all(part).await.unwrap();
            }
            // The remote side sees no half-close, only the final close.
            far.read(&mut [0]).await.unwrap()
        };
        let mut out = Vec::new();
        let (rest, closed_by) = tokio::join!(server, relay(connection, &b"request"[..], &mut out));
        assert_eq!((rest, closed_by.unwrap()), (0, ClosedBy::Local));
        assert_eq!(out, b"one two");
    }

    /// Each side sends more than all buffers hold before it reads.
    #[tokio::test]
    async fn blocked_direction_does_not_block_the_other() {
        const TOTAL: usize = 4 << 20;
        let (connection, mut far) = duplex(4096);
        let (mut stdin, reader) = duplex(4096);
        let (mut stdout, writer) = duplex(4096);
        let server = async {
            let (mut from, mut to) = tokio::io::split(&mut far);
            let mut all = vec![0; TOTAL];
            let send = async { to.write_all(&vec![7; TOTAL]).await.unwrap() };
            let receive = async { from.read_exact(&mut all).await.unwrap() };
            tokio::join!(send, receive);
            all.iter().all(|byte| *byte == 1)
        };
        let client = async {
            stdin.write_all(&vec![1; TOTAL]).await.unwrap();
            let mut all = vec![0; TOTAL];
            stdout.read_exact(&mut all).await.unwrap();
            all.iter().all(|byte| *byte == 7)
        };
        let both = async { tokio::join!(server, client) };
        tokio::select! {
            (server, client) = both => assert!(server && client),
            closed_by = relay(connection, reader, writer) => panic!("{closed_by:?}"),
        }
    }

    #[tokio::test]
    async fn closed_stdout_closes_the_connection() {
        let (connection, mut far) = duplex(64);
        far.write_all(b"hello").await.unwrap();
        let (stdin, reader) = duplex(64);
        let (stdout, writer) = duplex(64);
        drop(stdout);
        assert_eq!(relay(connection, reader, writer).await.unwrap(), ClosedBy::Local);
        drop(stdin);
    }

    #[tokio::test]
    async fn remote_close_is_reported() {
        let (connection, far) = duplex(64);
        drop(far);
        let (_stdin, reader) = duplex(64);
        assert_eq!(relay(connection, reader, tokio::io::sink()).await.unwrap(), ClosedBy::Remote);
    }
}
