//! What people read when they log in.

use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub server: String,
    pub flavor: String,
    pub gpus: Vec<String>,
    pub expires_in: Option<Duration>,
    /// Of the gang this is a part of; 1 if it is none.
    pub nodes: u32,
    pub rank: u32,
    /// What the image says.
    pub image: String,
}

/// Lines end as in a file.
pub fn motd(facts: &Facts) -> String {
    let Facts { server, flavor, gpus, expires_in, nodes, rank, image } = facts;
    let mut text = String::new();
    if !image.trim().is_empty() {
        text.push_str(image.trim_end());
        text.push_str("\n\n");
    }
    if !server.is_empty() {
        text.push_str(server);
        if !flavor.is_empty() {
            text.push_str(&format!(", flavor {flavor}"));
        }
        if !gpus.is_empty() {
            text.push_str(&format!(", {}", counted(gpus)));
        }
        text.push('\n');
    }
    if let Some(left) = expires_in {
        text.push_str(&format!("It ends in {}. For more time: devctl extend {server}\n", in_words(*left)));
    }
    if *nodes > 1 {
        text.push_str(&format!(
            "Node {rank} of {nodes}. On every node: torchrun --nnodes $WORLD_SIZE --node-rank $NODE_RANK \
             --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node gpu SCRIPT\n"
        ));
    }
    text
}

fn counted(gpus: &[String]) -> String {
    if gpus.windows(2).all(|pair| pair[0] == pair[1]) {
        let name = gpus.first().map(String::as_str).unwrap_or_default();
        return format!("{} × {name}", gpus.len());
    }
    gpus.join(", ")
}

/// As people say it: days and hours, hours and minutes, or minutes.
fn in_words(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    match (days, hours) {
        (0, 0) if minutes == 0 => "less than a minute".to_owned(),
        (0, 0) => format!("{minutes} min"),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_and_nothing_else() {
        assert_eq!(motd(&Facts::default()), "");
        let facts = Facts { server: "ada-1".to_owned(), flavor: "h100".to_owned(), nodes: 1, ..Facts::default() };
        assert_eq!(motd(&facts), "ada-1, flavor h100\n");
        let facts = Facts {
            gpus: vec!["H100".to_owned(); 8],
            expires_in: Some(Duration::from_secs(3 * 3600 + 59)),
            image: "Welcome to Debian\n\n".to_owned(),
            ..facts
        };
        let text = "Welcome to Debian\n\nada-1, flavor h100, 8 × H100\n\
                    It ends in 3 h 0 min. For more time: devctl extend ada-1\n";
        assert_eq!(motd(&facts), text);
        let gang = motd(&Facts { nodes: 4, rank: 2, ..facts });
        assert!(gang.contains("Node 2 of 4. On every node: torchrun "), "{gang}");
    }

    #[test]
    fn times_are_said_as_people_do() {
        for (seconds, words) in [(0, "less than a minute"), (60, "1 min"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }
}
