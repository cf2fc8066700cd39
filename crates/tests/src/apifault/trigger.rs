//! Counts requests and events, and decides which faults fire.

use std::collections::BTreeMap;

use crate::apifault::event::Event;
use crate::apifault::plan::{Action, EventAction, Fault, Moment, Plan, Times};
use crate::apifault::request::ApiRequest;

/// Result of a request at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// A fault that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired<A> {
    /// Index in the plan and description, for the trace.
    pub fault: String,
    pub action: A,
}

#[derive(Debug, Default)]
pub struct Triggers {
    armed: Vec<ArmedFault>,
}

#[derive(Debug)]
struct ArmedFault {
    index: usize,
    fault: Fault,
    remaining: Times,
    /// Stored writes, requests or events that have matched so far.
    matched: u64,
    /// Number of every request without a response, by sequence.
    in_flight: BTreeMap<u64, u64>,
}

impl Triggers {
    pub fn new(plan: Plan) -> Self {
        let mut triggers = Self::default();
        for fault in plan.faults {
            triggers.add(fault);
        }
        triggers
    }

    /// Adds a fault that counts from now on.
    pub fn add(&mut self, fault: Fault) {
        let remaining = match &fault {
            Fault::Write(on) | Fault::Request(on) => on.times,
            Fault::Event(on) => on.times,
        };
        self.armed.push(ArmedFault {
            index: self.armed.len(),
            fault,
            remaining,
            matched: 0,
            in_flight: BTreeMap::new(),
        });
    }

    /// Handles the arrival of a request. `has_list` reports whether the n-th response to this LIST is cached.
    ///
    /// A write is numbered as if all writes in flight will be stored. If one of them fails, its number is assigned again, so
    /// that no number is skipped.
    pub fn arrive(
        &mut self,
        sequence: u64,
        request: &ApiRequest,
        has_list: impl Fn(usize) -> bool,
    ) -> Vec<Fired<Action>> {
        let mut fired = FiredFaults::default();
        for armed in &mut self.armed {
            let Some(number) = armed.count(request) else { continue };
            armed.in_flight.insert(sequence, number);
            fired.consider(armed, Moment::Before, number, &has_list);
        }
        fired.all
    }

    /// Handles the response of the API server. Only a stored write fires faults on writes.
    pub fn respond(&mut self, sequence: u64, outcome: Outcome, has_list: impl Fn(usize) -> bool) -> Vec<Fired<Action>> {
        let mut fired = FiredFaults::default();
        for armed in &mut self.armed {
            let Some(arrival_number) = armed.in_flight.remove(&sequence) else { continue };
            let number = match &armed.fault {
                Fault::Write(_) if outcome == Outcome::Succeeded => {
                    armed.matched += 1;
                    armed.matched
                }
                Fault::Request(_) => arrival_number,
                Fault::Write(_) | Fault::Event(_) => continue,
            };
            fired.consider(armed, Moment::After, number, &has_list);
        }
        fired.all
    }

    /// Forgets a request that did not reach the API server, or whose response was lost.
    pub fn forget(&mut self, sequence: u64) {
        for armed in &mut self.armed {
            armed.in_flight.remove(&sequence);
        }
    }

    /// Handles an event before it is forwarded. At most one fault fires: the first of the plan.
    pub fn handle_event(&mut self, watch: &ApiRequest, event: &Event) -> Option<Fired<EventAction>> {
        let target = ApiRequest { namespace: event.namespace.clone(), name: event.name.clone(), ..watch.clone() };
        let mut first = None;
        for armed in &mut self.armed {
            let Fault::Event(on) = &armed.fault else { continue };
            if !on.pattern.matches(&target) || on.kind.is_some_and(|kind| kind != event.kind) {
                continue;
            }
            let (action, nth) = (on.action, on.nth);
            armed.matched += 1;
            if first.is_none() && armed.matched >= nth && armed.consume() {
                first = Some(Fired { fault: armed.label(), action });
            }
        }
        first
    }
}

impl ArmedFault {
    /// Returns the number of an arriving request if the fault counts it.
    fn count(&mut self, request: &ApiRequest) -> Option<u64> {
        match &self.fault {
            Fault::Write(on) if on.pattern.matches_write(request) => {
                Some(self.matched + self.in_flight.len() as u64 + 1)
            }
            Fault::Request(on) if on.pattern.matches(request) => {
                self.matched += 1;
                Some(self.matched)
            }
            _ => None,
        }
    }

    /// Consumes one of the remaining times. Returns false if there is none.
    fn consume(&mut self) -> bool {
        match &mut self.remaining {
            Times::Always => true,
            Times::Count(0) => false,
            Times::Count(remaining) => {
                *remaining -= 1;
                true
            }
        }
    }

    fn label(&self) -> String {
        format!("{} {}", self.index, self.fault)
    }
}

/// Faults that fire at one moment, in the order of the plan. A fault after the one that ends the request keeps its times.
#[derive(Default)]
struct FiredFaults {
    all: Vec<Fired<Action>>,
    ended: bool,
}

impl FiredFaults {
    fn consider(&mut self, armed: &mut ArmedFault, moment: Moment, number: u64, has_list: impl Fn(usize) -> bool) {
        let (Fault::Write(on) | Fault::Request(on)) = &armed.fault else { return };
        let possible = match on.action {
            Action::OldList { nth } => has_list(nth),
            _ => true,
        };
        let due = on.moment == moment && number >= on.nth && possible;
        let action = on.action.clone();
        if due && !self.ended && armed.consume() {
            self.ended = action.ends_request();
            self.all.push(Fired { fault: armed.label(), action });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apifault::event::EventKind;
    use crate::apifault::pattern::Pattern;
    use crate::apifault::request::Verb;

    fn request(verb: Verb) -> ApiRequest {
        ApiRequest {
            verb,
            resource: "configmaps".to_owned(),
            namespace: "a".to_owned(),
            name: "one".to_owned(),
            agent: String::new(),
            dry_run: false,
        }
    }

    /// Sends requests one after the other and returns the numbers of those at which a fault fired.
    fn run(triggers: &mut Triggers, outcomes: &[Outcome]) -> Vec<usize> {
        let mut fired = Vec::new();
        for (index, outcome) in outcomes.iter().enumerate() {
            let sequence = index as u64;
            let before = triggers.arrive(sequence, &request(Verb::Create), |_| false);
            let ended = before.iter().any(|fired| fired.action.ends_request());
            let after = if ended { Vec::new() } else { triggers.respond(sequence, *outcome, |_| false) };
            triggers.forget(sequence);
            if !before.is_empty() || !after.is_empty() {
                fired.push(index + 1);
            }
        }
        fired
    }

    fn triggers(faults: impl IntoIterator<Item = Fault>) -> Triggers {
        Triggers::new(Plan::new(faults))
    }

    const SUCCEEDED: [Outcome; 6] = [Outcome::Succeeded; 6];

    #[test]
    fn fault_fires_once_at_its_number() {
        assert_eq!(run(&mut triggers([Fault::write(3).after(Action::Kill)]), &SUCCEEDED), [3]);
        assert_eq!(run(&mut triggers([Fault::request(3).before(Action::HangUp)]), &SUCCEEDED), [3]);
    }

    #[test]
    fn fault_with_times_fires_at_later_numbers() {
        assert_eq!(run(&mut triggers([Fault::request(2).before(Action::HangUp).times(3)]), &SUCCEEDED), [2, 3, 4]);
        assert_eq!(run(&mut triggers([Fault::request(4).before(Action::HangUp).always()]), &SUCCEEDED), [4, 5, 6]);
    }

    #[test]
    fn rejected_write_has_no_number() {
        let outcomes = [Outcome::Succeeded, Outcome::Failed, Outcome::Failed, Outcome::Succeeded, Outcome::Succeeded];
        assert_eq!(run(&mut triggers([Fault::write(2).after(Action::Kill)]), &outcomes), [4]);
        assert_eq!(run(&mut triggers([Fault::write(3).before(Action::Kill)]), &outcomes), [5]);
        assert_eq!(run(&mut triggers([Fault::request(2).after(Action::Kill)]), &outcomes), [2]);
    }

    #[test]
    fn retry_of_a_write_has_the_same_number() {
        let mut triggers =
            triggers([Fault::write(2).before(Action::answer(409)), Fault::write(3).before(Action::Kill)]);
        // The second request fails and the third gets its number, so the fourth request is the third write.
        assert_eq!(run(&mut triggers, &SUCCEEDED), [2, 4]);
    }

    #[test]
    fn writes_in_flight_are_numbered_by_arrival() {
        let mut triggers = triggers([Fault::write(2).before(Action::Hold), Fault::write(2).after(Action::HangUp)]);
        assert!(triggers.arrive(1, &request(Verb::Create), |_| false).is_empty());
        assert_eq!(triggers.arrive(2, &request(Verb::Patch), |_| false)[0].action, Action::Hold);
        // Responses in reverse order: the first stored write is the first write.
        assert!(triggers.respond(2, Outcome::Succeeded, |_| false).is_empty());
        assert_eq!(triggers.respond(1, Outcome::Succeeded, |_| false)[0].action, Action::HangUp);
    }

    #[test]
    fn read_counts_as_a_request_but_not_as_a_write() {
        let mut triggers = triggers([Fault::write(1).before(Action::Kill), Fault::request(1).before(Action::Stop)]);
        let fired = triggers.arrive(1, &request(Verb::Get), |_| false);
        assert_eq!(fired.iter().map(|fired| &fired.action).collect::<Vec<_>>(), [&Action::Stop]);
    }

    #[test]
    fn fault_after_an_ended_request_fires_at_the_next() {
        let faults = [
            Fault::request(1).before(Action::Delay { milliseconds: 1 }),
            Fault::request(1).before(Action::answer(503)),
            Fault::request(1).before(Action::answer(500)),
        ];
        let mut triggers = triggers(faults);
        assert_eq!(triggers.arrive(1, &request(Verb::Get), |_| false).len(), 2);
        assert_eq!(triggers.arrive(2, &request(Verb::Get), |_| false)[0].action, Action::answer(500));
        assert!(triggers.arrive(3, &request(Verb::Get), |_| false).is_empty());
    }

    #[test]
    fn old_list_fires_once_a_list_is_cached() {
        let mut triggers = triggers([Fault::request(1).before(Action::OldList { nth: 1 })]);
        assert!(triggers.arrive(1, &request(Verb::List), |_| false).is_empty());
        assert_eq!(triggers.arrive(2, &request(Verb::List), |nth| nth == 1).len(), 1);
    }

    #[test]
    fn added_fault_ignores_earlier_requests() {
        let mut triggers = Triggers::default();
        triggers.arrive(1, &request(Verb::Create), |_| false);
        triggers.add(Fault::write(1).after(Action::Kill));
        assert!(triggers.respond(1, Outcome::Succeeded, |_| false).is_empty());
        triggers.arrive(2, &request(Verb::Create), |_| false);
        assert_eq!(triggers.respond(2, Outcome::Succeeded, |_| false)[0].fault, "0 write 1: Kill After");
    }

    #[test]
    fn events_are_counted_by_type_and_name() {
        let pattern = Pattern::resource("configmaps").with_name("one");
        let mut triggers = triggers([
            Fault::event(2, pattern.clone(), Some(EventKind::Modified), EventAction::Drop),
            Fault::event(3, pattern, None, EventAction::Repeat),
        ]);
        let watch = ApiRequest { name: String::new(), ..request(Verb::Watch) };
        let mut handle = |kind: EventKind, name: &str| {
            let (version, uid) = (String::new(), String::new());
            let event = Event { kind, namespace: "a".to_owned(), name: name.to_owned(), version, uid };
            triggers.handle_event(&watch, &event).map(|fired| fired.action)
        };
        assert_eq!(handle(EventKind::Added, "one"), None);
        assert_eq!(handle(EventKind::Modified, "one"), None);
        assert_eq!(handle(EventKind::Modified, "other"), None);
        assert_eq!(handle(EventKind::Modified, "one"), Some(EventAction::Drop));
        assert_eq!(handle(EventKind::Deleted, "one"), Some(EventAction::Repeat));
        assert_eq!(handle(EventKind::Modified, "one"), None);
    }
}
