//! The messages that were read and are not finished. Requests about the same object are executed one after the other, in
//! the order in which they were accepted, as far as this worker reads them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use odc_store::queue::{Delivery, Work};
use tokio::time::Instant;

use crate::message::Message;

/// A request to execute.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub delivery: Delivery,
    /// How many deliveries ended with a delay.
    pub delays: i32,
    pub work: Box<Work>,
    pub message: Box<Message>,
}

/// Identifies the object of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    user: String,
    kind: &'static str,
    name: String,
}

impl Task {
    pub fn object_key(&self) -> ObjectKey {
        let (kind, name) = (self.message.object_kind(), self.message.object_name());
        ObjectKey { user: self.work.user.clone(), kind, name: name.to_owned() }
    }
}

/// The messages in progress.
#[derive(Debug, Default)]
pub struct InProgress {
    /// When each message became invisible for the last time.
    invisible_since: HashMap<Delivery, Instant>,
    waiting: VecDeque<Task>,
    running: HashSet<ObjectKey>,
    /// A message that may crash the worker, and when it was added.
    suspect: Option<(Delivery, Instant)>,
}

impl InProgress {
    /// Adds a message that needs no execution, but whose result is not stored yet.
    pub fn add(&mut self, delivery: Delivery, now: Instant) {
        self.invisible_since.insert(delivery, now);
    }

    /// Adds a request to execute.
    pub fn push(&mut self, task: Task, now: Instant) {
        self.add(task.delivery, now);
        self.waiting.push_back(task);
    }

    /// Records that a message may crash the worker.
    pub fn set_suspect(&mut self, delivery: Delivery, now: Instant) {
        self.suspect = Some((delivery, now));
    }

    /// Returns when the message that may crash the worker was added.
    pub fn suspect_since(&self) -> Option<Instant> {
        self.suspect.map(|(_, since)| since)
    }

    /// Removes the next request to execute, if fewer than `concurrency` are running.
    pub fn start_next(&mut self, concurrency: usize) -> Option<Task> {
        if self.running.len() >= concurrency {
            return None;
        }
        let next = self.waiting.iter().position(|task| !self.running.contains(&task.object_key()))?;
        let task = self.waiting.remove(next)?;
        self.running.insert(task.object_key());
        Some(task)
    }

    /// Records that a request was executed. Its message is in progress until the result is stored.
    pub fn stop(&mut self, key: &ObjectKey) {
        self.running.remove(key);
    }

    /// Removes a message.
    pub fn remove(&mut self, delivery: Delivery) {
        self.invisible_since.remove(&delivery);
        self.suspect.take_if(|(suspect, _)| *suspect == delivery);
    }

    /// Removes all requests that are not running.
    pub fn take_waiting(&mut self) -> Vec<Delivery> {
        self.waiting.drain(..).map(|task| task.delivery).collect()
    }

    /// Returns all messages.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.invisible_since.keys().copied().collect()
    }

    /// Returns the messages that have been invisible for at least this time.
    pub fn invisible_for(&self, time: Duration, now: Instant) -> Vec<Delivery> {
        let due = self.invisible_since.iter().filter(|(_, since)| **since + time <= now);
        due.map(|(delivery, _)| *delivery).collect()
    }

    /// Returns the time at which a message has been invisible for this time.
    pub fn next_invisible_for(&self, time: Duration) -> Option<Instant> {
        self.invisible_since.values().min().map(|since| *since + time)
    }

    /// Records for which messages the visibility timeout was extended. The others were delivered again; those that are not
    /// running are left to the other worker.
    pub fn extended(&mut self, requested: &[Delivery], current: &[Delivery], now: Instant) {
        let current: HashSet<Delivery> = current.iter().copied().collect();
        for delivery in requested {
            let Some(since) = self.invisible_since.get_mut(delivery) else { continue };
            *since = now;
            let waiting = self.waiting.iter().position(|task| task.delivery == *delivery);
            if let Some(index) = waiting.filter(|_| !current.contains(delivery)) {
                self.waiting.remove(index);
                self.remove(*delivery);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.invisible_since.len()
    }

    /// Reports whether no request waits or is running.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use odc_store::queue::Queue;
    use serde_json::{Value, json};

    use super::*;

    fn task(msg_id: i64, name: &str) -> Task {
        let payload = json!({"version": 1, "action": "devserver.delete", "name": name});
        let payload: crate::message::Payload = serde_json::from_value(payload).unwrap();
        let work = Work {
            id: uuid::Uuid::nil(),
            user: "ada".to_owned(),
            actor: "ada".to_owned(),
            action: String::new(),
            object_name: name.to_owned(),
            payload: Value::Null,
            created_at: Timestamp::UNIX_EPOCH,
        };
        let delivery = Delivery { queue: Queue::Reservations, msg_id, read_ct: 1 };
        Task { delivery, delays: 0, work: Box::new(work), message: Box::new(payload.message) }
    }

    fn pushed(tasks: &[Task]) -> InProgress {
        let mut in_progress = InProgress::default();
        for task in tasks {
            in_progress.push(task.clone(), Instant::now());
        }
        in_progress
    }

    #[test]
    fn requests_about_one_object_are_executed_in_order() {
        let (first, second, other) = (task(1, "box"), task(2, "box"), task(3, "other"));
        let mut in_progress = pushed(&[first.clone(), second.clone(), other.clone()]);
        assert_eq!(in_progress.start_next(9), Some(first.clone()));
        assert_eq!(in_progress.start_next(9), Some(other));
        assert_eq!(in_progress.start_next(9), None);
        in_progress.stop(&first.object_key());
        assert_eq!(in_progress.start_next(9), Some(second));
        assert_eq!(in_progress.len(), 3);
    }

    #[test]
    fn suspect_is_forgotten_when_it_ends() {
        let mut in_progress = pushed(&[task(1, "a"), task(2, "b")]);
        let now = Instant::now();
        in_progress.set_suspect(task(1, "a").delivery, now);
        in_progress.remove(task(2, "b").delivery);
        assert_eq!(in_progress.suspect_since(), Some(now));
        in_progress.remove(task(1, "a").delivery);
        assert_eq!(in_progress.suspect_since(), None);
    }

    #[test]
    fn concurrency_is_limited() {
        let mut in_progress = pushed(&[task(1, "a"), task(2, "b")]);
        assert!(in_progress.start_next(1).is_some());
        assert!(in_progress.start_next(1).is_none());
        assert_eq!(in_progress.take_waiting(), [task(2, "b").delivery]);
    }

    #[test]
    fn message_that_was_delivered_again_is_dropped_unless_it_is_running() {
        let (running, waiting, current) = (task(1, "a"), task(2, "b"), task(3, "c"));
        let mut in_progress = pushed(&[running.clone(), waiting.clone(), current.clone()]);
        in_progress.start_next(1);
        let all = [running.delivery, waiting.delivery, current.delivery];
        in_progress.extended(&all, &[current.delivery], Instant::now());
        assert_eq!(in_progress.take_waiting(), [current.delivery]);
        assert_eq!(in_progress.len(), 2);
    }

    #[test]
    fn visibility_is_extended_in_time() {
        let mut in_progress = InProgress::default();
        let (start, third) = (Instant::now(), Duration::from_secs(100));
        assert_eq!(in_progress.next_invisible_for(third), None);
        in_progress.push(task(1, "a"), start);
        in_progress.push(task(2, "b"), start + Duration::from_secs(50));
        assert_eq!(in_progress.next_invisible_for(third), Some(start + third));
        assert_eq!(in_progress.invisible_for(third, start + third), [task(1, "a").delivery]);
        in_progress.extended(&[task(1, "a").delivery], &[task(1, "a").delivery], start + third);
        assert_eq!(in_progress.next_invisible_for(third), Some(start + Duration::from_secs(150)));
    }
}
