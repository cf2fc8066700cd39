//! Whether a running server is to be stopped because nobody uses it.
//!
//! Its agents are asked when it could be idle at the earliest, which is about once in its idle timeout. If nobody uses it,
//! the condition Idle is stored, people in the server are warned, and after a grace the agents are asked again: only if
//! nothing that counts was seen since the warning is the server stopped. An answer is never older than [`FRESH`] when
//! something is stopped for it, and no answer stops nothing.
//!
//! Where nothing is ever stopped for idleness, agents are asked seldom and nobody is judged: what else they see, such as
//! processes killed for want of memory, has no other way to the resource.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::IdleAction;
use odc_api::v1alpha1::condition::{self, Reason, Type};

use super::agents::{Answer, Call, Say, call, is_reachable, pause};
use super::decide::Decision;
use super::{describe, since};
use crate::activity::{self, Last, Policy, Signal, Verdict};
use crate::plan::Again;
use crate::seen::Pod;

/// How old an answer may be that ends something.
const FRESH: Duration = Duration::from_secs(30);
/// Over which time the questions are spread that are all due when an operator starts.
const SPREAD: Duration = Duration::from_secs(300);
/// Between two questions to an agent whose server is never stopped for idleness.
const SELDOM: Duration = Duration::from_secs(3600);
/// How often in a row an agent must not have answered before people are told.
const PATIENCE: u32 = 3;

/// What follows from the signals for a running server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idleness {
    /// Of the condition Idle; nothing leaves it as it is stored.
    pub condition: Option<(bool, Reason, String)>,
    pub calls: Vec<Call>,
    pub again: Again,
    /// The warning was given, its grace is over, and nobody came.
    pub over: bool,
}

impl Idleness {
    fn new(condition: Option<(bool, Reason, String)>) -> Self {
        Self { condition, calls: vec![], again: Again::OnChange, over: false }
    }
}

impl Decision<'_> {
    pub(super) fn idleness(&self) -> Idleness {
        let idle = &self.server.spec.idle;
        if idle.action == IdleAction::None {
            let condition = Some((false, Reason::NotWatched, describe::NOT_WATCHED.into()));
            return Idleness { condition, ..self.ask_seldom() };
        }
        let limit = idle.timeout.as_std();
        let before = self.stored().and_then(|status| condition::find(&status.conditions, Type::Idle));
        let running = self.running_since();
        // A warning of an earlier run counts for nothing.
        let before =
            before.filter(|idle| idle.status != "True" || running.is_some_and(|at| idle.last_transition_time.0 >= at));
        let young = || before.is_none().then(|| (false, Reason::Active, describe::YOUNG.into()));
        let (Some(watching), Some(running)) = (self.seen.agents.since, running) else { return Idleness::new(young()) };
        let warned = before.filter(|idle| idle.status == "True");
        let warned = warned.map(|idle| idle.last_transition_time.0);
        // The grace begins when people could read the warning, not when it was decided.
        let grace_over = match (warned, self.noticed()) {
            (Some(warned), Some(noticed)) => Some(after(warned.max(noticed), self.settings.idle_grace)),
            // They are being told; that will be seen.
            (Some(_), None) => return Idleness::new(None),
            (None, _) => None,
        };
        let Some((asked, verdict, failures)) = self.verdict(limit, running) else {
            let spread = after(watching, self.spread(limit));
            return Idleness {
                condition: young(),
                ..self.ask_at(grace_over.unwrap_or(after(running, limit).max(spread)))
            };
        };
        match verdict {
            Verdict::Unknown { .. } => {
                let told = (failures >= PATIENCE).then(|| (false, Reason::AgentUnreachable, describe::UNASKED.into()));
                Idleness { condition: told.or_else(young), ..self.ask_at(after(asked, pause(failures).max(FRESH))) }
            }
            Verdict::Active { last, look_again, .. } => {
                let condition = Some((false, Reason::Active, describe::in_use(last)));
                Idleness { condition, ..self.ask_at(after(asked, look_again)) }
            }
            Verdict::Idle { last, ago, because } => {
                let seen = before_it(asked, ago);
                match (warned, grace_over) {
                    (Some(warned), _) if seen > warned => {
                        // Somebody came and went within the grace; they are warned anew.
                        let condition = Some((false, Reason::Active, describe::in_use(last)));
                        Idleness { again: Again::After(Duration::ZERO), ..Idleness::new(condition) }
                    }
                    (Some(_), Some(over)) if asked >= over && since(asked, self.now) <= FRESH => {
                        Idleness { over: true, ..Idleness::new(None) }
                    }
                    (Some(_), Some(over)) => self.ask_at(if asked >= over { after(asked, FRESH) } else { over }),
                    _ => {
                        let message = describe::unused(&because, idle.action, self.settings.idle_grace);
                        let again = Again::After(self.settings.idle_grace);
                        Idleness { again, ..Idleness::new(Some((true, Reason::NobodyThere, message))) }
                    }
                }
            }
        }
    }

    /// Without judging what comes back.
    fn ask_seldom(&self) -> Idleness {
        let (Some(watching), Some(running)) = (self.seen.agents.since, self.running_since()) else {
            return Idleness::new(None);
        };
        let first = after(running, SELDOM).max(after(watching, self.spread(SELDOM)));
        let next = |pod: &Pod| {
            let answer = self.answer(pod).filter(|answer| answer.at >= running);
            answer.map_or(first, |answer| after(answer.at, SELDOM))
        };
        let due = self.parts.live().filter(|pod| is_reachable(pod)).map(next).min();
        due.map_or_else(|| Idleness::new(None), |due| self.ask_at(due))
    }

    fn running_since(&self) -> Option<Timestamp> {
        self.stored()?.running_since.as_ref().map(|since| since.0)
    }

    /// Asks now, or says when to.
    fn ask_at(&self, due: Timestamp) -> Idleness {
        let wait = Duration::try_from(self.now.duration_until(due)).unwrap_or_default();
        if wait.is_zero() {
            // Of several nodes only those whose answer is older than the question.
            let old = |pod: &&Pod| self.answer(pod).is_none_or(|answer| answer.at < due);
            let calls = self.parts.live().filter(old).filter_map(|pod| call(pod, Say::Signals)).collect();
            Idleness { calls, ..Idleness::new(None) }
        } else {
            Idleness { again: Again::After(wait), ..Idleness::new(None) }
        }
    }

    /// Of all nodes together: one that is used is enough. With the time of the oldest answer, and how often in a row
    /// there was none. Nothing if one has not been asked yet since the server runs.
    fn verdict(&self, limit: Duration, running: Timestamp) -> Option<(Timestamp, Verdict, u32)> {
        let policy = Policy::all(limit);
        let mut all: Option<(Timestamp, Verdict, u32)> = None;
        for pod in self.parts.current.iter().copied() {
            let pod = pod?;
            if !is_reachable(pod) {
                let because = "it has no address or host key".to_owned();
                return Some((self.now, Verdict::Unknown { because }, 0));
            }
            let Answer { at, signals, failures } = self.answer(pod).filter(|answer| answer.at >= running)?;
            let verdict = activity::decide(signals.as_ref().map_err(String::as_str), &policy);
            all = Some(match all {
                None => (*at, verdict, *failures),
                Some((first, before, most)) => (first.min(*at), busier(before, verdict), most.max(*failures)),
            });
        }
        all
    }

    /// One from a time to come was given under another clock.
    fn answer(&self, pod: &Pod) -> Option<&Answer> {
        self.agent(pod)?.answer.as_deref().filter(|answer| answer.at <= self.now)
    }

    /// When the last of its agents was told that it will be stopped; nothing while one was not.
    fn noticed(&self) -> Option<Timestamp> {
        let all: Option<Vec<Timestamp>> = self.parts.live().map(|pod| self.agent(pod)?.noticed).collect();
        all?.into_iter().max()
    }

    /// Another part of the time for each server.
    fn spread(&self, limit: Duration) -> Duration {
        let mut hash = DefaultHasher::new();
        self.server.metadata.uid.hash(&mut hash);
        let parts = u32::try_from(hash.finish() % 1000).unwrap_or_default();
        limit.min(SPREAD) * parts / 1000
    }
}

/// One node in use keeps them all. Of what nobody knows, nothing follows; nor from the rest.
fn busier(one: Verdict, two: Verdict) -> Verdict {
    let look_again = |verdict: &Verdict| match verdict {
        Verdict::Active { look_again, .. } => Some(*look_again),
        Verdict::Idle { .. } | Verdict::Unknown { .. } => None,
    };
    match (&one, &two) {
        (Verdict::Active { .. }, _) | (_, Verdict::Active { .. }) => {
            if look_again(&one) >= look_again(&two) {
                one
            } else {
                two
            }
        }
        (Verdict::Unknown { .. }, _) => one,
        (_, Verdict::Unknown { .. }) => two,
        (Verdict::Idle { ago: first, .. }, Verdict::Idle { ago: second, .. }) => {
            if first <= second {
                one
            } else {
                two
            }
        }
    }
}

fn after(then: Timestamp, time: Duration) -> Timestamp {
    then.saturating_add(time).unwrap_or(Timestamp::MAX)
}

fn before_it(then: Timestamp, time: Duration) -> Timestamp {
    then.saturating_sub(time).unwrap_or(Timestamp::MIN)
}

/// For messages that must not change with time.
pub(super) fn named(last: Last) -> Cow<'static, str> {
    if let Some(port) = last.port {
        return format!("forwarded port {port} carried data").into();
    }
    let name = match last.signal {
        Signal::TerminalInput => "somebody typed",
        Signal::TerminalOutput => "a terminal showed something new",
        Signal::Transfer => "files were copied, or a command ran",
        Signal::Forwarded => "a forwarded socket carried data",
        Signal::SessionProcesses => "a session's process was busy",
        Signal::EntrypointProcesses => "the image's own program was busy",
        Signal::OtherProcesses => "a process was busy",
        Signal::Gpu => "a GPU was busy",
        Signal::Jupyter => "Jupyter was used",
        Signal::KeepAlive => "its user asked to keep it alive",
        Signal::Heartbeat => "somebody reported use",
        Signal::AgentStart => "it has just started",
    };
    name.into()
}

#[cfg(test)]
mod tests;
