//! The faults to inject, and when they fire.

use crate::dbfault::trace::Statement;

/// An action at the n-th statement or commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    /// Counted from 1, over all connections.
    nth: u64,
    /// Part of the SQL; every statement matches if it is empty.
    containing: String,
    moment: Moment,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Statement,
    /// A statement that ends a transaction.
    Commit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server has not received the statement.
    Before,
    /// The server has executed the statement, and has committed it if it is outside a transaction. The client has not
    /// received any of the answer.
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Closes the connection in both directions.
    Cut,
    /// Like [`Self::Cut`], with a TCP reset.
    Reset,
    /// Forwards nothing on the connection until released.
    Stall,
}

impl Fault {
    /// Fires at the `nth` statement; see [`FaultBuilder`].
    pub fn statement(nth: u64) -> FaultBuilder {
        FaultBuilder { kind: Kind::Statement, nth, containing: String::new() }
    }

    /// Fires at the `nth` statement that ends a transaction; see [`FaultBuilder`].
    pub fn commit(nth: u64) -> FaultBuilder {
        FaultBuilder { kind: Kind::Commit, nth, containing: String::new() }
    }
}

/// Builds a fault: `Fault::commit(3).containing("requests").after(Action::Cut)`.
#[derive(Clone, Debug)]
pub struct FaultBuilder {
    kind: Kind,
    nth: u64,
    containing: String,
}

impl FaultBuilder {
    /// Counts only statements whose SQL contains this text.
    #[must_use]
    pub fn containing(self, text: &str) -> Self {
        Self { containing: text.to_owned(), ..self }
    }

    pub fn before(self, action: Action) -> Fault {
        self.build(Moment::Before, action)
    }

    pub fn after(self, action: Action) -> Fault {
        self.build(Moment::After, action)
    }

    fn build(self, moment: Moment, action: Action) -> Fault {
        Fault { kind: self.kind, nth: self.nth, containing: self.containing, moment, action }
    }
}

/// Counts statements and decides which fault fires.
#[derive(Debug, Default)]
pub struct Triggers {
    armed: Vec<ArmedFault>,
}

#[derive(Debug)]
struct ArmedFault {
    fault: Fault,
    matched: u64,
}

impl Triggers {
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        let mut triggers = Self::default();
        faults.into_iter().for_each(|fault| triggers.add(fault));
        triggers
    }

    /// Adds a fault that counts from now on.
    pub fn add(&mut self, fault: Fault) {
        self.armed.push(ArmedFault { fault, matched: 0 });
    }

    /// Counts a statement. Returns the action of the first fault of the plan that fires.
    pub fn count(&mut self, statement: &Statement) -> Option<(Moment, Action)> {
        let mut fired = None;
        for ArmedFault { fault, matched } in &mut self.armed {
            let is_counted = fault.kind == Kind::Statement || statement.commits;
            if !is_counted || !statement.sql.contains(&fault.containing) {
                continue;
            }
            *matched += 1;
            if *matched == fault.nth && fired.is_none() {
                fired = Some((fault.moment, fault.action));
            }
        }
        fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dbfault::trace::Outcome;

    fn count(triggers: &mut Triggers, sql: &str, commits: bool) -> Option<(Moment, Action)> {
        triggers.count(&Statement { connection: 1, sql: sql.to_owned(), commits, outcome: Outcome::Unknown })
    }

    #[test]
    fn fault_fires_once_at_its_statement() {
        let mut triggers = Triggers::new([Fault::statement(2).containing("requests").before(Action::Cut)]);
        let fired: Vec<bool> =
            ["requests", "users", "requests", "requests"].map(|sql| count(&mut triggers, sql, true).is_some()).to_vec();
        assert_eq!(fired, [false, false, true, false]);
    }

    #[test]
    fn commit_fault_counts_only_statements_that_commit() {
        let mut triggers = Triggers::new([Fault::commit(2).after(Action::Stall)]);
        assert_eq!(count(&mut triggers, "SELECT", true), None);
        assert_eq!(count(&mut triggers, "BEGIN", false), None);
        assert_eq!(count(&mut triggers, "COMMIT", true), Some((Moment::After, Action::Stall)));
    }
}
