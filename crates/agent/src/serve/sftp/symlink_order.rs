//! Order of the paths in `SSH_FXP_SYMLINK`.
//!
//! The draft has the link first. OpenSSH has always had the target first, and so do clients that were tested only with
//! OpenSSH (paramiko, Java's `jsch`, Go's library, sshfs). Others check the server's version string and follow the
//! draft unless it says OpenSSH, which this server's does not.

use bytes::Bytes;

/// Software names in the version strings of clients that follow the draft.
const DRAFT_CLIENTS: [&[u8]; 5] = [b"AsyncSSH", b"libssh_", b"libssh-", b"WinSCP", b"ssh2js"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinkOrder {
    #[default]
    TargetFirst,
    LinkFirst,
}

impl SymlinkOrder {
    /// Returns the order used by the client with this version string.
    pub fn of_client(version: &[u8]) -> Self {
        let software = version.strip_prefix(b"SSH-2.0-").unwrap_or_default();
        let follows_draft = DRAFT_CLIENTS.iter().any(|client| software.starts_with(client));
        if follows_draft { Self::LinkFirst } else { Self::TargetFirst }
    }

    /// Returns the target and the link.
    pub fn target_and_link(self, [first, second]: [Bytes; 2]) -> (Bytes, Bytes) {
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
    fn order_depends_on_the_client_version() {
        for (version, expect) in [
            ("SSH-2.0-OpenSSH_9.9p1 Debian-3", SymlinkOrder::TargetFirst),
            ("SSH-2.0-paramiko_3.5.1", SymlinkOrder::TargetFirst),
            ("SSH-2.0-Go", SymlinkOrder::TargetFirst),
            ("SSH-2.0-JSCH_2.27.0", SymlinkOrder::TargetFirst),
            // Passes on the order of its caller, and callers are tested with OpenSSH.
            ("SSH-2.0-libssh2_1.11.1", SymlinkOrder::TargetFirst),
            ("SSH-2.0-AsyncSSH_2.21.0", SymlinkOrder::LinkFirst),
            ("SSH-2.0-libssh_0.11.2", SymlinkOrder::LinkFirst),
            ("SSH-2.0-libssh-0.6.0", SymlinkOrder::LinkFirst),
            ("SSH-2.0-WinSCP_release_6.5.3", SymlinkOrder::LinkFirst),
            ("SSH-2.0-ssh2js1.17.0", SymlinkOrder::LinkFirst),
            ("AsyncSSH", SymlinkOrder::TargetFirst),
            ("", SymlinkOrder::TargetFirst),
        ] {
            assert_eq!(SymlinkOrder::of_client(version.as_bytes()), expect, "{version}");
        }
    }
}
