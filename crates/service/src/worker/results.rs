//! Results that are not stored yet. They are stored together, so that a batch of messages needs one commit.

use std::collections::HashSet;
use std::time::Duration;

use odc_store::queue::{Delay, Delivery, Finish};
use odc_store::{Error, Store};
use tokio::time::Instant;

use super::metrics::{Metrics, QueueLabels};

/// How long a result waits for others while requests are executed.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);
/// The same for a worker that reads batches, so that most batches need one commit.
const BATCH_COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// The number of results that are stored without further waiting.
const MAX_RESULTS: usize = 50;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The results of deliveries.
#[derive(Debug)]
pub struct Results {
    collect_interval: Duration,
    finished: Vec<Finish>,
    delayed: Vec<Delay>,
    /// When the results are stored, unless all requests are executed before.
    due_at: Option<Instant>,
    /// Whether the last attempt to store them failed.
    failed: bool,
}

/// A delivery that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub delivery: Delivery,
    /// When the message is visible again, if it was delayed.
    pub visible_at: Option<Instant>,
}

impl Results {
    /// Returns no results. `batch_size` is the least number of messages that the worker reads at once.
    pub fn new(batch_size: usize) -> Self {
        let collect_interval = if batch_size > 1 { BATCH_COLLECT_INTERVAL } else { COLLECT_INTERVAL };
        Self { collect_interval, finished: vec![], delayed: vec![], due_at: None, failed: false }
    }

    pub fn finish(&mut self, finish: Finish, now: Instant) {
        self.finished.push(finish);
        self.due_at.get_or_insert(now + self.collect_interval);
    }

    pub fn delay(&mut self, delay: Delay, now: Instant) {
        self.delayed.push(delay);
        self.due_at.get_or_insert(now + self.collect_interval);
    }

    /// Returns when the results are to be stored. `idle` is whether no request is executed, so that there is nothing to
    /// wait for.
    pub fn due_at(&self, idle: bool, now: Instant) -> Option<Instant> {
        let full = self.finished.len() + self.delayed.len() >= MAX_RESULTS;
        self.due_at.map(|due_at| if (idle || full) && !self.failed { now } else { due_at })
    }

    /// Stores all results. Returns the deliveries that have ended; the others are stored later.
    pub async fn store(&mut self, store: &Store, metrics: &Metrics, now: Instant) -> Vec<Ended> {
        let mut ended = vec![];
        let stored = self.try_store(store, metrics, &mut ended).await;
        self.failed = stored.is_err();
        self.due_at = match stored {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot store results; trying again");
                Some(now + RETRY_INTERVAL)
            }
        };
        ended
    }

    async fn try_store(&mut self, store: &Store, metrics: &Metrics, ended: &mut Vec<Ended>) -> Result<(), Error> {
        while !self.finished.is_empty() {
            let all = self.finished.len();
            match store.finish_messages(&self.finished).await {
                Ok(current) => self.end_finished(all, &current, metrics, ended),
                Err(error) if !error.is_caused_by_data() => return Err(error),
                // One result is invalid, so each is stored alone.
                Err(_) => self.store_first(store, metrics, ended).await?,
            }
        }
        if !self.delayed.is_empty() {
            store.delay_messages(&self.delayed).await?;
            let now = Instant::now();
            let end = |delay: Delay| {
                let visible_at = now + Duration::from_secs(delay.seconds.into());
                Ended { delivery: delay.delivery, visible_at: Some(visible_at) }
            };
            ended.extend(self.delayed.drain(..).map(end));
        }
        Ok(())
    }

    /// Stores the first result. A result that the database rejects is dropped; the message is delivered again.
    async fn store_first(&mut self, store: &Store, metrics: &Metrics, ended: &mut Vec<Ended>) -> Result<(), Error> {
        let current = match store.finish_messages(&self.finished[..1]).await {
            Ok(current) => current,
            Err(error) if !error.is_caused_by_data() => return Err(error),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(finish = ?self.finished.first(), error, "dropped a result that cannot be stored");
                vec![]
            }
        };
        self.end_finished(1, &current, metrics, ended);
        Ok(())
    }

    fn end_finished(&mut self, count: usize, current: &[Delivery], metrics: &Metrics, ended: &mut Vec<Ended>) {
        let current: HashSet<Delivery> = current.iter().copied().collect();
        for Finish { delivery, .. } in self.finished.drain(..count) {
            if !current.contains(&delivery) {
                metrics.stale_deliveries.get_or_create(&QueueLabels { queue: delivery.queue.as_str() }).inc();
                tracing::info!(?delivery, "a message was delivered again before its result was stored");
            }
            ended.push(Ended { delivery, visible_at: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use odc_store::queue::{FinishResult, Queue};

    use super::*;

    fn delivery(msg_id: i64) -> Delivery {
        Delivery { queue: Queue::Reservations, msg_id, read_ct: 1 }
    }

    fn finish(msg_id: i64) -> Finish {
        Finish { delivery: delivery(msg_id), request_id: None, result: FinishResult::Succeeded }
    }

    #[test]
    fn result_waits_for_others_while_requests_are_executed() {
        let (mut results, start) = (Results::new(1), Instant::now());
        assert_eq!(results.due_at(true, start), None);
        results.finish(finish(1), start);
        results.delay(Delay { delivery: delivery(2), seconds: 1, has_failed: true }, start + Duration::from_millis(50));
        assert_eq!(results.due_at(false, start), Some(start + COLLECT_INTERVAL));
        assert_eq!(results.due_at(true, start), Some(start));
    }

    #[test]
    fn results_of_a_worker_that_reads_batches_wait_longer() {
        let (mut results, start) = (Results::new(50), Instant::now());
        results.finish(finish(1), start);
        assert_eq!(results.due_at(false, start), Some(start + BATCH_COLLECT_INTERVAL));
        assert_eq!(results.due_at(true, start), Some(start));
    }

    #[test]
    fn full_batch_is_stored_at_once() {
        let (mut results, start) = (Results::new(1), Instant::now());
        (0..50).for_each(|msg_id| results.finish(finish(msg_id), start));
        assert_eq!(results.due_at(false, start), Some(start));
    }
}
