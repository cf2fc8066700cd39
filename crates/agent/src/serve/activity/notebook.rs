//! Whether the notebook server is used: kernels that compute, or that somebody looks at and that did something.

use std::time::Duration;

use odc_control::Text;
use serde::Deserialize;

/// Times of day are the notebook server's own; they are only compared with each other for being the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub busy_kernels: Option<u32>,
    pub connections: Option<u32>,
    pub used_at: Option<Duration>,
    pub error: Option<Text>,
    last_activity: Option<String>,
}

/// From `/api/kernels`.
#[derive(Clone, Debug, Deserialize)]
pub struct Kernel {
    #[serde(default)]
    execution_state: String,
    #[serde(default)]
    connections: u32,
    #[serde(default)]
    last_activity: String,
}

pub fn parse(body: &[u8]) -> Result<Vec<Kernel>, String> {
    serde_json::from_slice(body).map_err(|error| format!("the notebook server's answer cannot be read: {error}"))
}

impl Seen {
    /// What is known after another look.
    pub fn after(before: Option<Self>, kernels: Result<Vec<Kernel>, String>, now: Duration) -> Self {
        let before = before.unwrap_or_default();
        let kernels = match kernels {
            Ok(kernels) => kernels,
            Err(error) => {
                let Self { used_at, last_activity, .. } = before;
                return Self { used_at, last_activity, error: Some(Text::new(error)), ..Self::default() };
            }
        };
        let busy = kernels.iter().filter(|kernel| kernel.execution_state == "busy").count();
        let connections = kernels.iter().fold(0_u32, |sum, kernel| sum.saturating_add(kernel.connections));
        let watched = kernels.into_iter().filter(|kernel| kernel.connections > 0);
        let last_activity = watched.map(|kernel| kernel.last_activity).max().filter(|last| !last.is_empty());
        let used = busy > 0 || (last_activity.is_some() && last_activity != before.last_activity);
        Self {
            busy_kernels: Some(u32::try_from(busy).unwrap_or(u32::MAX)),
            connections: Some(connections),
            used_at: if used { Some(now) } else { before.used_at },
            error: None,
            last_activity: last_activity.or(before.last_activity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kernels(state: &str, connections: u32, last: &str) -> Result<Vec<Kernel>, String> {
        parse(
            format!(
                r#"[{{"id":"x","execution_state":"{state}","connections":{connections},"last_activity":"{last}"}}]"#
            )
            .as_bytes(),
        )
    }

    /// Looks every 30 seconds; says at which looks it was taken for use.
    fn used(looks: &[Result<Vec<Kernel>, String>]) -> Vec<bool> {
        let mut seen = None;
        let mut used = Vec::new();
        for (number, look) in (1..).zip(looks) {
            let now = Duration::from_secs(30 * number);
            let next = Seen::after(seen, look.clone(), now);
            used.push(next.used_at == Some(now));
            seen = Some(next);
        }
        used
    }

    #[test]
    fn a_busy_kernel_is_use_with_or_without_a_browser() {
        assert_eq!(
            used(&[kernels("busy", 0, "a"), kernels("idle", 0, "b"), kernels("busy", 1, "b")]),
            [true, false, true]
        );
    }

    #[test]
    fn an_open_browser_is_use_only_while_something_happens() {
        let looks =
            [kernels("idle", 1, "a"), kernels("idle", 1, "a"), kernels("idle", 1, "b"), kernels("idle", 1, "b")];
        assert_eq!(used(&looks), [true, false, true, false]);
    }

    #[test]
    fn no_kernels_and_no_answer_are_no_use() {
        let looks = [Ok(vec![]), Err("refused".to_owned()), kernels("idle", 0, "a")];
        assert_eq!(used(&looks), [false, false, false]);
        let seen = Seen::after(None, Err("refused".to_owned()), Duration::ZERO);
        assert_eq!(seen.error.as_deref(), Some("refused"));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&body);
        }
    }
}
