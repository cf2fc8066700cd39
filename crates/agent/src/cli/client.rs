//! Client of the Unix socket of `serve`.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use odc_control::{LineDecoder, Reply, Request, read_reply, write_request};

use crate::init_state::directory;
use crate::serve::control::socket::SOCKET_FILE;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends one request and returns the reply. Errors are messages for the user.
pub fn request(state_dir: Option<&Path>, request: &Request) -> anyhow::Result<Reply> {
    let mut stream = connect(state_dir)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT)).map_err(no_response)?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT)).map_err(no_response)?;
    stream.write_all(&write_request(request)?).map_err(no_response)?;
    let mut decoder = LineDecoder::default();
    let mut chunk = [0; 16 << 10];
    loop {
        if let Some(line) = decoder.next_line()? {
            return match read_reply(&line)? {
                Reply::Refused { reason } => bail!("{reason}"),
                reply => Ok(reply),
            };
        }
        match stream.read(&mut chunk).map_err(no_response)? {
            0 => return Err(no_response(io::ErrorKind::UnexpectedEof.into())),
            count => decoder.push(&chunk[..count]),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with `map_err`")]
fn no_response(error: io::Error) -> anyhow::Error {
    anyhow!("no response from the ODC agent: {error}\nhint: try again in a few seconds")
}

/// Connects to the first socket that accepts. Sockets in other directories may be left from an agent that has exited.
fn connect(state_dir: Option<&Path>) -> anyhow::Result<UnixStream> {
    let mut failures = Vec::new();
    for directory in directory::candidates(state_dir) {
        let path = directory.join(SOCKET_FILE);
        match UnixStream::connect(&path) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failures.push(format!("{}: {error}", path.display())),
        }
    }
    if failures.is_empty() {
        bail!("cannot connect to the ODC agent; this command only works inside a dev server");
    }
    bail!(
        "cannot connect to the ODC agent: {}\nhint: it may be restarting; try again in a few seconds",
        failures.join("; ")
    );
}
