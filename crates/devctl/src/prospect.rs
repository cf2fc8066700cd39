//! What the queue says this moment, and how it is said. Where it cannot be asked, statuses say what is known: places and
//! expected starts that may be half a minute old.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::queue::{DryRunSpec, DryRunStatus, Moved, QueueEntry, Start};
use odc_api::v1alpha1::{DevServerSpec, condition::Reason};

use crate::app::App;
use crate::backend::{Answer, Live, Silence};
use crate::failure::Result;
use crate::glance::{Admission, Eta, Glance};
use crate::output::time::{about, clock, within};

/// The answer, or nothing; why there is none is said once.
pub async fn told<T>(app: &App, answer: Answer<'_, Live<T>>) -> Result<Option<T>> {
    Ok(heard(app, answer.await?))
}

pub fn heard<T>(app: &App, answer: Live<T>) -> Option<T> {
    answer.map_err(|silence| app.talk.say_once(unasked(&silence))).ok()
}

pub fn unasked(silence: &Silence) -> String {
    format!("The queue cannot be asked itself ({}); this is what statuses say.", silence.0)
}

/// The question whether such a server would start.
pub fn question(spec: &DevServerSpec) -> DryRunSpec {
    let scheduling = &spec.scheduling;
    DryRunSpec {
        flavor: spec.flavor.clone(),
        count: spec.count,
        nodes: Some(spec.nodes),
        lifetime: Some(spec.lifetime),
        team: spec.team.clone(),
        priority: scheduling.priority,
        preemptible: scheduling.preemptible,
        node_labels: scheduling.node_labels.clone(),
        not_before: scheduling.not_before.clone(),
    }
}

/// Puts what the queue says now in the place of what the status says. A server that the queue does not know any more has
/// just left it, and its status is about to say so.
pub fn freshen(server: &mut Glance, entries: &[QueueEntry]) {
    let is_it = |entry: &&QueueEntry| {
        entry.metadata.name == server.metadata.name && entry.metadata.namespace == server.metadata.namespace
    };
    let Some(entry) = entries.iter().find(is_it).cloned() else { return };
    let old = server.status.admission.take().unwrap_or_default();
    server.status.admission = Some(Admission {
        position: entry.position,
        eta: eta(&entry.start),
        moved: entry.moved,
        reason: entry.reason,
        message: entry.message,
        queued_at: entry.queued_at.or(old.queued_at),
        nodes: old.nodes,
    });
}

fn eta(start: &Start) -> Option<Eta> {
    Some(Eta { p50: start.p50.clone()?, p90: start.p90.clone()?, latest: start.latest.clone() })
}

/// `now`, `in about 1 h 20 m`, or nothing where nothing is promised.
pub fn in_short(start: &Start, now: Timestamp) -> Option<String> {
    if start.now {
        return Some("now".to_owned());
    }
    start.p50.as_ref().map(|half| format!("in {}", about(left(half, now))))
}

/// `in about 1 h 20 m (nine of ten start within 3 h)`.
pub fn in_words(eta: &Eta, now: Timestamp) -> String {
    let (half, most) = (left(&eta.p50, now), left(&eta.p90, now));
    format!("in {} (nine of ten start within {})", about(half), within(most))
}

/// `Its latest start moved from 14:10 to 15:05. Somebody who runs stays longer than was known.`
pub fn moved(moved: &Moved, now: Timestamp) -> String {
    let Moved { from, to, message, .. } = moved;
    let to = to.as_ref().map_or_else(|| "a time that nobody knows".to_owned(), |to| clock(to.0, now));
    format!("Its latest start moved from {} to {to}. {message}", clock(from.0, now))
}

/// What a dry run found out, in one sentence and its cause.
pub fn answer(status: &DryRunStatus, now: Timestamp) -> String {
    if status.start.now {
        return "It would start at once.".to_owned();
    }
    let place = status.position.map(|place| format!(", at place {place} in the queue")).unwrap_or_default();
    let booked = status.reason.as_deref() == Some(Reason::Booked.as_str());
    let first = match (&status.start.latest, eta(&status.start)) {
        // A booked time is a time of day, not a wait.
        (Some(start), _) if booked => format!("It would start {}", clock(start.0, now)),
        (_, Some(eta)) => format!("It would start {}{place}", in_words(&eta, now)),
        (Some(latest), None) => format!("It would start within {}{place}", within(left(latest, now))),
        (None, None) => format!("Nobody can say when it would start{place}"),
    };
    match &status.message {
        Some(why) => format!("{first}. {why}"),
        None => format!("{first}."),
    }
}

fn left(then: &Time, now: Timestamp) -> i64 {
    then.0.as_second() - now.as_second()
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Phase};
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn start(p50: i64, p90: i64) -> Start {
        Start { now: false, p50: Some(at(p50)), p90: Some(at(p90)), latest: Some(at(p90 + 60)) }
    }

    #[test]
    fn a_dry_run_says_when_and_what_is_in_the_way() {
        let now = at(0).0;
        let free = DryRunStatus { start: Start { now: true, ..Start::default() }, ..DryRunStatus::default() };
        assert_eq!(answer(&free, now), "It would start at once.");
        let later = DryRunStatus {
            start: start(4800, 10_800),
            position: Some(3),
            reason: Some("InsufficientCapacity".into()),
            message: Some("Needs 8 gpu on one node; none is free.".into()),
        };
        assert_eq!(
            answer(&later, now),
            "It would start in about 1 h 20 m (nine of ten start within 3 h), at place 3 in the queue. \
             Needs 8 gpu on one node; none is free."
        );
        let never = DryRunStatus { message: Some("No node has more than 8.".into()), ..DryRunStatus::default() };
        assert_eq!(answer(&never, now), "Nobody can say when it would start. No node has more than 8.");
    }

    #[test]
    fn a_start_that_nobody_knows_any_more_is_said_to_have_moved() {
        let lost =
            Moved { from: at(0), to: None, reason: "LessCapacity".into(), message: "There are fewer nodes.".into() };
        let said = moved(&lost, at(0).0);
        assert!(said.ends_with(" to a time that nobody knows. There are fewer nodes."), "{said}");
    }

    #[test]
    fn a_booked_time_is_said_as_a_time() {
        let booked = DryRunStatus {
            start: start(86_400, 86_400),
            reason: Some("Booked".into()),
            message: Some("Its booked time is promised and has not come.".into()),
            position: None,
        };
        let said = answer(&booked, at(0).0);
        // Which day that is depends on where one is.
        assert!(!said.contains("about") && said.contains(" Jan "), "{said}");
        assert!(said.ends_with(". Its booked time is promised and has not come."), "{said}");
    }

    #[test]
    fn what_the_queue_says_now_wins_over_the_status() {
        let mut server = Glance::try_from(&DevServer::test().in_phase(Phase::Queued)).unwrap();
        let entry: QueueEntry = serde_json::from_value(json!({
            "metadata": {"name": server.name(), "namespace": server.namespace()}, "position": 2,
            "start": {"p50": at(60), "p90": at(90)}, "message": "None is free.",
        }))
        .unwrap();
        freshen(&mut server, &[]);
        assert_eq!(server.position(), None);
        let other = QueueEntry { position: Some(9), ..QueueEntry::default() };
        freshen(&mut server, &[other, entry]);
        assert_eq!(server.position(), Some(2));
        let admission = server.status.admission.unwrap();
        assert_eq!((admission.message.as_deref(), admission.eta.unwrap().p90), (Some("None is free."), at(90)));
    }
}
