use std::time::Duration;

use odc_control::{BusyTree, Forwarded, Gpu, JupyterSignal, KeepAlive, LastSeen, Sessions, Signals, duration};
use proptest::prelude::*;

use super::{DetectionPolicy, Signal, Verdict, evaluate};

const TIMEOUT: u64 = 1800;

fn policy() -> DetectionPolicy<'static> {
    DetectionPolicy::all(Duration::from_secs(TIMEOUT))
}

/// Signals of an agent that was started a day ago and observed nothing.
fn inactive() -> Signals {
    Signals { up_seconds: 86_400, ..Signals::default() }
}

/// As [`inactive`], with one signal `ago` seconds ago.
fn with(signal: Signal, ago: u64) -> Signals {
    let mut signals = inactive();
    set(&mut signals, signal, ago);
    signals
}

fn set(signals: &mut Signals, signal: Signal, ago: u64) {
    let seen = LastSeen { last_seen_seconds_ago: Some(ago) };
    let tree = BusyTree { last_seen_seconds_ago: Some(ago), process: Some("python3".into()) };
    let last_seen_seconds_ago = Some(ago);
    match signal {
        Signal::TerminalInput => signals.terminal_input = seen,
        Signal::TerminalOutput => signals.terminal_output = seen,
        Signal::Transfer => signals.transfer = seen,
        Signal::Forwarded => signals.forwarded.push(Forwarded { port: 8888, bytes: 1, last_seen_seconds_ago }),
        Signal::SessionProcesses => signals.busy.sessions = tree,
        Signal::EntrypointProcesses => signals.busy.entrypoint = tree,
        Signal::OtherProcesses => signals.busy.others = tree,
        Signal::Gpu => signals.gpu = Some(Gpu { last_seen_seconds_ago, ..Gpu::default() }),
        Signal::Jupyter => signals.jupyter = Some(JupyterSignal { last_seen_seconds_ago, ..JupyterSignal::default() }),
        Signal::KeepAlive => signals.keep_alive = Some(KeepAlive { remaining_seconds: ago, reason: None }),
        Signal::Heartbeat => signals.heartbeat = seen,
        Signal::AgentStart => signals.up_seconds = ago,
    }
}

impl Verdict {
    fn is_idle(&self) -> bool {
        matches!(self, Self::Idle { .. })
    }

    fn idle_reason(&self) -> &str {
        match self {
            Self::Idle { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// `{}` in `expect` stands for the duration of so many seconds.
fn check(signals: &Signals, expect: &str, seconds: u64) {
    assert_eq!(evaluate(Some(signals), &policy()).idle_reason(), expect.replace("{}", &duration::format(seconds)));
}

#[test]
fn idle_reason_names_last_activity() {
    for (signal, description) in [
        (Signal::TerminalInput, "terminal input"),
        (Signal::TerminalOutput, "terminal output"),
        (Signal::Transfer, "file transfer or command"),
        (Signal::Forwarded, "traffic on forwarded port 8888"),
        (Signal::SessionProcesses, "busy process of a session (python3)"),
        (Signal::EntrypointProcesses, "busy process of the entrypoint (python3)"),
        (Signal::OtherProcesses, "busy process (python3)"),
        (Signal::Gpu, "busy GPU"),
        (Signal::Jupyter, "Jupyter activity"),
        (Signal::Heartbeat, "heartbeat"),
    ] {
        check(&with(signal, 1860), &format!("no activity for {{}}; last: {description}"), 1860);
    }
    check(&inactive(), "no activity since the agent started {} ago", 86_400);
}

#[test]
fn verdict_without_signals_is_unknown() {
    assert_eq!(evaluate(None, &policy()), Verdict::Unknown);
}

#[test]
fn open_session_without_activity_does_not_count() {
    let mut signals = with(Signal::TerminalInput, 1860);
    signals.sessions = Sessions { open: 1, last_seen_seconds_ago: Some(0) };
    assert!(evaluate(Some(&signals), &policy()).is_idle());
    check(&signals, "no activity for {}; last: terminal input; 1 open session without activity", 1860);
    signals.sessions.open = 3;
    assert!(evaluate(Some(&signals), &policy()).idle_reason().ends_with("; 3 open sessions without activity"));
}

#[test]
fn allocated_gpu_memory_is_not_activity() {
    let gpu = Gpu { percent: Some(0), memory_bytes: Some(80 << 30), ..Gpu::default() };
    assert!(evaluate(Some(&Signals { gpu: Some(gpu), ..inactive() }), &policy()).is_idle());
}

#[test]
fn every_signal_counts_until_timeout() {
    for signal in Signal::ALL.into_iter().filter(|signal| *signal != Signal::KeepAlive) {
        let verdict = |ago| evaluate(Some(&with(signal, ago)), &policy());
        assert!(!verdict(0).is_idle() && !verdict(TIMEOUT - 1).is_idle(), "{signal:?}");
        assert!(verdict(TIMEOUT).is_idle(), "{signal:?}");
        let Verdict::Active { last, next_check, .. } = verdict(1000) else { panic!("{signal:?}") };
        assert_eq!((last.signal, next_check), (signal, Duration::from_secs(800)));
    }
}

#[test]
fn fractional_timeout_is_not_shortened() {
    let policy = DetectionPolicy::all(Duration::from_millis(60_500));
    assert!(!evaluate(Some(&with(Signal::TerminalInput, 60)), &policy).is_idle());
    assert!(evaluate(Some(&with(Signal::TerminalInput, 61)), &policy).is_idle());
}

#[test]
fn keep_alive_lasts_until_its_end() {
    let keep_alive = |remaining| evaluate(Some(&with(Signal::KeepAlive, remaining)), &policy());
    assert!(matches!(keep_alive(7200), Verdict::Active { next_check, .. } if next_check.as_secs() == 7200));
    assert!(!keep_alive(1).is_idle());
    assert!(keep_alive(0).is_idle());
}

#[test]
fn signals_excluded_by_policy_do_not_count() {
    let counted = [Signal::TerminalInput];
    let policy = DetectionPolicy { timeout: Duration::from_secs(TIMEOUT), counted: &counted };
    assert!(evaluate(Some(&with(Signal::TerminalOutput, 0)), &policy).is_idle());
    assert!(evaluate(Some(&with(Signal::KeepAlive, 60)), &policy).is_idle());
    assert!(!evaluate(Some(&with(Signal::TerminalInput, 0)), &policy).is_idle());
    // The start of the agent always counts.
    assert!(!evaluate(Some(&with(Signal::AgentStart, 0)), &policy).is_idle());
}

fn signal() -> impl Strategy<Value = Signal> {
    prop::sample::select(&Signal::ALL[..])
}

fn observations() -> impl Strategy<Value = Vec<(Signal, u64)>> {
    prop::collection::vec((signal(), prop_oneof![0..2 * TIMEOUT, any::<u64>()]), 0..12)
}

fn all(observations: &[(Signal, u64)]) -> Signals {
    let mut signals = inactive();
    for (signal, ago) in observations {
        set(&mut signals, *signal, *ago);
    }
    signals
}

proptest! {
    #[test]
    fn server_with_signal_within_timeout_is_not_idle(observations in observations(), signal in signal(), ago in 0..TIMEOUT) {
        let mut signals = all(&observations);
        // A keep-alive has a remaining time.
        set(&mut signals, signal, if signal == Signal::KeepAlive { ago + 1 } else { ago });
        prop_assert!(!evaluate(Some(&signals), &policy()).is_idle());
    }

    #[test]
    fn server_without_signal_is_idle_exactly_at_timeout(timeout in 1u64..100_000, older in prop::collection::vec((signal(), 0u64..100_000), 0..9)) {
        let older: Vec<_> = older.into_iter().filter(|(signal, _)| *signal != Signal::KeepAlive).collect();
        let policy = DetectionPolicy::all(Duration::from_secs(timeout));
        let mut signals = Signals { up_seconds: u64::MAX, ..Signals::default() };
        for (signal, more) in older {
            set(&mut signals, signal, timeout + more);
        }
        prop_assert!(evaluate(Some(&signals), &policy).is_idle());
        set(&mut signals, Signal::TerminalInput, timeout - 1);
        let verdict = evaluate(Some(&signals), &policy);
        prop_assert!(matches!(verdict, Verdict::Active { next_check, .. } if next_check.as_secs() == 1), "{verdict:?}");
    }

    #[test]
    fn unreachable_agent_is_not_idle(timeout: u64) {
        prop_assert!(!evaluate(None, &DetectionPolicy::all(Duration::from_secs(timeout))).is_idle());
    }

    #[test]
    fn newer_signal_never_makes_server_idle(observations in observations(), which: prop::sample::Index, by: u64) {
        prop_assume!(!observations.is_empty());
        let mut later = observations.clone();
        let which = which.index(later.len());
        let (signal, ago) = &mut later[which];
        *ago = if *signal == Signal::KeepAlive { ago.saturating_add(by) } else { ago.saturating_sub(by) };
        let (before, after) = (evaluate(Some(&all(&observations)), &policy()), evaluate(Some(&all(&later)), &policy()));
        prop_assert!(before.is_idle() || !after.is_idle());
    }

    #[test]
    fn server_without_new_signal_is_idle_at_next_check(observations in observations()) {
        let observations: Vec<_> = observations.into_iter().filter(|(signal, _)| *signal != Signal::KeepAlive).collect();
        if let Verdict::Active { next_check, .. } = evaluate(Some(&all(&observations)), &policy()) {
            let aged = |by: u64| -> Vec<_> {
                let observations = [(Signal::AgentStart, 86_400)].iter().chain(&observations);
                observations.map(|(signal, ago)| (*signal, ago.saturating_add(by))).collect()
            };
            prop_assert!(evaluate(Some(&all(&aged(next_check.as_secs()))), &policy()).is_idle());
            prop_assert!(!evaluate(Some(&all(&aged(next_check.as_secs() - 1))), &policy()).is_idle());
        }
    }
}
