//! Which OpenSSH there is, and whether it will do.
//!
//! It puts the name of a host into a command line of ours (`%n` in `ProxyCommand`), which it can do since 8.1. A shell
//! reads that line, and a host may be named by a stranger, such as the address of a repository's submodule: so OpenSSH
//! must refuse names with quotes in them. That came with 9.6, and distributions have mended older ones (CVE-2023-51385),
//! so it is tried instead of guessed from a number.

use std::process::Stdio;

use tokio::process::Command;

use crate::failure::{Failure, Result};
use crate::ssh::client;

/// Major and minor.
type Version = (u32, u32);

const OLDEST: Version = (8, 1);

/// Whether every host of somebody's may be handed to us by this OpenSSH.
pub async fn check() -> Result<()> {
    if let Some(failure) = too_old().await? {
        return Err(failure);
    }
    let mut question = Command::new("ssh");
    question.args(["-F", "none", "-G", "a'b"]);
    if client::output(question).await?.status.success() {
        return Err(Failure::failed(
            "this ssh hands names of hosts to a shell unchecked, and a stranger may choose one",
        )
        .advise("Update OpenSSH to 9.6, or to your distribution's version in which CVE-2023-51385 is mended."));
    }
    Ok(())
}

/// Why this OpenSSH cannot reach servers, if so.
pub async fn too_old() -> Result<Option<Failure>> {
    let mut question = Command::new("ssh");
    question.arg("-V").stdin(Stdio::null());
    let output = client::output(question).await?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    // One that does not say what it is may well do.
    Ok(version(&words).filter(|version| *version < OLDEST).map(|(major, minor)| {
        Failure::failed(format!("ssh is OpenSSH {major}.{minor}, and {}.{} is needed", OLDEST.0, OLDEST.1))
            .advise("Update it; ssh -V says which one is found first.")
    }))
}

/// `OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL …`
fn version(words: &str) -> Option<Version> {
    let number = words.strip_prefix("OpenSSH_")?.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let (major, rest) = number.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_said() {
        assert_eq!(version("OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19"), Some((9, 2)));
        assert_eq!(version("OpenSSH_for_Windows_8.6p1, LibreSSL 3.4.3"), Some((8, 6)));
        assert_eq!(version("OpenSSH_10.0p2"), Some((10, 0)));
        assert_eq!(version("dropbear"), None);
        assert!((10, 0) > OLDEST && (7, 9) < OLDEST);
    }
}
