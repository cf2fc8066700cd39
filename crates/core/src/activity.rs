//! Whether anybody uses a server, from what its agent saw.
//!
//! A signal says how long ago it was last seen. The newest of those that count decides: seen within the limit, the
//! server is in use; not since, it is idle. What the agent cannot know does not count against the user: one that does
//! not answer, or started a moment ago, makes nobody idle.
//!
//! An open session alone does not count. A laptop left on would hold eight GPUs for ever; whoever works types, or waits
//! for something that prints, computes or talks.

use std::time::Duration;

use odc_control::{IdleAction, Signals, span};

/// Something that was seen, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Somebody typed.
    TerminalInput,
    /// Something was printed, by `make` as well as by `top`.
    TerminalOutput,
    /// Files were copied, or bytes went to or from a command without a terminal.
    Transfer,
    /// Bytes went to or from a port of the server.
    Forwarded,
    /// A process that a session left or still has used the CPU.
    SessionProcesses,
    /// The image's own program did.
    EntrypointProcesses,
    /// Another one did, such as one that `kubectl exec` brought in.
    OtherProcesses,
    /// A GPU computed. Memory alone does not count: what is loaded and waits is not in use.
    Gpu,
    /// A kernel computed, or did something while somebody looked at it.
    Jupyter,
    /// The user said so, for a time.
    KeepAlive,
    /// Somebody who sees more than the agent said so.
    Heartbeat,
    /// The agent started; it knows of nothing older. Counts always.
    AgentStart,
}

impl Signal {
    pub const ALL: [Self; 12] = [
        Self::TerminalInput,
        Self::TerminalOutput,
        Self::Transfer,
        Self::Forwarded,
        Self::SessionProcesses,
        Self::EntrypointProcesses,
        Self::OtherProcesses,
        Self::Gpu,
        Self::Jupyter,
        Self::KeepAlive,
        Self::Heartbeat,
        Self::AgentStart,
    ];
}

/// What was seen last, without anything that changes from one look to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    pub signal: Signal,
    /// Of the server, if it was a port that carried data.
    pub port: Option<u16>,
}

impl From<Signal> for Last {
    fn from(signal: Signal) -> Self {
        Self { signal, port: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// A server is idle once nothing that counts was seen for so long.
    pub limit: Duration,
    pub counted: &'a [Signal],
}

impl Policy<'static> {
    pub fn all(limit: Duration) -> Self {
        Self { limit, counted: &Signal::ALL }
    }
}

/// Each with its reason, as half a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In use. Without anything new, it will be idle after `look_again` and not before.
    Active { last: Last, look_again: Duration, because: String },
    /// Not used since `last` was seen, so long ago.
    Idle { last: Last, ago: Duration, because: String },
    /// Nobody can tell, so it is not idle.
    Unknown { because: String },
}

impl Verdict {
    pub fn is_idle(&self) -> bool {
        matches!(self, Self::Idle { .. })
    }

    pub fn because(&self) -> &str {
        match self {
            Self::Active { because, .. } | Self::Idle { because, .. } | Self::Unknown { because } => because,
        }
    }
}

/// Takes what the agent answered, or why it did not.
pub fn decide(answer: Result<&Signals, &str>, policy: &Policy<'_>) -> Verdict {
    let signals = match answer {
        Ok(signals) => signals,
        Err(why) => return Verdict::Unknown { because: format!("the agent cannot be asked: {why}") },
    };
    let newest = newest(signals, policy.counted);
    let ago = Duration::from_secs(newest.ago);
    let rest = policy.limit.saturating_sub(ago);
    if let Some((kept, because)) = kept_alive(signals, policy.counted) {
        return Verdict::Active { last: Signal::KeepAlive.into(), look_again: kept.max(rest), because };
    }
    if rest.is_zero() {
        Verdict::Idle { last: newest.last, ago, because: unused(&newest, signals) }
    } else {
        let because = format!("{} {} ago", newest.what, span::text(newest.ago));
        Verdict::Active { last: newest.last, look_again: rest, because }
    }
}

/// What people in an idle server are told before it is stopped, and how to keep it.
pub fn warning(server: &str, action: IdleAction, left: Duration, idle: Duration) -> Option<String> {
    let fate = match action {
        IdleAction::Hibernate => "put to sleep",
        IdleAction::End => "ended",
        IdleAction::None => return None,
    };
    let (left, idle) = (span::text(left.as_secs()), span::text(idle.as_secs()));
    Some(format!(
        "{server} will be {fate} in {left}, because nobody used it for {idle}. Any use keeps it: type something, or run \
         odc-keep-alive."
    ))
}

/// Something that was seen.
struct Sighting {
    ago: u64,
    last: Last,
    what: String,
}

/// Of what counts; there is always one.
fn newest(signals: &Signals, counted: &[Signal]) -> Sighting {
    let what = "the server's agent started".to_owned();
    let start = Sighting { ago: signals.up_seconds, last: Signal::AgentStart.into(), what };
    let seen = sightings(signals).into_iter().filter(|sighting| counted.contains(&sighting.last.signal));
    // Of two of the same age, the one that tells more: the earlier kind.
    seen.min_by_key(|sighting| (sighting.ago, sighting.last.signal))
        .filter(|seen| seen.ago <= start.ago)
        .unwrap_or(start)
}

/// Destructured in full, so that a signal that is added must be thought about here.
fn sightings(signals: &Signals) -> Vec<Sighting> {
    let Signals {
        agent_boot: _,
        container_boot: _,
        up_seconds: _,
        sessions: _,
        terminal_input,
        terminal_output,
        transfer,
        forwarded,
        busy,
        gpu,
        jupyter,
        keep_alive: _,
        heartbeat,
        oom_kills: _,
    } = signals;
    let mut all = Vec::new();
    for port in forwarded {
        let (number, what) = match port.port {
            0 => (None, "traffic on a forwarded socket".to_owned()),
            number => (Some(number), format!("traffic on forwarded port {number}")),
        };
        let last = Last { signal: Signal::Forwarded, port: number };
        all.extend(port.last_seen_seconds_ago.map(|ago| Sighting { ago, last, what }));
    }
    let mut add = |ago: Option<u64>, signal: Signal, what: String| {
        all.extend(ago.map(|ago| Sighting { ago, last: signal.into(), what }));
    };
    add(terminal_input.last_seen_seconds_ago, Signal::TerminalInput, "terminal input".to_owned());
    add(terminal_output.last_seen_seconds_ago, Signal::TerminalOutput, "terminal output".to_owned());
    add(transfer.last_seen_seconds_ago, Signal::Transfer, "file transfer or command".to_owned());
    for (tree, signal, whose) in [
        (&busy.sessions, Signal::SessionProcesses, "busy process of a session"),
        (&busy.entrypoint, Signal::EntrypointProcesses, "busy process of the entrypoint"),
        (&busy.others, Signal::OtherProcesses, "busy process"),
    ] {
        let name = tree.process.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        add(tree.last_seen_seconds_ago, signal, format!("{whose}{name}"));
    }
    if let Some(gpu) = gpu {
        add(gpu.last_seen_seconds_ago, Signal::Gpu, "busy GPU".to_owned());
    }
    if let Some(jupyter) = jupyter {
        add(jupyter.last_seen_seconds_ago, Signal::Jupyter, "Jupyter in use".to_owned());
    }
    add(heartbeat.last_seen_seconds_ago, Signal::Heartbeat, "heartbeat".to_owned());
    all
}

/// For how long yet, and why.
fn kept_alive(signals: &Signals, counted: &[Signal]) -> Option<(Duration, String)> {
    let kept = signals.keep_alive.as_ref().filter(|kept| kept.remaining_seconds > 0)?;
    if !counted.contains(&Signal::KeepAlive) {
        return None;
    }
    let reason = kept.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let because = format!("kept alive for {} more{reason}", span::text(kept.remaining_seconds));
    Some((Duration::from_secs(kept.remaining_seconds), because))
}

fn unused(newest: &Sighting, signals: &Signals) -> String {
    let ago = span::text(newest.ago);
    let untouched = match signals.sessions.open {
        0 => String::new(),
        1 => "; a session is open, but nothing happens in it".to_owned(),
        open => format!("; {open} sessions are open, but nothing happens in them"),
    };
    match newest.last.signal {
        Signal::AgentStart => format!("no use since the server's agent started {ago} ago{untouched}"),
        _ => format!("no use for {ago}; last: {}{untouched}", newest.what),
    }
}

#[cfg(test)]
mod tests;
