//! The message of the day, shown at login.

use std::time::Duration;

use odc_control::duration;

use crate::text_format::extend_command;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    pub server: String,
    pub flavor: String,
    pub gpus: Vec<String>,
    pub expires_in: Option<Duration>,
    /// Nodes of the gang; 1 for a single-node server.
    pub nodes: u32,
    pub rank: u32,
    /// `/etc/motd` of the image.
    pub image_motd: String,
}

/// Returns the message, with `\n` as line separator.
pub fn motd(inputs: &Inputs) -> String {
    let Inputs { server, flavor, gpus, expires_in, nodes, rank, image_motd } = inputs;
    let mut text = String::new();
    if !image_motd.trim().is_empty() {
        text.push_str(image_motd.trim_end());
        text.push_str("\n\n");
    }
    if !server.is_empty() {
        text.push_str(server);
        if !flavor.is_empty() {
            text.push_str(&format!(", flavor {flavor}"));
        }
        if !gpus.is_empty() {
            text.push_str(&format!(", {}", summarize(gpus)));
        }
        text.push('\n');
    }
    if let Some(remaining) = expires_in {
        text.push_str(&format!("Expires in {}.", duration::format(remaining.as_secs())));
        if !server.is_empty() {
            text.push_str(&format!(" Extend with `{}` (from your own machine).", extend_command(server)));
        }
        text.push('\n');
    }
    if *nodes > 1 {
        text.push_str(&format!(
            "Node rank {rank} (of 0 to {}). Run on every node: torchrun --nnodes $WORLD_SIZE --node-rank $NODE_RANK \
             --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node gpu SCRIPT\n",
            nodes - 1
        ));
    }
    text
}

/// Returns `8 × H100` for equal GPUs, else their names.
fn summarize(gpus: &[String]) -> String {
    if gpus.windows(2).all(|pair| pair[0] == pair[1]) {
        let name = gpus.first().map(String::as_str).unwrap_or_default();
        return format!("{} × {name}", gpus.len());
    }
    gpus.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_contains_only_known_values() {
        assert_eq!(motd(&Inputs::default()), "");
        let inputs = Inputs { server: "ada-1".to_owned(), flavor: "h100".to_owned(), nodes: 1, ..Inputs::default() };
        assert_eq!(motd(&inputs), "ada-1, flavor h100\n");
        let inputs = Inputs {
            gpus: vec!["H100".to_owned(); 8],
            expires_in: Some(Duration::from_secs(3 * 3600 + 59)),
            image_motd: "Welcome to Debian\n\n".to_owned(),
            ..inputs
        };
        let text = "Welcome to Debian\n\nada-1, flavor h100, 8 × H100\n\
                    Expires in 3h. Extend with `devctl extend ada-1 2h` (from your own machine).\n";
        assert_eq!(motd(&inputs), text);
        let gang = motd(&Inputs { nodes: 4, rank: 2, ..inputs });
        assert!(gang.contains("Node rank 2 (of 0 to 3). Run on every node: torchrun "), "{gang}");
    }

    #[test]
    fn remaining_lifetime_is_a_short_duration() {
        for (seconds, expect) in [(0, "0s"), (60, "1m"), (3600, "1h"), (180_000, "2d2h")] {
            let text = motd(&Inputs { expires_in: Some(Duration::from_secs(seconds)), ..Inputs::default() });
            assert_eq!(text, format!("Expires in {expect}.\n"));
        }
    }
}
