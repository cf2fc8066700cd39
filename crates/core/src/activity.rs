//! Idle detection from the activity signals of an agent.
//!
//! A server is active if any counted signal was observed within the idle timeout, and idle otherwise. Missing information
//! never makes a server idle: not an agent that does not answer, and not one that was started recently.
//!
//! An open session alone does not count as activity, because an unattended client would keep the devices allocated. A user
//! at work causes terminal input, or runs something that prints, computes or transfers data.

use std::time::Duration;

use odc_control::{Signals, duration};

/// The kind of an activity signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    TerminalInput,
    /// Output of any program, including `top`.
    TerminalOutput,
    /// File transfers, and input or output of commands without a terminal.
    Transfer,
    /// Traffic on a forwarded port or socket.
    Forwarded,
    /// CPU usage of a process started from a session.
    SessionProcesses,
    /// CPU usage of the image's entrypoint.
    EntrypointProcesses,
    /// CPU usage of another process, such as one of `kubectl exec`.
    OtherProcesses,
    /// GPU utilization. Allocated memory alone does not count.
    Gpu,
    /// A busy kernel, or activity of a kernel with an open connection.
    Jupyter,
    /// Requested by the user for a limited time.
    KeepAlive,
    /// Reported from outside the server.
    Heartbeat,
    /// The start of the agent, which has no older observations. Always counts.
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

/// The most recent activity, without its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastActivity {
    pub signal: Signal,
    /// The port of the server, for traffic on a forwarded port.
    pub port: Option<u16>,
}

impl From<Signal> for LastActivity {
    fn from(signal: Signal) -> Self {
        Self { signal, port: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct DetectionPolicy<'a> {
    /// The idle timeout.
    pub timeout: Duration,
    pub counted: &'a [Signal],
}

impl DetectionPolicy<'static> {
    pub fn all(timeout: Duration) -> Self {
        Self { timeout, counted: &Signal::ALL }
    }
}

/// The result of idle detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Without new activity, the server becomes idle after `next_check`.
    Active { last: LastActivity, next_check: Duration },
    /// `ago` is the time since the last activity, `reason` a text for users.
    Idle { last: LastActivity, ago: Duration, reason: String },
    /// There are no signals. Not treated as idle.
    Unknown,
}

/// Evaluates the signals of an agent, if it answered.
pub fn evaluate(signals: Option<&Signals>, policy: &DetectionPolicy<'_>) -> Verdict {
    let Some(signals) = signals else { return Verdict::Unknown };
    let newest = newest(signals, policy.counted);
    let ago = Duration::from_secs(newest.ago);
    let remaining = policy.timeout.saturating_sub(ago);
    if let Some(keep_alive) = keep_alive(signals, policy.counted) {
        return Verdict::Active { last: Signal::KeepAlive.into(), next_check: keep_alive.max(remaining) };
    }
    if remaining.is_zero() {
        Verdict::Idle { last: newest.last, ago, reason: idle_reason(&newest, signals) }
    } else {
        Verdict::Active { last: newest.last, next_check: remaining }
    }
}

struct Observation {
    /// Seconds ago.
    ago: u64,
    last: LastActivity,
    description: String,
}

/// Returns the newest observation of a counted signal, or the start of the agent.
fn newest(signals: &Signals, counted: &[Signal]) -> Observation {
    let description = "start of the agent".to_owned();
    let start = Observation { ago: signals.up_seconds, last: Signal::AgentStart.into(), description };
    let counted = observations(signals).into_iter().filter(|observation| counted.contains(&observation.last.signal));
    // Ties are resolved by the order of the signals, the most specific first.
    counted
        .min_by_key(|observation| (observation.ago, observation.last.signal))
        .filter(|newest| newest.ago <= start.ago)
        .unwrap_or(start)
}

/// Destructures the signals, so that a new field must be handled here.
fn observations(signals: &Signals) -> Vec<Observation> {
    let Signals {
        agent_boot_id: _,
        container_boot_id: _,
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
        let (number, description) = match port.port {
            0 => (None, "traffic on a forwarded socket".to_owned()),
            number => (Some(number), format!("traffic on forwarded port {number}")),
        };
        let last = LastActivity { signal: Signal::Forwarded, port: number };
        all.extend(port.last_seen_seconds_ago.map(|ago| Observation { ago, last, description }));
    }
    let mut add = |ago: Option<u64>, signal: Signal, description: String| {
        all.extend(ago.map(|ago| Observation { ago, last: signal.into(), description }));
    };
    add(terminal_input.last_seen_seconds_ago, Signal::TerminalInput, "terminal input".to_owned());
    add(terminal_output.last_seen_seconds_ago, Signal::TerminalOutput, "terminal output".to_owned());
    add(transfer.last_seen_seconds_ago, Signal::Transfer, "file transfer or command".to_owned());
    for (tree, signal, description) in [
        (&busy.sessions, Signal::SessionProcesses, "busy process of a session"),
        (&busy.entrypoint, Signal::EntrypointProcesses, "busy process of the entrypoint"),
        (&busy.others, Signal::OtherProcesses, "busy process"),
    ] {
        let name = tree.process.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        add(tree.last_seen_seconds_ago, signal, format!("{description}{name}"));
    }
    if let Some(gpu) = gpu {
        add(gpu.last_seen_seconds_ago, Signal::Gpu, "busy GPU".to_owned());
    }
    if let Some(jupyter) = jupyter {
        add(jupyter.last_seen_seconds_ago, Signal::Jupyter, "Jupyter activity".to_owned());
    }
    add(heartbeat.last_seen_seconds_ago, Signal::Heartbeat, "heartbeat".to_owned());
    all
}

/// Returns the remaining time of a keep-alive.
fn keep_alive(signals: &Signals, counted: &[Signal]) -> Option<Duration> {
    let keep_alive = signals.keep_alive.as_ref().filter(|keep_alive| keep_alive.remaining_seconds > 0)?;
    counted.contains(&Signal::KeepAlive).then(|| Duration::from_secs(keep_alive.remaining_seconds))
}

fn idle_reason(newest: &Observation, signals: &Signals) -> String {
    let ago = duration::format(newest.ago);
    let sessions = match signals.sessions.open {
        0 => String::new(),
        1 => "; 1 open session without activity".to_owned(),
        open => format!("; {open} open sessions without activity"),
    };
    match newest.last.signal {
        Signal::AgentStart => format!("no activity since the agent started {ago} ago{sessions}"),
        _ => format!("no activity for {ago}; last: {}{sessions}", newest.description),
    }
}

#[cfg(test)]
mod tests;
