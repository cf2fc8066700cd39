//! What to do with a message, before and after its execution. Without I/O.

use std::time::Duration;

use odc_store::queue::{Finish, FinishResult, Message as QueueMessage, Work};

use super::answer::Outcome;
use crate::message::{Message, Payload, VERSION};

/// The longest delay of a message that failed for a temporary reason.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// How often a message of a newer version is left to a newer worker, which is about an hour: during an update, replicas of
/// different versions run at the same time.
const MAX_VERSION_DELAYS: u32 = 60;

/// What to do with a message that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Execute(Box<Work>, Box<Message>),
    /// Make it visible again after this number of seconds.
    Delay(u32),
    Finish(Finish),
}

/// Decides what to do with a message. Only deliveries that ended without a result count towards `max_reads`: a message
/// that crashes the worker must not be executed for ever, while one that waits for the API server may.
pub fn decide(message: QueueMessage, max_reads: u32) -> Decision {
    let reads = reads_without_result(&message);
    let QueueMessage { delivery, delays, request, .. } = message;
    let failed = |request_id, reason: &str, message: String| {
        Decision::Finish(Finish { delivery, request_id, result: fail(reason, &message) })
    };
    let Some(work) = request else {
        // A message that was committed during the read is visible to it before its request is.
        if delays == 0 {
            return Decision::Delay(0);
        }
        return failed(None, "NoRequest", "The message does not belong to a pending request.".to_owned());
    };
    if reads > max_reads {
        let message = format!("The request was not executed: {max_reads} attempts ended without a result.");
        return failed(Some(work.id), "TooManyReads", message);
    }
    let version = work.payload.get("version").and_then(serde_json::Value::as_u64).unwrap_or_default();
    if version > u64::from(VERSION) {
        let delays = u32::try_from(delays).unwrap_or_default();
        if delays < MAX_VERSION_DELAYS {
            return Decision::Delay(delay_seconds(delays, None));
        }
        let message = format!("The payload has version {version}, and this worker supports up to {VERSION}.");
        return failed(Some(work.id), "UnsupportedVersion", message);
    }
    match serde_json::from_value(work.payload.clone()) {
        Ok(Payload { message, .. }) => Decision::Execute(Box::new(work), Box::new(message)),
        Err(error) => failed(Some(work.id), "InvalidPayload", format!("The payload is invalid: {error}.")),
    }
}

/// Returns the number of deliveries without a result, with the current one.
fn reads_without_result(message: &QueueMessage) -> u32 {
    let reads = message.delivery.read_ct.saturating_sub(message.delays).saturating_sub(message.returns);
    u32::try_from(reads).unwrap_or_default()
}

/// Reports whether an earlier delivery of a message ended without a result: the message may have crashed the worker.
pub fn is_suspect(message: &QueueMessage) -> bool {
    reads_without_result(message) > 1
}

/// What to do with a message after an attempt to execute it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Finish(FinishResult),
    /// Make it visible again after this number of seconds.
    Delay(u32),
}

/// The attempts to execute a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How many deliveries ended with a delay.
    pub delays: i32,
    /// The time since the request was accepted.
    pub age: Duration,
}

/// Decides how a delivery ends. A request that fails for temporary reasons is given up when it is older than the deadline
/// and was tried as often as any other, so that an outage of the worker does not make requests fail.
pub fn conclude(outcome: Outcome, attempts: Attempts, max_reads: u32, deadline: Duration) -> Next {
    let Attempts { delays, age } = attempts;
    let delays = u32::try_from(delays).unwrap_or_default();
    match outcome {
        Outcome::Finished(result) => Next::Finish(result),
        Outcome::Retry { message, .. } if age > deadline && delays.saturating_add(1) >= max_reads => {
            Next::Finish(fail("DeadlineExceeded", &message))
        }
        Outcome::Retry { after, .. } => Next::Delay(delay_seconds(delays, after)),
    }
}

/// Returns the delay after a temporary failure: twice the last one, and at least what the API server asks for.
fn delay_seconds(delays: u32, retry_after: Option<Duration>) -> u32 {
    let backoff = Duration::from_secs(1_u64.checked_shl(delays.min(16)).unwrap_or(u64::MAX));
    let delay = backoff.max(retry_after.unwrap_or_default()).min(MAX_DELAY);
    u32::try_from(delay.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// Returns the result of a request that cannot be executed.
pub fn fail(reason: &str, message: &str) -> FinishResult {
    FinishResult::Failed { reason: reason.to_owned(), message: without_nul(message) }
}

/// Removes the character NUL, which PostgreSQL cannot store.
pub fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use odc_store::queue::{Delivery, Queue};
    use serde_json::{Value, json};

    use super::*;

    fn message(read_ct: i32, delays: i32, payload: Option<Value>) -> QueueMessage {
        let work = payload.map(|payload| Work {
            id: "0197a3c4-0000-7000-8000-000000000001".parse().unwrap(),
            user: "ada".to_owned(),
            actor: "ada".to_owned(),
            action: "devserver.delete".to_owned(),
            object_name: "box".to_owned(),
            payload,
            created_at: Timestamp::UNIX_EPOCH,
        });
        QueueMessage {
            delivery: Delivery { queue: Queue::Reservations, msg_id: 7, read_ct },
            enqueued_at: Timestamp::UNIX_EPOCH,
            delays,
            returns: 0,
            body: json!({}),
            request: work,
        }
    }

    fn delete() -> Value {
        json!({"version": 1, "action": "devserver.delete", "name": "box"})
    }

    fn reason(decision: &Decision) -> Option<&str> {
        match decision {
            Decision::Finish(Finish { result: FinishResult::Failed { reason, .. }, .. }) => Some(reason),
            Decision::Execute(..) | Decision::Delay(_) | Decision::Finish(_) => None,
        }
    }

    #[test]
    fn request_is_executed_in_the_first_reads() {
        for read_ct in 1..=5 {
            let decision = decide(message(read_ct, 0, Some(delete())), 5);
            assert!(
                matches!(&decision, Decision::Execute(_, message) if message.object_name() == "box"),
                "{decision:?}"
            );
        }
        assert_eq!(reason(&decide(message(6, 0, Some(delete())), 5)), Some("TooManyReads"));
    }

    #[test]
    fn delays_do_not_count_as_failed_reads() {
        assert_eq!(reason(&decide(message(100, 99, Some(delete())), 5)), None);
        assert_eq!(reason(&decide(message(100, 94, Some(delete())), 5)), Some("TooManyReads"));
    }

    #[test]
    fn message_is_suspect_after_a_delivery_without_a_result() {
        let suspect =
            |read_ct, delays, returns| is_suspect(&QueueMessage { returns, ..message(read_ct, delays, None) });
        assert!(!suspect(1, 0, 0) && !suspect(4, 2, 1));
        assert!(suspect(2, 0, 0) && suspect(5, 2, 1));
    }

    #[test]
    fn message_that_cannot_be_executed_is_archived() {
        assert_eq!(decide(message(1, 0, None), 5), Decision::Delay(0), "the request may be committed later");
        assert_eq!(reason(&decide(message(2, 1, None), 5)), Some("NoRequest"));
        for (payload, expect) in [
            (json!({"version": 1, "action": "devserver.paint", "name": "box"}), "InvalidPayload"),
            (json!({"version": 1, "action": "devserver.delete"}), "InvalidPayload"),
            (json!([]), "InvalidPayload"),
        ] {
            assert_eq!(reason(&decide(message(1, 0, Some(payload.clone())), 5)), Some(expect), "{payload}");
        }
    }

    #[test]
    fn message_of_a_newer_version_waits_for_a_newer_worker() {
        let newer = json!({"version": 2, "action": "devserver.paint", "name": "box"});
        let decide = |delays| decide(message(delays + 1, delays, Some(newer.clone())), 5);
        assert_eq!(decide(0), Decision::Delay(1));
        assert_eq!(decide(59), Decision::Delay(60));
        assert_eq!(reason(&decide(60)), Some("UnsupportedVersion"));
    }

    fn retry(after: Option<u64>) -> Outcome {
        Outcome::Retry { after: after.map(Duration::from_secs), message: "the API server is overloaded".to_owned() }
    }

    fn concluded(outcome: Outcome, delays: i32, age: u64) -> Next {
        let attempts = Attempts { delays, age: Duration::from_secs(age) };
        conclude(outcome, attempts, 5, Duration::from_secs(900))
    }

    #[test]
    fn delay_doubles_up_to_a_minute() {
        for (delays, expect) in [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (1000, 60)] {
            assert_eq!(concluded(retry(None), delays, 1), Next::Delay(expect), "{delays}");
        }
    }

    #[test]
    fn delay_is_at_least_what_the_api_server_asks_for() {
        assert_eq!(concluded(retry(Some(7)), 0, 1), Next::Delay(7));
        assert_eq!(concluded(retry(Some(7)), 4, 1), Next::Delay(16));
        assert_eq!(concluded(retry(Some(3600)), 0, 1), Next::Delay(60));
    }

    #[test]
    fn request_is_given_up_after_the_deadline_and_enough_attempts() {
        assert_eq!(concluded(retry(None), 30, 900), Next::Delay(60));
        assert_eq!(concluded(retry(None), 0, 3600), Next::Delay(1), "the worker was stopped for an hour");
        let expect = fail("DeadlineExceeded", "the API server is overloaded");
        assert_eq!(concluded(retry(None), 4, 901), Next::Finish(expect));
        let done = Outcome::Finished(FinishResult::Succeeded);
        assert_eq!(concluded(done, 30, 3600), Next::Finish(FinishResult::Succeeded));
    }
}
