//! Checks the installed OpenSSH.
//!
//! The `ProxyCommand` uses `%n`, which OpenSSH expands since 8.1. A shell parses the result, and host names may be
//! untrusted, such as in the URL of a submodule, so OpenSSH must reject names with quotes. It does since 9.6, and
//! distributions have backported the fix (CVE-2023-51385), so the behavior is tested instead of the version.

use std::process::Stdio;

use tokio::process::Command;

use crate::error::{Error, Result};
use crate::ssh::process;

/// Major and minor.
type Version = (u32, u32);

const MIN_VERSION: Version = (8, 1);

/// Fails if this OpenSSH is too old or unsafe with untrusted host names.
pub async fn check() -> Result<()> {
    if let Some(error) = version_error().await? {
        return Err(error);
    }
    let mut command = Command::new("ssh");
    command.args(["-F", "none", "-G", "a'b"]);
    if process::output(command).await?.status.success() {
        return Err(Error::failed("this version of OpenSSH passes unchecked host names to the shell (CVE-2023-51385)")
            .with_hint("update OpenSSH to 9.6, or to a version of your distribution with the fix"));
    }
    Ok(())
}

/// Returns an error if this OpenSSH is too old.
pub async fn version_error() -> Result<Option<Error>> {
    let mut command = Command::new("ssh");
    command.arg("-V").stdin(Stdio::null());
    let output = process::output(command).await?;
    let banner = String::from_utf8_lossy(&output.stderr).into_owned();
    // An unknown version may work.
    Ok(parse_version(&banner).filter(|version| *version < MIN_VERSION).map(|(major, minor)| {
        Error::failed(format!("OpenSSH {major}.{minor} is too old; {}.{} is required", MIN_VERSION.0, MIN_VERSION.1))
            .with_hint("update it; run `ssh -V` to see which version is found in PATH")
    }))
}

/// Parses `OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL …`.
fn parse_version(banner: &str) -> Option<Version> {
    let number = banner.strip_prefix("OpenSSH_")?.trim_start_matches(|character: char| !character.is_ascii_digit());
    let (major, rest) = number.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_versions_of_all_builds() {
        assert_eq!(parse_version("OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19"), Some((9, 2)));
        assert_eq!(parse_version("OpenSSH_for_Windows_8.6p1, LibreSSL 3.4.3"), Some((8, 6)));
        assert_eq!(parse_version("OpenSSH_10.0p2"), Some((10, 0)));
        assert_eq!(parse_version("dropbear"), None);
        assert!((10, 0) > MIN_VERSION && (7, 9) < MIN_VERSION);
    }
}
