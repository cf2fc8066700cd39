//! Teams: whether everybody they name exists.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::UserName;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{Team, TeamStatus};

/// The most members a message names.
const NAMED: usize = 5;

/// What to tell about a team, given all users there are. `usage` is only carried along: it is the scheduler's to write.
pub fn status(team: &Team, users: &BTreeSet<UserName>, now: Timestamp) -> TeamStatus {
    let before = team.status.clone().unwrap_or_default();
    let unknown: BTreeSet<&UserName> = team.spec.members.iter().filter(|member| !users.contains(*member)).collect();
    let (ready, reason, message) = if unknown.is_empty() {
        (Status::True, Reason::Reconciled, "All members are users.".to_owned())
    } else {
        (Status::False, Reason::UnknownMember, stranger(&unknown))
    };
    let generation = team.metadata.generation;
    let mut conditions = before.conditions;
    condition::set(&mut conditions, condition::new(Type::Ready, ready, reason, &message, generation, stored(now)));
    TeamStatus { observed_generation: generation, conditions, usage: before.usage }
}

fn stranger(unknown: &BTreeSet<&UserName>) -> String {
    let named: Vec<&str> = unknown.iter().take(NAMED).map(|name| name.as_str()).collect();
    let more = match unknown.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "No users are called {}{more}: create a DevServerUser of that name, or remove the name from spec.members.",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Usage;

    use super::*;

    fn check(members: &[&str], users: &[&str], expect: (Reason, &str)) {
        let mut team = Team::test();
        team.spec.members = members.iter().map(|name| name.parse().unwrap()).collect();
        let users = users.iter().map(|name| name.parse().unwrap()).collect();
        let status = status(&team, &users, Timestamp::UNIX_EPOCH);
        let ready = condition::find(&status.conditions, Type::Ready).unwrap();
        assert_eq!((ready.reason.as_str(), ready.message.as_str()), (expect.0.as_str(), expect.1));
        assert_eq!(ready.status == "True", expect.0 == Reason::Reconciled);
    }

    #[test]
    fn a_team_is_ready_when_all_members_exist() {
        check(&["ada", "bob"], &["ada", "bob", "eve"], (Reason::Reconciled, "All members are users."));
        check(&[], &[], (Reason::Reconciled, "All members are users."));
    }

    #[test]
    fn strangers_are_named_in_order_but_not_all_of_them() {
        let advice = "create a DevServerUser of that name, or remove the name from spec.members.";
        let one = format!("No users are called bob: {advice}");
        check(&["bob", "ada"], &["ada"], (Reason::UnknownMember, &one));
        let many = format!("No users are called a, b, c, d, e and 2 more: {advice}");
        check(&["g", "f", "e", "d", "c", "b", "a"], &[], (Reason::UnknownMember, &many));
        let five = format!("No users are called a, b, c, d, e: {advice}");
        check(&["e", "d", "c", "b", "a", "a"], &[], (Reason::UnknownMember, &five));
    }

    #[test]
    fn the_same_team_gets_the_same_status_at_any_time() {
        let mut team = Team::test();
        team.metadata.generation = Some(4);
        let usage = Usage { device_seconds: 7, at: stored(Timestamp::UNIX_EPOCH) };
        team.status = Some(TeamStatus { usage: Some(usage.clone()), ..TeamStatus::default() });
        let first = status(&team, &BTreeSet::new(), Timestamp::UNIX_EPOCH);
        assert_eq!((first.observed_generation, first.usage.as_ref()), (Some(4), Some(&usage)));
        team.status = Some(first.clone());
        assert_eq!(status(&team, &BTreeSet::new(), "2026-01-31T09:00:00.5Z".parse().unwrap()), first);
    }
}
