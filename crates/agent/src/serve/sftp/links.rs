//! In which order a client names the two ends of a symbolic link.
//!
//! The draft has the link first. OpenSSH had the target first from the beginning and stayed with it, so everybody who was
//! only ever tried with OpenSSH does too (paramiko, Java's `jsch`, Go's library, sshfs). Some look at who the server says it is, and
//! keep to the draft with servers that do not call themselves OpenSSH, as we do not.

use bytes::Bytes;

/// How those clients call themselves, after the version of the protocol.
const LOOK_AT_THE_SERVER: [&[u8]; 5] = [b"AsyncSSH", b"libssh_", b"libssh-", b"WinSCP", b"ssh2js"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkOrder {
    #[default]
    TargetFirst,
    LinkFirst,
}

impl LinkOrder {
    /// With the name of the client's software, as it came.
    pub fn of(software: &[u8]) -> Self {
        let name = software.strip_prefix(b"SSH-2.0-").unwrap_or_default();
        let looks = LOOK_AT_THE_SERVER.iter().any(|known| name.starts_with(known));
        if looks { Self::LinkFirst } else { Self::TargetFirst }
    }

    /// The target, and the link.
    pub fn sorted(self, [first, second]: [Bytes; 2]) -> (Bytes, Bytes) {
        match self {
            Self::TargetFirst => (first, second),
            Self::LinkFirst => (second, first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_known_by_its_name() {
        for (software, expect) in [
            ("SSH-2.0-OpenSSH_9.9p1 Debian-3", LinkOrder::TargetFirst),
            ("SSH-2.0-paramiko_3.5.1", LinkOrder::TargetFirst),
            ("SSH-2.0-Go", LinkOrder::TargetFirst),
            ("SSH-2.0-JSCH_2.27.0", LinkOrder::TargetFirst),
            // Sends what its caller gives, and callers know OpenSSH.
            ("SSH-2.0-libssh2_1.11.1", LinkOrder::TargetFirst),
            ("SSH-2.0-AsyncSSH_2.21.0", LinkOrder::LinkFirst),
            ("SSH-2.0-libssh_0.11.2", LinkOrder::LinkFirst),
            ("SSH-2.0-libssh-0.6.0", LinkOrder::LinkFirst),
            ("SSH-2.0-WinSCP_release_6.5.3", LinkOrder::LinkFirst),
            ("SSH-2.0-ssh2js1.17.0", LinkOrder::LinkFirst),
            ("AsyncSSH", LinkOrder::TargetFirst),
            ("", LinkOrder::TargetFirst),
        ] {
            assert_eq!(LinkOrder::of(software.as_bytes()), expect, "{software}");
        }
    }
}
