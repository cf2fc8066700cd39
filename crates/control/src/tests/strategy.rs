//! Strategies for arbitrary messages.

use proptest::option::of;
use proptest::prelude::*;
use serde_json::Value;

use crate::*;

pub fn one_of_each() -> Vec<Request> {
    vec![
        Request::Signals,
        Request::SetDeadline { remaining_seconds: None, idle: None },
        Request::Notify { kind: NoticeKind::Message, text: None },
        Request::SetAccess(Access::default()),
        Request::Jupyter { on: true },
        Request::Quiesce { within_seconds: 0 },
        Request::Flush { within_seconds: 0 },
        Request::Stats,
        Request::SetIdleStatus { status: Text::default() },
        Request::KeepAlive { seconds: 0, reason: None },
        Request::Heartbeat,
        Request::Status,
    ]
}

/// Boxed, because the value trees of so many nested strategies would not fit on a test's stack.
fn bounded<const MAX_BYTES: usize>() -> BoxedStrategy<Bounded<MAX_BYTES>> {
    prop_oneof!["\\PC{0,40}", any::<String>(), "[a\"\\\\\n\t]{0,300}"].prop_map(Bounded::from).boxed()
}

fn action() -> impl Strategy<Value = IdleAction> {
    prop::sample::select(vec![IdleAction::Hibernate, IdleAction::End, IdleAction::None])
}

fn idle() -> impl Strategy<Value = IdlePolicy> {
    (any::<u64>(), action()).prop_map(|(limit_seconds, action)| IdlePolicy { limit_seconds, action })
}

fn access() -> impl Strategy<Value = Access> {
    let lines = || prop::collection::vec(any::<String>(), 0..4);
    (lines(), lines(), lines()).prop_map(|(keys, user_cas, control_cas)| Access { keys, user_cas, control_cas })
}

pub fn request() -> impl Strategy<Value = Request> {
    let kind = prop::sample::select(vec![NoticeKind::Idle, NoticeKind::Message]);
    prop_oneof![
        prop::sample::select(vec![Request::Signals, Request::Stats, Request::Heartbeat, Request::Status]),
        (of(any::<u64>()), of(idle()))
            .prop_map(|(remaining_seconds, idle)| Request::SetDeadline { remaining_seconds, idle }),
        (kind, of(bounded())).prop_map(|(kind, text)| Request::Notify { kind, text }),
        access().prop_map(Request::SetAccess),
        any::<bool>().prop_map(|on| Request::Jupyter { on }),
        any::<u64>().prop_map(|within_seconds| Request::Quiesce { within_seconds }),
        any::<u64>().prop_map(|within_seconds| Request::Flush { within_seconds }),
        bounded().prop_map(|status| Request::SetIdleStatus { status }),
        (any::<u64>(), of(bounded())).prop_map(|(seconds, reason)| Request::KeepAlive { seconds, reason }),
    ]
}

fn seen() -> impl Strategy<Value = LastSeen> {
    of(any::<u64>()).prop_map(|last_seen_seconds_ago| LastSeen { last_seen_seconds_ago })
}

fn tree() -> impl Strategy<Value = BusyTree> {
    (of(any::<u64>()), of(bounded()))
        .prop_map(|(last_seen_seconds_ago, process)| BusyTree { last_seen_seconds_ago, process })
}

fn gpu() -> impl Strategy<Value = Gpu> {
    (of(any::<u32>()), of(any::<u64>()), of(any::<u64>()), of(bounded())).prop_map(
        |(percent, memory_bytes, last_seen_seconds_ago, error)| Gpu {
            percent,
            memory_bytes,
            last_seen_seconds_ago,
            error,
        },
    )
}

fn jupyter_signal() -> impl Strategy<Value = JupyterSignal> {
    (of(any::<u32>()), of(any::<u32>()), of(any::<u64>()), of(bounded())).prop_map(
        |(busy_kernels, connections, last_seen_seconds_ago, error)| JupyterSignal {
            busy_kernels,
            connections,
            last_seen_seconds_ago,
            error,
        },
    )
}

fn forwarded() -> impl Strategy<Value = Forwarded> {
    (any::<u16>(), any::<u64>(), of(any::<u64>())).prop_map(|(port, bytes, last_seen_seconds_ago)| Forwarded {
        port,
        bytes,
        last_seen_seconds_ago,
    })
}

fn signals() -> BoxedStrategy<Signals> {
    let ids = (bounded(), bounded(), any::<u64>(), any::<u64>());
    let activity = (any::<u32>(), of(any::<u64>()), seen(), seen(), seen(), seen());
    let keep_alive =
        (any::<u64>(), of(bounded())).prop_map(|(remaining_seconds, reason)| KeepAlive { remaining_seconds, reason });
    let machine = (
        prop::collection::vec(forwarded(), 0..4),
        (tree(), tree(), tree()),
        of(gpu()),
        of(jupyter_signal()),
        of(keep_alive),
    );
    (ids.boxed(), activity.boxed(), machine.boxed())
        .prop_map(|(ids, activity, machine)| {
            let (agent_boot_id, container_boot_id, up_seconds, oom_kills) = ids;
            let (open, last_seen_seconds_ago, terminal_input, terminal_output, transfer, heartbeat) = activity;
            let (forwarded, (sessions, entrypoint, others), gpu, jupyter, keep_alive) = machine;
            Signals {
                agent_boot_id,
                container_boot_id,
                up_seconds,
                sessions: Sessions { open, last_seen_seconds_ago },
                terminal_input,
                terminal_output,
                transfer,
                forwarded,
                busy: Busy { sessions, entrypoint, others },
                gpu,
                jupyter,
                keep_alive,
                heartbeat,
                oom_kills,
            }
        })
        .boxed()
}

fn jupyter() -> BoxedStrategy<Jupyter> {
    let states = vec![
        JupyterState::Off,
        JupyterState::Starting,
        JupyterState::Running,
        JupyterState::Restarting,
        JupyterState::Absent,
    ];
    (prop::sample::select(states), of(any::<u16>()), of(bounded()), of(bounded()), of(bounded()))
        .prop_map(|(state, port, path, token, error)| Jupyter { state, port, path, token, error })
        .boxed()
}

fn quiesced() -> impl Strategy<Value = Quiesced> {
    let outcome = prop_oneof![
        any::<i32>().prop_map(Outcome::Code),
        any::<i32>().prop_map(Outcome::Signal),
        Just(Outcome::TimedOut),
        (any::<i32>(), bounded()).prop_map(|(code, reason)| Outcome::NotStarted { code, reason }),
    ];
    (of(outcome), of(bounded()), any::<bool>(), of(bounded()), of(home())).prop_map(
        |(pre_stop, pre_stop_log, synced, sync_error, home)| Quiesced {
            pre_stop,
            pre_stop_log,
            synced,
            sync_error,
            home,
        },
    )
}

fn home() -> impl Strategy<Value = HomeContent> {
    let listing = prop::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| CompressedListing::test(&bytes));
    (any::<u64>(), any::<u64>(), listing).prop_map(|(used_bytes, files, listing)| HomeContent {
        used_bytes,
        files,
        listing,
    })
}

fn flushed() -> impl Strategy<Value = Flushed> {
    (any::<bool>(), of(bounded()), of(home())).prop_map(|(synced, sync_error, home)| Flushed {
        synced,
        sync_error,
        home,
    })
}

fn stats() -> impl Strategy<Value = Stats> {
    (bounded(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
        |(version, up_seconds, memory_bytes, cpu_milliseconds, open_files, sessions)| Stats {
            version,
            up_seconds,
            memory_bytes,
            cpu_milliseconds,
            open_files,
            sessions,
        },
    )
}

fn status() -> BoxedStrategy<Status> {
    let names = (bounded(), bounded(), bounded());
    let times = (of(any::<u64>()), of(idle()), of(bounded()), of(any::<u64>()));
    (names, times, prop::collection::vec(bounded(), 0..3), jupyter(), signals())
        .prop_map(|(names, times, notices, jupyter, signals)| {
            let (server, owner, flavor) = names;
            let (remaining_seconds, idle, idle_status, idle_status_seconds_ago) = times;
            Status {
                server,
                owner,
                flavor,
                remaining_seconds,
                idle,
                idle_status,
                idle_status_seconds_ago,
                notices,
                jupyter,
                signals,
            }
        })
        .boxed()
}

pub fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::Done),
        bounded().prop_map(|reason| Reply::Refused { reason }),
        prop::collection::vec(bounded(), 0..3).prop_map(|invalid| Reply::AccessSet { invalid }),
        signals().prop_map(|signals| Reply::Signals(Box::new(signals))),
        jupyter().prop_map(Reply::Jupyter),
        quiesced().prop_map(|quiesced| Reply::Quiesced(Box::new(quiesced))),
        flushed().prop_map(|flushed| Reply::Flushed(Box::new(flushed))),
        stats().prop_map(Reply::Stats),
        status().prop_map(|status| Reply::Status(Box::new(status))),
    ]
}

pub fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let field = prop_oneof!["[a-z]{1,6}", Just("withinSeconds".to_owned()), Just("keys".to_owned())];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(field.clone(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
