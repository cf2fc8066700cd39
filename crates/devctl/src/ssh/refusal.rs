//! Telling an SSH client why there is no connection when it threw our standard error away, as OpenSSH does while it
//! shares connections (`ControlPersist`): in the words of the protocol, before any keys are agreed on. Clients print
//! them.

/// RFC 4253, 11.1: the service is not available.
const NOT_AVAILABLE: u32 = 7;
const DISCONNECT: u8 = 1;
/// Packets without a cipher are a multiple of this, with at least [`LEAST_PADDING`] bytes of nothing.
const BLOCK: usize = 8;
const LEAST_PADDING: usize = 4;

/// A whole conversation: who we are, and good-bye.
pub fn refusal(reason: &str) -> Vec<u8> {
    let mut payload = vec![DISCONNECT];
    payload.extend(NOT_AVAILABLE.to_be_bytes());
    // Clients show one line of so many bytes.
    let line: String = reason.lines().collect::<Vec<_>>().join("; ").chars().take(300).collect();
    for text in [line.as_str(), ""] {
        payload.extend(u32::try_from(text.len()).unwrap_or_default().to_be_bytes());
        payload.extend(text.as_bytes());
    }
    let unpadded = 4 + 1 + payload.len();
    let padding = BLOCK - (unpadded + LEAST_PADDING) % BLOCK + LEAST_PADDING;
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
    fn packets_are_whole_blocks() {
        for length in 0..40 {
            let packet = refusal(&"x".repeat(length)).split_off("SSH-2.0-devctl\r\n".len());
            assert_eq!(packet.len() % BLOCK, 0, "{length}");
            let told = u32::from_be_bytes(packet[..4].try_into().unwrap()) as usize;
            assert_eq!(told + 4, packet.len());
            assert!(usize::from(packet[4]) >= LEAST_PADDING && usize::from(packet[4]) < BLOCK + LEAST_PADDING + 1);
        }
    }

    /// With the reason in a file, and standard error gone as with `ControlPersist`.
    #[test]
    fn openssh_prints_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("refusal");
        std::fs::write(&file, refusal("box has expired\ndevctl create box makes a new one.")).unwrap();
        let output = std::process::Command::new("ssh")
            .args(["-Fnone", "-oBatchMode=yes", "-oControlPersist=1m", "-oControlMaster=auto"])
            .arg(format!("-oControlPath={}/c", place.path().display()))
            .arg(format!("-oProxyCommand=sh -c 'cat {}; cat >/dev/null'", file.display()))
            .arg("box.odc")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(255));
        assert!(said.contains("box has expired; devctl create box makes a new one."), "{said}");
    }
}
