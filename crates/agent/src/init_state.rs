//! The state of `init` as a JSON file, read by [`crate::probe`] and `serve`. [`directory`] locates the file.
//!
//! Times are seconds since the start of `init` on the monotonic clock, so nothing depends on the wall clock.

pub mod directory;

use std::time::Duration;

use odc_control::Outcome;
use serde::{Deserialize, Serialize};

use crate::process_id::ProcessId;

/// Incremented when the format changes incompatibly.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub version: u32,
    pub init: ProcessId,
    pub phase: Phase,
    pub phase_since: Seconds,
    /// Absent if not configured or not started yet; likewise below.
    #[serde(default)]
    pub startup_files: Option<Run>,
    pub setup: Option<Run>,
    pub entrypoint: Option<Run>,
    pub pre_stop: Option<Run>,
    /// The latest run; `serve` is restarted whenever it exits.
    #[serde(default)]
    pub serve: Option<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Startup files are created and the setup script runs; the entrypoint is started after it.
    Setup,
    /// Setup has finished.
    Running,
    /// A stop was requested, or the entrypoint exited and `--entrypoint-exit=stop` is set.
    Stopping,
}

/// One run of a script, of the entrypoint or of `serve`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub started: Seconds,
    /// Absent while it runs.
    pub ended: Option<Exit>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    pub at: Seconds,
    pub outcome: Outcome,
}

/// Seconds with millisecond precision.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Seconds(f64);

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("invalid state: {0}")]
    Invalid(#[from] serde_json::Error),
    #[error("unsupported version {0}; expected {VERSION}")]
    Version(u32),
}

impl State {
    /// Checks the version first, because the other fields depend on it.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(ParseError::Version(version));
        }
        Ok(serde_json::from_slice(text)?)
    }
}

impl Run {
    pub fn started_at(now: Duration) -> Self {
        Self { started: now.into(), ended: None }
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.ended.as_ref().map(|exit| &exit.outcome)
    }
}

impl From<Duration> for Seconds {
    fn from(since_start: Duration) -> Self {
        Self((since_start.as_secs_f64() * 1000.0).round() / 1000.0)
    }
}

impl Seconds {
    pub fn as_f64(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> State {
        let run = |outcome| {
            Some(Run {
                started: Duration::from_millis(2).into(),
                ended: Some(Exit { at: Duration::from_micros(1_234_567).into(), outcome }),
            })
        };
        State {
            version: VERSION,
            init: ProcessId { pid: 1, start_ticks: Some(77) },
            phase: Phase::Stopping,
            phase_since: Duration::from_secs(60).into(),
            startup_files: run(Outcome::Code(0)),
            setup: run(Outcome::not_found("no shell")),
            entrypoint: run(Outcome::Code(3)),
            pre_stop: run(Outcome::TimedOut),
            serve: Some(Run::started_at(Duration::ZERO)),
        }
    }

    #[test]
    fn state_json_format_is_stable() {
        let text = r#"{"version":1,"init":{"pid":1,"startTicks":77},"phase":"Stopping","phaseSince":60.0,"#.to_owned()
            + r#""startupFiles":{"started":0.002,"ended":{"at":1.235,"outcome":{"code":0}}},"#
            + r#""setup":{"started":0.002,"ended":{"at":1.235,"outcome":{"notStarted":{"code":127,"reason":"no shell"}}}},"#
            + r#""entrypoint":{"started":0.002,"ended":{"at":1.235,"outcome":{"code":3}}},"#
            + r#""preStop":{"started":0.002,"ended":{"at":1.235,"outcome":"timedOut"}},"#
            + r#""serve":{"started":0.0,"ended":null}}"#;
        assert_eq!(serde_json::to_string(&full()).unwrap(), text);
        assert_eq!(State::parse(text.as_bytes()).unwrap(), full());
    }

    #[test]
    fn unsupported_version_is_rejected_before_other_fields() {
        let error = State::parse(br#"{"version":2,"phase":["new"]}"#).unwrap_err();
        assert!(matches!(error, ParseError::Version(2)), "{error}");
        for text in ["", "{}", "[]", r#"{"version":1}"#, r#"{"version":-1}"#] {
            assert!(matches!(State::parse(text.as_bytes()), Err(ParseError::Invalid(_))), "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let mut value = serde_json::to_value(full()).unwrap();
        value["later"] = "more".into();
        assert_eq!(State::parse(value.to_string().as_bytes()).unwrap(), full());
    }
}
