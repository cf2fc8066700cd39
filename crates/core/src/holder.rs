//! Which server may use a claim that only one can.

use odc_api::v1alpha1::{Desired, DevServer, Phase};

use crate::devserver::granted;

/// Another server that has the claim or comes before this one: first whoever was granted devices, else whoever came
/// first and wants to run. All of `others` mount the claim.
pub fn holder<'a>(server: &DevServer, others: &[&'a DevServer]) -> Option<&'a str> {
    let mut rivals: Vec<&DevServer> = others.iter().copied().filter(|other| is_rival(server, other)).collect();
    rivals.sort_by_key(|rival| turn(rival));
    let has = |server: &DevServer| granted(server.status.as_ref()).is_some();
    let holding = rivals.iter().find(|rival| has(rival));
    let earlier = || rivals.iter().find(|rival| wants(rival) && turn(rival) < turn(server));
    let found = match holding {
        // Two that both have it: the later one gives way.
        Some(rival) if has(server) => (turn(rival) < turn(server)).then_some(rival),
        Some(rival) => Some(rival),
        None if has(server) => None,
        None => earlier(),
    };
    found.and_then(|rival| rival.metadata.name.as_deref())
}

fn is_rival(server: &DevServer, other: &DevServer) -> bool {
    let phase = other.status.as_ref().and_then(|status| status.phase);
    let ended = phase.is_some_and(Phase::terminal) && granted(other.status.as_ref()).is_none();
    other.metadata.uid != server.metadata.uid && !ended
}

fn wants(server: &DevServer) -> bool {
    let asleep = server.status.as_ref().is_some_and(|status| status.hibernation.is_some());
    server.spec.desired == Desired::Running && !asleep
}

fn turn(server: &DevServer) -> (Option<i64>, Option<&str>) {
    let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    (created, server.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::time;
    use odc_api::v1alpha1::Admission;

    use super::*;

    fn server(name: &str, created: &str) -> DevServer {
        let mut server = DevServer::test().named(name);
        server.metadata.creation_timestamp = Some(time(created));
        server
    }

    fn with_grant(server: DevServer) -> DevServer {
        server.status(|status| {
            status.admission = Some(Admission { run: 1, nodes: vec!["node-1".into()], ..Admission::default() });
        })
    }

    #[test]
    fn first_come_first_served_until_somebody_has_it() {
        let early = server("early", "2026-01-01T00:00:00Z");
        let late = server("late", "2026-01-02T00:00:00Z");
        assert_eq!(holder(&late, &[&early]), Some("early"));
        assert_eq!(holder(&early, &[&late]), None);
        let late = with_grant(late);
        assert_eq!(holder(&early, &[&late]), Some("late"));
        assert_eq!(holder(&late, &[&early]), None);
        let early = with_grant(early);
        assert_eq!(holder(&late, &[&early]), Some("early"));
        assert_eq!(holder(&early, &[&late]), None);
    }

    #[test]
    fn who_ended_or_sleeps_is_no_rival() {
        let early = server("early", "2026-01-01T00:00:00Z");
        let late = server("late", "2026-01-02T00:00:00Z");
        assert_eq!(holder(&late, &[&early.clone().desired(Desired::Hibernated)]), None);
        assert_eq!(holder(&late, &[&early.clone().in_phase(Phase::Expired)]), None);
        // Ended, but its pods are not gone yet.
        assert_eq!(holder(&late, &[&with_grant(early.in_phase(Phase::Failed))]), Some("early"));
    }
}
