//! What `init` knows about the server, in a form that others read: [`crate::probe`] now, whoever serves people inside
//! the server later. Where it is kept is up to [`directory`].
//!
//! Times are seconds since the start of `init` on the monotonic clock, so nothing depends on what time the node thinks it
//! is.

pub mod directory;
pub mod process;

use std::time::Duration;

use odc_control::Outcome;
use serde::{Deserialize, Serialize};

use crate::state::process::Process;

/// Raised when a reader of the old form would misunderstand the new one.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub version: u32,
    pub init: Process,
    pub phase: Phase,
    pub phase_since: Seconds,
    /// Absent if there is none or it has not begun, here and below.
    pub setup: Option<Run>,
    pub entrypoint: Option<Run>,
    pub pre_stop: Option<Run>,
    /// The last one: it is started again whenever it ends.
    #[serde(default)]
    pub serve: Option<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The setup script runs; the entrypoint waits for its end.
    Setup,
    /// The server is there for its user.
    Running,
    /// It was asked to stop, or its entrypoint ended and takes it along.
    Stopping,
}

/// One run of a script or of the entrypoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub started: Seconds,
    /// Absent while it runs.
    pub ended: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub at: Seconds,
    pub outcome: Outcome,
}

/// To the millisecond: enough to see what took long, and short to read.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Seconds(f64);

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("it is not a state this agent knows: {0}")]
    Unknown(#[from] serde_json::Error),
    #[error("it has version {0}, and this agent knows only {VERSION}")]
    Version(u32),
}

impl State {
    /// The version is looked at first: the rest of another one may mean anything.
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
    pub fn starting(now: Duration) -> Self {
        Self { started: now.into(), ended: None }
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.ended.as_ref().map(|ended| &ended.outcome)
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
                ended: Some(Ended { at: Duration::from_micros(1_234_567).into(), outcome }),
            })
        };
        State {
            version: VERSION,
            init: Process { pid: 1, start_ticks: Some(77) },
            phase: Phase::Stopping,
            phase_since: Duration::from_secs(60).into(),
            setup: run(Outcome::not_found("no shell")),
            entrypoint: run(Outcome::Code(3)),
            pre_stop: run(Outcome::TimedOut),
            serve: Some(Run::starting(Duration::ZERO)),
        }
    }

    #[test]
    fn the_file_says_what_the_documentation_says() {
        let text = r#"{"version":1,"init":{"pid":1,"startTicks":77},"phase":"Stopping","phaseSince":60.0,"#.to_owned()
            + r#""setup":{"started":0.002,"ended":{"at":1.235,"outcome":{"notStarted":{"code":127,"reason":"no shell"}}}},"#
            + r#""entrypoint":{"started":0.002,"ended":{"at":1.235,"outcome":{"code":3}}},"#
            + r#""preStop":{"started":0.002,"ended":{"at":1.235,"outcome":"timedOut"}},"#
            + r#""serve":{"started":0.0,"ended":null}}"#;
        assert_eq!(serde_json::to_string(&full()).unwrap(), text);
        assert_eq!(State::parse(text.as_bytes()).unwrap(), full());
    }

    #[test]
    fn another_version_is_refused_whatever_else_it_says() {
        let error = State::parse(br#"{"version":2,"phase":["new"]}"#).unwrap_err();
        assert!(matches!(error, ParseError::Version(2)), "{error}");
        for text in ["", "{}", "[]", r#"{"version":1}"#, r#"{"version":-1}"#] {
            assert!(matches!(State::parse(text.as_bytes()), Err(ParseError::Unknown(_))), "{text}");
        }
    }

    #[test]
    fn a_newer_agent_may_add_fields() {
        let mut value = serde_json::to_value(full()).unwrap();
        value["later"] = "more".into();
        assert_eq!(State::parse(value.to_string().as_bytes()).unwrap(), full());
    }
}
