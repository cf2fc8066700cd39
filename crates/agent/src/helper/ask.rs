//! One question to `serve`, over the socket in the state directory.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use odc_control::{Frames, Reply, Request, read_reply, write_request};

use crate::serve::local::SOCKET;
use crate::state::directory;

const LIMIT: Duration = Duration::from_secs(10);

/// Fails with a sentence for the user.
pub fn ask(given: Option<&Path>, request: &Request) -> anyhow::Result<Reply> {
    let mut stream = connect(given)?;
    let failed = || "the server's agent did not answer; try again in a moment";
    stream.set_read_timeout(Some(LIMIT)).with_context(failed)?;
    stream.set_write_timeout(Some(LIMIT)).with_context(failed)?;
    stream.write_all(&write_request(request)?).with_context(failed)?;
    let mut frames = Frames::default();
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(line) = frames.take()? {
            return match read_reply(&line)? {
                Reply::Refused { reason } => bail!("{reason}"),
                reply => Ok(reply),
            };
        }
        match stream.read(&mut piece).with_context(failed)? {
            0 => bail!(failed()),
            count => frames.push(&piece[..count]),
        }
    }
}

/// Whoever wrote to a directory first may be dead; the one that answers counts.
fn connect(given: Option<&Path>) -> anyhow::Result<UnixStream> {
    let mut refusals = Vec::new();
    for directory in directory::candidates(given) {
        let path = directory.join(SOCKET);
        match UnixStream::connect(&path) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refusals.push(format!("{}: {error}", path.display())),
        }
    }
    if refusals.is_empty() {
        bail!("no agent serves here; this command works inside an ODC dev server");
    }
    bail!("the server's agent cannot be reached ({}); it is started again within seconds", refusals.join("; "));
}
