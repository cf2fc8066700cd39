//! Activity of the Jupyter server: busy kernels, and kernels with an open browser whose `last_activity` changes.

use std::time::Duration;

use odc_control::Text;
use serde::Deserialize;

/// `last_activity` is a wall-clock time of the Jupyter server; it is only compared for equality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JupyterActivity {
    pub busy_kernels: Option<u32>,
    pub connections: Option<u32>,
    pub active_at: Option<Duration>,
    pub error: Option<Text>,
    last_activity: Option<String>,
}

/// An element of the response of `/api/kernels`.
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
    serde_json::from_slice(body).map_err(|error| format!("unexpected response from Jupyter: {error}"))
}

impl JupyterActivity {
    /// Returns the activity after a new query.
    pub fn update(previous: Option<Self>, kernels: Result<Vec<Kernel>, String>, now: Duration) -> Self {
        let previous = previous.unwrap_or_default();
        let kernels = match kernels {
            Ok(kernels) => kernels,
            Err(error) => {
                let Self { active_at, last_activity, .. } = previous;
                return Self { active_at, last_activity, error: Some(Text::new(error)), ..Self::default() };
            }
        };
        let busy = kernels.iter().filter(|kernel| kernel.execution_state == "busy").count();
        let connections = kernels.iter().fold(0_u32, |sum, kernel| sum.saturating_add(kernel.connections));
        let open = kernels.into_iter().filter(|kernel| kernel.connections > 0);
        let last_activity = open.map(|kernel| kernel.last_activity).max().filter(|last| !last.is_empty());
        let is_active = busy > 0 || (last_activity.is_some() && last_activity != previous.last_activity);
        Self {
            busy_kernels: Some(u32::try_from(busy).unwrap_or(u32::MAX)),
            connections: Some(connections),
            active_at: if is_active { Some(now) } else { previous.active_at },
            error: None,
            last_activity: last_activity.or(previous.last_activity),
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

    /// Updates every 30 seconds and returns which updates were activity.
    fn active(queries: &[Result<Vec<Kernel>, String>]) -> Vec<bool> {
        let mut activity = None;
        let mut active = Vec::new();
        for (number, kernels) in (1..).zip(queries) {
            let now = Duration::from_secs(30 * number);
            let next = JupyterActivity::update(activity, kernels.clone(), now);
            active.push(next.active_at == Some(now));
            activity = Some(next);
        }
        active
    }

    #[test]
    fn busy_kernel_is_active_without_a_browser() {
        assert_eq!(
            active(&[kernels("busy", 0, "a"), kernels("idle", 0, "b"), kernels("busy", 1, "b")]),
            [true, false, true]
        );
    }

    #[test]
    fn open_browser_is_active_only_while_last_activity_changes() {
        let queries =
            [kernels("idle", 1, "a"), kernels("idle", 1, "a"), kernels("idle", 1, "b"), kernels("idle", 1, "b")];
        assert_eq!(active(&queries), [true, false, true, false]);
    }

    #[test]
    fn no_kernels_and_errors_are_not_active() {
        let queries = [Ok(vec![]), Err("refused".to_owned()), kernels("idle", 0, "a")];
        assert_eq!(active(&queries), [false, false, false]);
        let activity = JupyterActivity::update(None, Err("refused".to_owned()), Duration::ZERO);
        assert_eq!(activity.error.as_deref(), Some("refused"));
    }

    proptest! {
        #[test]
        fn arbitrary_body_does_not_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&body);
        }
    }
}
