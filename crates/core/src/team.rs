//! The status of teams.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::UserName;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{Team, TeamStatus};

/// The maximum number of members listed in a message.
const MAX_LISTED_MEMBERS: usize = 5;

/// Returns the status of a team. `usage` is carried over, because only the scheduler writes it.
pub fn status(team: &Team, users: &BTreeSet<UserName>, now: Timestamp) -> TeamStatus {
    let before = team.status.clone().unwrap_or_default();
    let missing: BTreeSet<&UserName> = team.spec.members.iter().filter(|member| !users.contains(*member)).collect();
    let (ready, reason, message) = if missing.is_empty() {
        (Status::True, Reason::Reconciled, "All members exist.".to_owned())
    } else {
        (Status::False, Reason::MemberNotFound, members_not_found(&missing))
    };
    let generation = team.metadata.generation;
    let mut conditions = before.conditions;
    condition::set(
        &mut conditions,
        condition::new(Type::Ready, ready, reason, &message, generation, to_api_precision(now)),
    );
    TeamStatus { observed_generation: generation, conditions, usage: before.usage }
}

fn members_not_found(missing: &BTreeSet<&UserName>) -> String {
    let listed: Vec<&str> = missing.iter().take(MAX_LISTED_MEMBERS).map(|name| name.as_str()).collect();
    let more = match missing.len() - listed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "Members not found: {}{more}. Create the DevServerUser, or remove the name from spec.members.",
        listed.join(", ")
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
    fn team_is_ready_when_all_members_exist() {
        check(&["ada", "bob"], &["ada", "bob", "eve"], (Reason::Reconciled, "All members exist."));
        check(&[], &[], (Reason::Reconciled, "All members exist."));
    }

    #[test]
    fn missing_members_are_listed_sorted_and_truncated() {
        let advice = "Create the DevServerUser, or remove the name from spec.members.";
        let one = format!("Members not found: bob. {advice}");
        check(&["bob", "ada"], &["ada"], (Reason::MemberNotFound, &one));
        let many = format!("Members not found: a, b, c, d, e and 2 more. {advice}");
        check(&["g", "f", "e", "d", "c", "b", "a"], &[], (Reason::MemberNotFound, &many));
        let five = format!("Members not found: a, b, c, d, e. {advice}");
        check(&["e", "d", "c", "b", "a", "a"], &[], (Reason::MemberNotFound, &five));
    }

    #[test]
    fn status_does_not_depend_on_time() {
        let mut team = Team::test();
        team.metadata.generation = Some(4);
        let usage = Usage { device_seconds: 7, at: to_api_precision(Timestamp::UNIX_EPOCH) };
        team.status = Some(TeamStatus { usage: Some(usage.clone()), ..TeamStatus::default() });
        let first = status(&team, &BTreeSet::new(), Timestamp::UNIX_EPOCH);
        assert_eq!((first.observed_generation, first.usage.as_ref()), (Some(4), Some(&usage)));
        team.status = Some(first.clone());
        assert_eq!(status(&team, &BTreeSet::new(), "2026-01-31T09:00:00.5Z".parse().unwrap()), first);
    }
}
