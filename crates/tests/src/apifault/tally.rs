//! Counts what passes, and says which faults that sets off. Pure.

use std::collections::BTreeMap;

use crate::apifault::call::Call;
use crate::apifault::event::Event;
use crate::apifault::plan::{Action, EventAction, Fault, Moment, Plan, Times};

/// What became of a request at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with success.
    Done,
    Refused,
}

/// A fault's moment has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing<A> {
    /// Which one, for the trace: its place in the plan and what it says.
    pub fault: String,
    pub action: A,
}

#[derive(Debug, Default)]
pub struct Tally {
    armed: Vec<Armed>,
}

#[derive(Debug)]
struct Armed {
    index: usize,
    fault: Fault,
    left: Times,
    /// Stored writes, requests or events that matched so far.
    seen: u64,
    /// The number of every request that arrived and was not answered yet.
    under_way: BTreeMap<u64, u64>,
}

impl Tally {
    pub fn new(plan: Plan) -> Self {
        let mut tally = Self::default();
        for fault in plan.faults {
            tally.add(fault);
        }
        tally
    }

    /// It counts what arrives from now on.
    pub fn add(&mut self, fault: Fault) {
        let left = match &fault {
            Fault::Write(on) | Fault::Request(on) => on.times,
            Fault::Event(on) => on.times,
        };
        self.armed.push(Armed { index: self.armed.len(), fault, left, seen: 0, under_way: BTreeMap::new() });
    }

    /// A request has come in. `remembers` tells whether there is an older answer to this LIST.
    ///
    /// A write is numbered as if all that are under way will be stored. When one of them is not, its number is given
    /// again, so every number is given at least once and none is passed over.
    pub fn arrive(&mut self, sequence: u64, call: &Call, remembers: impl Fn(usize) -> bool) -> Vec<Firing<Action>> {
        let mut firings = Firings::default();
        for armed in &mut self.armed {
            let Some(number) = armed.count(call) else { continue };
            armed.under_way.insert(sequence, number);
            firings.consider(armed, Moment::Before, number, &remembers);
        }
        firings.all
    }

    /// The API server has answered. Only a stored write sets off what waits for a write.
    pub fn answered(
        &mut self,
        sequence: u64,
        outcome: Outcome,
        remembers: impl Fn(usize) -> bool,
    ) -> Vec<Firing<Action>> {
        let mut firings = Firings::default();
        for armed in &mut self.armed {
            let Some(arrived_as) = armed.under_way.remove(&sequence) else { continue };
            let number = match &armed.fault {
                Fault::Write(_) if outcome == Outcome::Done => {
                    armed.seen += 1;
                    armed.seen
                }
                Fault::Request(_) => arrived_as,
                Fault::Write(_) | Fault::Event(_) => continue,
            };
            firings.consider(armed, Moment::After, number, &remembers);
        }
        firings.all
    }

    /// The API server was not asked, or its answer never came.
    pub fn lost(&mut self, sequence: u64) {
        for armed in &mut self.armed {
            armed.under_way.remove(&sequence);
        }
    }

    /// An event of this watch is about to be passed on. At most one fault fires: the first in the plan.
    pub fn event(&mut self, watch: &Call, event: &Event) -> Option<Firing<EventAction>> {
        let about = Call { namespace: event.namespace.clone(), name: event.name.clone(), ..watch.clone() };
        let mut first = None;
        for armed in &mut self.armed {
            let Fault::Event(on) = &armed.fault else { continue };
            if !on.of.matches(&about) || on.kind.is_some_and(|kind| kind != event.kind) {
                continue;
            }
            let (action, nth) = (on.r#do, on.nth);
            armed.seen += 1;
            if first.is_none() && armed.seen >= nth && armed.take() {
                first = Some(Firing { fault: armed.label(), action });
            }
        }
        first
    }
}

impl Armed {
    /// The number of a request that has just come in, if it is one of those to be counted.
    fn count(&mut self, call: &Call) -> Option<u64> {
        match &self.fault {
            Fault::Write(on) if on.of.matches_write(call) => Some(self.seen + self.under_way.len() as u64 + 1),
            Fault::Request(on) if on.of.matches(call) => {
                self.seen += 1;
                Some(self.seen)
            }
            _ => None,
        }
    }

    /// One of the times it may fire.
    fn take(&mut self) -> bool {
        match &mut self.left {
            Times::Always => true,
            Times::Count(0) => false,
            Times::Count(left) => {
                *left -= 1;
                true
            }
        }
    }

    fn label(&self) -> String {
        format!("{} {}", self.index, self.fault)
    }
}

/// Faults of one moment, in the order of the plan. What comes after the end of a request waits for the next one.
#[derive(Default)]
struct Firings {
    all: Vec<Firing<Action>>,
    ended: bool,
}

impl Firings {
    fn consider(&mut self, armed: &mut Armed, moment: Moment, number: u64, remembers: impl Fn(usize) -> bool) {
        let (Fault::Write(on) | Fault::Request(on)) = &armed.fault else { return };
        let possible = match on.r#do {
            Action::OldList { nth } => remembers(nth),
            _ => true,
        };
        let due = on.at == moment && number >= on.nth && possible;
        let action = on.r#do.clone();
        if due && !self.ended && armed.take() {
            self.ended = action.ends_the_request();
            self.all.push(Firing { fault: armed.label(), action });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apifault::call::Verb;
    use crate::apifault::event::Kind;
    use crate::apifault::pattern::Pattern;

    fn call(verb: Verb) -> Call {
        Call {
            verb,
            resource: "configmaps".to_owned(),
            namespace: "a".to_owned(),
            name: "one".to_owned(),
            agent: String::new(),
            dry_run: false,
        }
    }

    /// Sends requests one after the other and notes at which of them something happened.
    fn run(tally: &mut Tally, outcomes: &[Outcome]) -> Vec<usize> {
        let mut fired = Vec::new();
        for (index, outcome) in outcomes.iter().enumerate() {
            let sequence = index as u64;
            let before = tally.arrive(sequence, &call(Verb::Create), |_| false);
            let ended = before.iter().any(|firing| firing.action.ends_the_request());
            let after = if ended { Vec::new() } else { tally.answered(sequence, *outcome, |_| false) };
            tally.lost(sequence);
            if !before.is_empty() || !after.is_empty() {
                fired.push(index + 1);
            }
        }
        fired
    }

    fn tally(faults: impl IntoIterator<Item = Fault>) -> Tally {
        Tally::new(Plan::new(faults))
    }

    const DONE: [Outcome; 6] = [Outcome::Done; 6];

    #[test]
    fn a_fault_fires_once_at_its_number() {
        assert_eq!(run(&mut tally([Fault::write(3).after(Action::Kill)]), &DONE), [3]);
        assert_eq!(run(&mut tally([Fault::request(3).before(Action::HangUp)]), &DONE), [3]);
    }

    #[test]
    fn a_fault_may_fire_again_at_later_numbers() {
        assert_eq!(run(&mut tally([Fault::request(2).before(Action::HangUp).times(3)]), &DONE), [2, 3, 4]);
        assert_eq!(run(&mut tally([Fault::request(4).before(Action::HangUp).always()]), &DONE), [4, 5, 6]);
    }

    #[test]
    fn a_write_that_is_refused_has_no_number() {
        let outcomes = [Outcome::Done, Outcome::Refused, Outcome::Refused, Outcome::Done, Outcome::Done];
        assert_eq!(run(&mut tally([Fault::write(2).after(Action::Kill)]), &outcomes), [4]);
        assert_eq!(run(&mut tally([Fault::write(3).before(Action::Kill)]), &outcomes), [5]);
        assert_eq!(run(&mut tally([Fault::request(2).after(Action::Kill)]), &outcomes), [2]);
    }

    #[test]
    fn the_retry_of_a_write_has_the_same_number() {
        let mut tally = tally([Fault::write(2).before(Action::answer(409)), Fault::write(3).before(Action::Kill)]);
        // The second is refused; the third takes its number, so the fourth is the third write.
        assert_eq!(run(&mut tally, &DONE), [2, 4]);
    }

    #[test]
    fn writes_under_way_have_numbers_too() {
        let mut tally = tally([Fault::write(2).before(Action::Hold), Fault::write(2).after(Action::HangUp)]);
        assert!(tally.arrive(1, &call(Verb::Create), |_| false).is_empty());
        assert_eq!(tally.arrive(2, &call(Verb::Patch), |_| false)[0].action, Action::Hold);
        // Answered in the other order: the first to be stored is the first write.
        assert!(tally.answered(2, Outcome::Done, |_| false).is_empty());
        assert_eq!(tally.answered(1, Outcome::Done, |_| false)[0].action, Action::HangUp);
    }

    #[test]
    fn reads_are_requests_and_no_writes() {
        let mut tally = tally([Fault::write(1).before(Action::Kill), Fault::request(1).before(Action::Stop)]);
        let fired = tally.arrive(1, &call(Verb::Get), |_| false);
        assert_eq!(fired.iter().map(|firing| &firing.action).collect::<Vec<_>>(), [&Action::Stop]);
    }

    #[test]
    fn what_the_end_of_a_request_cuts_off_waits_for_the_next() {
        let faults = [
            Fault::request(1).before(Action::Delay { milliseconds: 1 }),
            Fault::request(1).before(Action::answer(503)),
            Fault::request(1).before(Action::answer(500)),
        ];
        let mut tally = tally(faults);
        assert_eq!(tally.arrive(1, &call(Verb::Get), |_| false).len(), 2);
        assert_eq!(tally.arrive(2, &call(Verb::Get), |_| false)[0].action, Action::answer(500));
        assert!(tally.arrive(3, &call(Verb::Get), |_| false).is_empty());
    }

    #[test]
    fn an_old_list_waits_until_there_is_one() {
        let mut tally = tally([Fault::request(1).before(Action::OldList { nth: 1 })]);
        assert!(tally.arrive(1, &call(Verb::List), |_| false).is_empty());
        assert_eq!(tally.arrive(2, &call(Verb::List), |nth| nth == 1).len(), 1);
    }

    #[test]
    fn a_fault_added_later_counts_from_then() {
        let mut tally = Tally::default();
        tally.arrive(1, &call(Verb::Create), |_| false);
        tally.add(Fault::write(1).after(Action::Kill));
        assert!(tally.answered(1, Outcome::Done, |_| false).is_empty());
        tally.arrive(2, &call(Verb::Create), |_| false);
        assert_eq!(tally.answered(2, Outcome::Done, |_| false)[0].fault, "0 write 1: Kill After");
    }

    #[test]
    fn events_are_counted_by_type_and_name() {
        let of = Pattern::resource("configmaps").named("one");
        let mut tally = tally([
            Fault::event(2, of.clone(), Some(Kind::Modified), EventAction::Drop),
            Fault::event(3, of, None, EventAction::Repeat),
        ]);
        let watch = Call { name: String::new(), ..call(Verb::Watch) };
        let mut seen = |kind: Kind, name: &str| {
            let (version, uid) = (String::new(), String::new());
            let event = Event { kind, namespace: "a".to_owned(), name: name.to_owned(), version, uid };
            tally.event(&watch, &event).map(|firing| firing.action)
        };
        assert_eq!(seen(Kind::Added, "one"), None);
        assert_eq!(seen(Kind::Modified, "one"), None);
        assert_eq!(seen(Kind::Modified, "other"), None);
        assert_eq!(seen(Kind::Modified, "one"), Some(EventAction::Drop));
        assert_eq!(seen(Kind::Deleted, "one"), Some(EventAction::Repeat));
        assert_eq!(seen(Kind::Modified, "one"), None);
    }
}
