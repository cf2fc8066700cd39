//! Bytes both ways between two ends, each direction on its own.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// What is taken at once.
const PIECE: usize = 64 * 1024;
/// The way there cannot always be told that our direction has ended, so it is left open, and what comes back may go on
/// until it pauses this long.
const LINGER: Duration = Duration::from_secs(2);

/// What a connection ended by, when nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    There,
    /// We had no more to say.
    Here,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading what is to be sent")]
    Here(#[source] io::Error),
    #[error(transparent)]
    There(io::Error),
}

/// Carries until either side ends.
pub async fn carry(
    there: impl AsyncRead + AsyncWrite + Unpin,
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> Result<Ended, Error> {
    let (mut from, to) = tokio::io::split(there);
    let up = up(reader, to);
    tokio::pin!(up);
    let mut sending = true;
    let mut buffer = vec![0; PIECE];
    loop {
        let count = tokio::select! {
            count = from.read(&mut buffer) => count.map_err(Error::There)?,
            sent = &mut up, if sending => {
                sent?;
                sending = false;
                continue;
            }
            () = tokio::time::sleep(LINGER), if !sending => return Ok(Ended::Here),
        };
        if count == 0 {
            return Ok(Ended::There);
        }
        let delivered = async {
            writer.write_all(&buffer[..count]).await?;
            writer.flush().await
        };
        tokio::pin!(delivered);
        loop {
            tokio::select! {
                outcome = &mut delivered => {
                    // Whoever wanted it is gone; that is their way of ending.
                    if outcome.is_err() {
                        return Ok(Ended::Here);
                    }
                    break;
                }
                // Sending goes on while this end is slow to take what came.
                sent = &mut up, if sending => {
                    sent?;
                    sending = false;
                }
            }
        }
    }
}

async fn up(mut reader: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Result<(), Error> {
    let mut buffer = vec![0; PIECE];
    loop {
        match reader.read(&mut buffer).await.map_err(Error::Here)? {
            0 => return Ok(()),
            count => {
                to.write_all(&buffer[..count]).await.map_err(Error::There)?;
                to.flush().await.map_err(Error::There)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_still_comes_after_our_end() {
        let (there, mut far) = duplex(64);
        let server = async {
            let mut request = [0; 7];
            far.read_exact(&mut request).await.unwrap();
            for part in [b"one " as &[u8], b"two"] {
                tokio::time::sleep(LINGER / 2).await;
                far.write_all(part).await.unwrap();
            }
            // It is not told that we have ended, only that we are gone.
            far.read(&mut [0]).await.unwrap()
        };
        let mut out = Vec::new();
        let (left, ended) = tokio::join!(server, carry(there, &b"request"[..], &mut out));
        assert_eq!((left, ended.unwrap()), (0, Ended::Here));
        assert_eq!(out, b"one two");
    }

    /// Each side sends more than all buffers hold, and reads only when that is taken.
    #[tokio::test]
    async fn a_direction_that_is_stuck_does_not_stop_the_other() {
        const MUCH: usize = 4 << 20;
        let (there, mut far) = duplex(4096);
        let (mut stdin, reader) = duplex(4096);
        let (mut stdout, writer) = duplex(4096);
        let server = async {
            let (mut from, mut to) = tokio::io::split(&mut far);
            let mut all = vec![0; MUCH];
            // What it has to say fills every buffer on the way before it reads a byte.
            let talk = async { to.write_all(&vec![7; MUCH]).await.unwrap() };
            let listen = async { from.read_exact(&mut all).await.unwrap() };
            tokio::join!(talk, listen);
            all.iter().all(|byte| *byte == 1)
        };
        let client = async {
            stdin.write_all(&vec![1; MUCH]).await.unwrap();
            let mut all = vec![0; MUCH];
            stdout.read_exact(&mut all).await.unwrap();
            all.iter().all(|byte| *byte == 7)
        };
        let both = async { tokio::join!(server, client) };
        tokio::select! {
            (theirs, ours) = both => assert!(theirs && ours),
            ended = carry(there, reader, writer) => panic!("{ended:?}"),
        }
    }

    #[tokio::test]
    async fn nobody_who_reads_is_the_end() {
        let (there, mut far) = duplex(64);
        far.write_all(b"hello").await.unwrap();
        let (stdin, reader) = duplex(64);
        let (stdout, writer) = duplex(64);
        drop(stdout);
        assert_eq!(carry(there, reader, writer).await.unwrap(), Ended::Here);
        drop(stdin);
    }

    #[tokio::test]
    async fn the_other_side_may_end_first() {
        let (there, far) = duplex(64);
        drop(far);
        let (_stdin, reader) = duplex(64);
        assert_eq!(carry(there, reader, tokio::io::sink()).await.unwrap(), Ended::There);
    }
}
