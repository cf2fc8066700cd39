//! Callers that wait for the results of their requests. One statement reads the results for all of them, so that waiting
//! callers do not use up the connections of the database.

use std::collections::HashMap;
use std::time::Duration;

use odc_store::Store;
use odc_store::request::Request;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// The time between two reads, after a caller has begun to wait and at most.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// Requests per statement.
const MAX_BATCH: usize = 1_000;

#[derive(Default)]
pub struct Results {
    waiting: Waiting,
    added: Notify,
}

impl Results {
    /// Waits until a request has ended. Returns nothing if that takes longer.
    pub async fn wait(&self, id: Uuid, limit: Duration) -> Option<Request> {
        if limit.is_zero() {
            return None;
        }
        let receiver = self.waiting.add(id);
        self.added.notify_one();
        timeout(limit, receiver).await.ok()?.ok()
    }

    /// Reads results while callers wait. Does not return.
    pub async fn run(&self, store: &Store) {
        let mut interval = FIRST_INTERVAL;
        loop {
            if self.waiting.ids().is_empty() {
                self.added.notified().await;
                interval = FIRST_INTERVAL;
            }
            tokio::select! {
                () = sleep(interval) => interval = (interval * 2).min(MAX_INTERVAL),
                () = self.added.notified() => {
                    // Also if callers are added all the time, the reads have a distance.
                    sleep(FIRST_INTERVAL).await;
                    interval = FIRST_INTERVAL;
                }
            }
            let ids = self.waiting.ids();
            for batch in ids.chunks(MAX_BATCH) {
                match store.finished_requests(batch).await {
                    Ok(requests) => self.waiting.answer(requests),
                    // It is no error of the accepted requests.
                    Err(error) => tracing::warn!(%error, "failed to read the results of requests"),
                }
            }
        }
    }
}

/// The callers that wait, by request.
#[derive(Default)]
struct Waiting(Mutex<HashMap<Uuid, Vec<oneshot::Sender<Request>>>>);

impl Waiting {
    fn add(&self, id: Uuid) -> oneshot::Receiver<Request> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().entry(id).or_default().push(sender);
        receiver
    }

    /// Returns the requests for which callers still wait.
    fn ids(&self) -> Vec<Uuid> {
        let mut waiting = self.0.lock();
        waiting.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        waiting.keys().copied().collect()
    }

    fn answer(&self, requests: Vec<Request>) {
        let mut waiting = self.0.lock();
        for request in requests {
            for sender in waiting.remove(&request.id).unwrap_or_default() {
                // Fails if the caller does not wait any more.
                let _ = sender.send(request.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use odc_store::request::State;

    use super::*;

    fn request(id: Uuid) -> Request {
        Request {
            id,
            user: "ada".to_owned(),
            actor: "ada".to_owned(),
            action: "devserver.delete".to_owned(),
            object_kind: "DevServer".to_owned(),
            object_name: "box".to_owned(),
            state: State::Succeeded,
            reason: None,
            message: None,
            status_code: None,
            created_at: Timestamp::UNIX_EPOCH,
            finished_at: None,
        }
    }

    #[tokio::test]
    async fn all_callers_of_a_request_are_answered() {
        let waiting = Waiting::default();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let receivers = [waiting.add(one), waiting.add(one)];
        let mut unanswered = waiting.add(other);
        waiting.answer(vec![request(one)]);
        for receiver in receivers {
            assert_eq!(receiver.await.unwrap().id, one);
        }
        assert!(unanswered.try_recv().is_err());
        assert_eq!(waiting.ids(), [other]);
    }

    #[test]
    fn request_is_forgotten_when_no_caller_waits() {
        let waiting = Waiting::default();
        drop(waiting.add(Uuid::nil()));
        assert!(waiting.ids().is_empty() && waiting.0.lock().is_empty());
    }
}
