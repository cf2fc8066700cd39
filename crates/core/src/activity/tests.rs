use std::time::Duration;

use odc_control::{BusyTree, Forwarded, Gpu, IdleAction, JupyterSignal, KeepAlive, Seen, Sessions, Signals};
use proptest::prelude::*;

use super::{Policy, Signal, Verdict, decide, warning};

const LIMIT: u64 = 1800;

fn policy() -> Policy<'static> {
    Policy::all(Duration::from_secs(LIMIT))
}

/// Of an agent that is up for a day and saw nothing.
fn quiet() -> Signals {
    Signals { up_seconds: 86_400, ..Signals::default() }
}

/// The same, but this was seen so long ago.
fn with(signal: Signal, ago: u64) -> Signals {
    let mut signals = quiet();
    see(&mut signals, signal, ago);
    signals
}

fn see(signals: &mut Signals, signal: Signal, ago: u64) {
    let seen = Seen { last_seen_seconds_ago: Some(ago) };
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

fn check(signals: &Signals, expect: &str) {
    assert_eq!(decide(Ok(signals), &policy()).because(), expect);
}

#[test]
fn reasons_can_be_read() {
    check(&with(Signal::TerminalInput, 185), "terminal input 3 min ago");
    check(&with(Signal::TerminalOutput, 5), "terminal output 5 s ago");
    check(&with(Signal::Transfer, 60), "file transfer or command 1 min ago");
    check(&with(Signal::Forwarded, 60), "traffic on forwarded port 8888 1 min ago");
    check(&with(Signal::SessionProcesses, 12), "busy process of a session (python3) 12 s ago");
    check(&with(Signal::EntrypointProcesses, 12), "busy process of the entrypoint (python3) 12 s ago");
    check(&with(Signal::OtherProcesses, 12), "busy process (python3) 12 s ago");
    check(&with(Signal::Gpu, 0), "busy GPU 0 s ago");
    check(&with(Signal::Jupyter, 90), "Jupyter in use 1 min ago");
    check(&with(Signal::Heartbeat, 90), "heartbeat 1 min ago");
    check(&with(Signal::AgentStart, 90), "the server's agent started 1 min ago");
    check(&with(Signal::KeepAlive, 7200), "kept alive for 2 h more");
    check(&with(Signal::TerminalInput, 1860), "no use for 31 min; last: terminal input");
    check(&quiet(), "no use since the server's agent started 1 d ago");
    let verdict = decide(Err("connection refused"), &policy());
    assert_eq!(verdict, Verdict::Unknown { because: "the agent cannot be asked: connection refused".to_owned() });
}

#[test]
fn a_keep_alive_says_why() {
    let keep_alive = Some(KeepAlive { remaining_seconds: 5400, reason: Some("training".into()) });
    check(&Signals { keep_alive, ..quiet() }, "kept alive for 1 h 30 min more: training");
}

#[test]
fn an_untouched_session_does_not_count_and_is_named() {
    let mut signals = with(Signal::TerminalInput, 1860);
    signals.sessions = Sessions { open: 1, last_seen_seconds_ago: Some(0) };
    assert!(decide(Ok(&signals), &policy()).is_idle());
    check(&signals, "no use for 31 min; last: terminal input; a session is open, but nothing happens in it");
    signals.sessions.open = 3;
    assert!(decide(Ok(&signals), &policy()).because().ends_with("; 3 sessions are open, but nothing happens in them"));
}

#[test]
fn loaded_memory_is_not_use() {
    let gpu = Gpu { percent: Some(0), memory_bytes: Some(80 << 30), ..Gpu::default() };
    assert!(decide(Ok(&Signals { gpu: Some(gpu), ..quiet() }), &policy()).is_idle());
}

#[test]
fn every_kind_that_is_seen_counts_until_the_limit_and_not_longer() {
    for signal in Signal::ALL.into_iter().filter(|signal| *signal != Signal::KeepAlive) {
        let verdict = |ago| decide(Ok(&with(signal, ago)), &policy());
        assert!(!verdict(0).is_idle() && !verdict(LIMIT - 1).is_idle(), "{signal:?}");
        assert!(verdict(LIMIT).is_idle(), "{signal:?}");
        let Verdict::Active { last: said, look_again, .. } = verdict(1000) else { panic!("{signal:?}") };
        assert_eq!((said.signal, look_again), (signal, Duration::from_secs(800)));
    }
}

#[test]
fn a_limit_of_part_of_a_second_is_never_too_early() {
    let policy = Policy::all(Duration::from_millis(60_500));
    assert!(!decide(Ok(&with(Signal::TerminalInput, 60)), &policy).is_idle());
    assert!(decide(Ok(&with(Signal::TerminalInput, 61)), &policy).is_idle());
}

#[test]
fn a_keep_alive_holds_to_its_end() {
    let kept = |remaining| decide(Ok(&with(Signal::KeepAlive, remaining)), &policy());
    assert!(matches!(kept(7200), Verdict::Active { look_again, .. } if look_again.as_secs() == 7200));
    assert!(!kept(1).is_idle());
    assert!(kept(0).is_idle());
}

#[test]
fn what_a_policy_leaves_out_does_not_count() {
    let counted = [Signal::TerminalInput];
    let policy = Policy { limit: Duration::from_secs(LIMIT), counted: &counted };
    assert!(decide(Ok(&with(Signal::TerminalOutput, 0)), &policy).is_idle());
    assert!(decide(Ok(&with(Signal::KeepAlive, 60)), &policy).is_idle());
    assert!(!decide(Ok(&with(Signal::TerminalInput, 0)), &policy).is_idle());
    // What cannot be known never counts against the user.
    assert!(!decide(Ok(&with(Signal::AgentStart, 0)), &policy).is_idle());
}

#[test]
fn a_warning_says_what_happens_when_and_how_to_keep_it() {
    let warn = |action| warning("ada-1", action, Duration::from_secs(300), Duration::from_secs(1500));
    let text = warn(IdleAction::Hibernate).unwrap();
    assert!(text.starts_with("ada-1 will be put to sleep in 5 min, because nobody used it for 25 min. "), "{text}");
    assert!(text.ends_with("or run odc-keep-alive.") && warn(IdleAction::End).unwrap().contains("ended in"));
    assert_eq!(warn(IdleAction::None), None);
}

fn signal() -> impl Strategy<Value = Signal> {
    prop::sample::select(&Signal::ALL[..])
}

fn sights() -> impl Strategy<Value = Vec<(Signal, u64)>> {
    prop::collection::vec((signal(), prop_oneof![0..2 * LIMIT, any::<u64>()]), 0..12)
}

fn all(sights: &[(Signal, u64)]) -> Signals {
    let mut signals = quiet();
    for (signal, ago) in sights {
        see(&mut signals, *signal, *ago);
    }
    signals
}

proptest! {
    #[test]
    fn a_counted_signal_within_the_limit_is_never_idle(sights in sights(), signal in signal(), ago in 0..LIMIT) {
        let mut signals = all(&sights);
        // A keep-alive is not seen ago; it lasts.
        see(&mut signals, signal, if signal == Signal::KeepAlive { ago + 1 } else { ago });
        prop_assert!(!decide(Ok(&signals), &policy()).is_idle());
    }

    #[test]
    fn without_one_it_is_idle_exactly_at_the_limit(limit in 1u64..100_000, older in prop::collection::vec((signal(), 0u64..100_000), 0..9)) {
        let older: Vec<_> = older.into_iter().filter(|(signal, _)| *signal != Signal::KeepAlive).collect();
        let policy = Policy::all(Duration::from_secs(limit));
        let mut signals = Signals { up_seconds: u64::MAX, ..Signals::default() };
        for (signal, more) in older {
            see(&mut signals, signal, limit + more);
        }
        prop_assert!(decide(Ok(&signals), &policy).is_idle());
        see(&mut signals, Signal::TerminalInput, limit - 1);
        let verdict = decide(Ok(&signals), &policy);
        prop_assert!(matches!(verdict, Verdict::Active { look_again, .. } if look_again.as_secs() == 1), "{verdict:?}");
    }

    #[test]
    fn no_answer_is_never_idle(why: String, limit: u64) {
        prop_assert!(!decide(Err(&why), &Policy::all(Duration::from_secs(limit))).is_idle());
    }

    #[test]
    fn seeing_something_later_never_makes_it_more_idle(sights in sights(), which: prop::sample::Index, by: u64) {
        prop_assume!(!sights.is_empty());
        let mut later = sights.clone();
        let which = which.index(later.len());
        let (signal, ago) = &mut later[which];
        *ago = if *signal == Signal::KeepAlive { ago.saturating_add(by) } else { ago.saturating_sub(by) };
        let (before, after) = (decide(Ok(&all(&sights)), &policy()), decide(Ok(&all(&later)), &policy()));
        prop_assert!(before.is_idle() || !after.is_idle());
    }

    #[test]
    fn when_the_next_look_is_due_nothing_new_means_idle(sights in sights()) {
        let sights: Vec<_> = sights.into_iter().filter(|(signal, _)| *signal != Signal::KeepAlive).collect();
        if let Verdict::Active { look_again, .. } = decide(Ok(&all(&sights)), &policy()) {
            let aged = |by: u64| -> Vec<_> {
                let sights = [(Signal::AgentStart, 86_400)].iter().chain(&sights);
                sights.map(|(signal, ago)| (*signal, ago.saturating_add(by))).collect()
            };
            prop_assert!(decide(Ok(&all(&aged(look_again.as_secs()))), &policy()).is_idle());
            prop_assert!(!decide(Ok(&all(&aged(look_again.as_secs() - 1))), &policy()).is_idle());
        }
    }
}
