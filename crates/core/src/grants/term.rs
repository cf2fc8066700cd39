//! For how long a server holds nodes at the latest: what planned starts are counted from.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{DevServer, DevServerUser, Limits, Priority, Team};

use crate::devserver::{Settings, lifetime, validate};

/// What the agent and the kubelet may take for an orderly stop.
const STOP: Duration = Duration::from_secs(60);

/// How long it holds its nodes if it gets them now. The lifetime is counted from the first readiness, so the start and the
/// stop come on top.
pub fn span(server: &DevServer, limits: Option<&Limits>, settings: &Settings) -> Duration {
    let status = server.status.as_ref();
    let granted = lifetime::grant(server.spec.lifetime, limits, status.and_then(|status| status.lifetime)).granted;
    let ran = status.and_then(|status| status.ran_seconds).unwrap_or_default();
    let ran = Duration::from_secs(u64::try_from(ran).unwrap_or_default());
    let left = granted.as_std().saturating_sub(ran);
    settings.start_limit.saturating_add(left).saturating_add(settings.expiry_grace).saturating_add(STOP)
}

/// When the nodes it was granted are free.
pub fn ends(server: &DevServer, limits: Option<&Limits>, settings: &Settings) -> Option<Timestamp> {
    let status = server.status.as_ref()?;
    let after = |at: Timestamp, more: Duration| at.saturating_add(more).unwrap_or(Timestamp::MAX);
    if let (Some(expires), Some(_)) = (&status.expires_at, &status.running_since) {
        return Some(after(expires.0, settings.expiry_grace.saturating_add(STOP)));
    }
    let granted = status.admission.as_ref()?.granted_at.as_ref()?.0;
    Some(after(granted, span(server, limits, settings)))
}

/// How urgent it is: what it asks for or its team's default, at most the ceiling.
pub fn priority(server: &DevServer, user: Option<&DevServerUser>, team: Option<&Team>) -> Priority {
    let default = team.map_or(Priority::Normal, |team| team.spec.priority.default);
    server.spec.scheduling.priority.unwrap_or(default).min(validate::ceiling(user, team))
}

#[cfg(test)]
mod tests {
    use odc_api::time::stored;
    use odc_api::v1alpha1::Admission;

    use super::*;
    use crate::devserver::fixtures::settings;
    use crate::grants::fixtures::time;

    fn extra() -> Duration {
        let settings = settings();
        settings.start_limit + settings.expiry_grace + STOP
    }

    #[test]
    fn a_server_holds_its_nodes_for_what_is_left_of_its_lifetime_with_start_and_stop() {
        let mut server = DevServer::test();
        let whole = server.spec.lifetime.as_std();
        assert_eq!(span(&server, None, &settings()), whole + extra());
        server.status.get_or_insert_default().ran_seconds = Some(600);
        assert_eq!(span(&server, None, &settings()) + Duration::from_secs(600), whole + extra());
    }

    #[test]
    fn the_end_is_that_of_the_lifetime_or_before_it_began_that_of_the_grant() {
        let mut server = DevServer::test();
        let lifetime = server.spec.lifetime.as_std();
        assert_eq!(ends(&server, None, &settings()), None);
        let status = server.status.get_or_insert_default();
        status.admission = Some(Admission { granted_at: Some(stored(time(60))), ..Admission::default() });
        assert_eq!(ends(&server, None, &settings()), Some(time(60) + lifetime + extra()));
        let status = server.status.get_or_insert_default();
        (status.running_since, status.expires_at) = (Some(stored(time(70))), Some(stored(time(1_000))));
        assert_eq!(ends(&server, None, &settings()), Some(time(1_000) + settings().expiry_grace + STOP));
    }

    #[test]
    fn nobody_is_more_urgent_than_the_ceiling() {
        let mut server = DevServer::test();
        let mut team = Team::test();
        let mut user = DevServerUser::test();
        assert_eq!(priority(&server, None, None), Priority::Normal);
        (team.spec.priority.default, team.spec.priority.ceiling) = (Priority::Low, Priority::High);
        assert_eq!(priority(&server, Some(&user), Some(&team)), Priority::Low);
        server.spec.scheduling.priority = Some(Priority::High);
        assert_eq!(priority(&server, Some(&user), Some(&team)), Priority::High);
        assert_eq!(priority(&server, Some(&user), None), Priority::Normal);
        // Of two ceilings the lower one counts; alone a person has their own.
        user.spec.priority_ceiling = Some(Priority::Low);
        assert_eq!(priority(&server, Some(&user), Some(&team)), Priority::Low);
        user.spec.priority_ceiling = Some(Priority::High);
        assert_eq!(priority(&server, Some(&user), None), Priority::High);
        team.spec.priority.ceiling = Priority::Normal;
        assert_eq!(priority(&server, Some(&user), Some(&team)), Priority::Normal);
    }
}
