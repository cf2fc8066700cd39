//! `SSH_MSG_DISCONNECT` before key exchange (RFC 4253, sections 6 and 11.1). OpenSSH discards the standard error of a
//! `ProxyCommand` with `ControlPersist`, but prints the description of this message.

const SSH_DISCONNECT_SERVICE_NOT_AVAILABLE: u32 = 7;
const SSH_MSG_DISCONNECT: u8 = 1;
/// Without a cipher, the packet size is a multiple of this.
const BLOCK_SIZE: usize = 8;
const MIN_PADDING: usize = 4;

/// The longest description that clients print.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Returns a version banner followed by the disconnect packet.
pub fn disconnect_message(reason: &str) -> Vec<u8> {
    let mut payload = vec![SSH_MSG_DISCONNECT];
    payload.extend(SSH_DISCONNECT_SERVICE_NOT_AVAILABLE.to_be_bytes());
    let line: String = reason.lines().collect::<Vec<_>>().join("; ").chars().take(MAX_DESCRIPTION_CHARS).collect();
    for text in [line.as_str(), ""] {
        payload.extend(u32::try_from(text.len()).unwrap_or_default().to_be_bytes());
        payload.extend(text.as_bytes());
    }
    let unpadded = 4 + 1 + payload.len();
    let padding = BLOCK_SIZE - (unpadded + MIN_PADDING) % BLOCK_SIZE + MIN_PADDING;
    let mut bytes = b"SSH-2.0-devctl\r\n".to_vec();
    bytes.extend(u32::try_from(1 + payload.len() + padding).unwrap_or_default().to_be_bytes());
    bytes.extend(u8::try_from(padding));
    bytes.extend(payload);
    bytes.extend(std::iter::repeat_n(0, padding));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_size_is_a_multiple_of_the_block_size() {
        for count in 0..40 {
            let packet = disconnect_message(&"x".repeat(count)).split_off("SSH-2.0-devctl\r\n".len());
            assert_eq!(packet.len() % BLOCK_SIZE, 0, "{count}");
            let length = u32::from_be_bytes(packet[..4].try_into().unwrap()) as usize;
            assert_eq!(length + 4, packet.len());
            assert!(usize::from(packet[4]) >= MIN_PADDING && usize::from(packet[4]) < BLOCK_SIZE + MIN_PADDING + 1);
        }
    }

    /// The proxy prints the message from a file, and OpenSSH discards its standard error.
    #[test]
    fn openssh_prints_the_description() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("message");
        std::fs::write(&file, disconnect_message("server box has expired\nhint: run `devctl create box`")).unwrap();
        let output = std::process::Command::new("ssh")
            .args(["-Fnone", "-oBatchMode=yes", "-oControlPersist=1m", "-oControlMaster=auto"])
            .arg(format!("-oControlPath={}/c", directory.path().display()))
            .arg(format!("-oProxyCommand=sh -c 'cat {}; cat >/dev/null'", file.display()))
            .arg("box.odc")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(255));
        assert!(stderr.contains("server box has expired; hint: run `devctl create box`"), "{stderr}");
    }
}
