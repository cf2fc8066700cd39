//! Stories: what a server goes through, what is told of it, and what it costs in writes.

mod cost;
mod disk;
mod end;
mod endure;
mod held;
mod node;
mod start;
mod time;
mod wait;

use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Desired, DevServer, DevServerFlavor, HibernationCause, Image, Phase};

use super::api::Answer;
use super::observer::Did::{self, Change, Create, Delete, Explain, Grant, Release, Revoke, Status};
use super::script::Event;
use super::{Cluster, Pod, Secret};
use crate::object::Kind;
use crate::seen;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn hours(hours: u64) -> Duration {
    minutes(60 * hours)
}

fn gang() -> DevServer {
    DevServer::test().size("flavor-gpu", 1, 2)
}

/// Ready at once, and nothing of that in the log.
fn running(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    cluster.settle();
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster.observer.log.clear();
    cluster
}

fn asleep(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.happen(&Event::Desire(Desired::Hibernated));
    cluster.settle();
    cluster.observer.log.clear();
    cluster
}

fn secret() -> String {
    "server-1-keys".into()
}

fn pod(ordinal: usize) -> String {
    format!("server-1-{ordinal}")
}

impl Cluster {
    /// The event, and everything that follows from it at once.
    fn after(mut self, event: &Event) -> Self {
        self.happen(event);
        self.settle();
        self
    }

    fn for_a(mut self, time: Duration) -> Self {
        self.pass(time);
        self
    }

    /// What was written of ours since the story began.
    #[track_caller]
    fn cost(&self, expect: &[Did]) {
        assert_eq!(self.observer.log, expect);
    }

    #[track_caller]
    fn is(&self, phase: Phase) -> &Self {
        assert_eq!(self.phase(), Some(phase), "{:?}", self.observer.log);
        self
    }

    /// The condition has this reason, and says these words.
    #[track_caller]
    fn says(&self, kind: Type, holds: &str, reason: &str, words: &str) -> &Self {
        let status = self.status();
        let condition = condition::find(&status.conditions, kind).unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), (holds, reason), "{}", condition.message);
        assert!(condition.message.contains(words), "{:?} does not say {words:?}", condition.message);
        self
    }

    #[track_caller]
    fn failed_by(&self, reason: &str, words: &str) {
        let failure = self.status().last_failure.unwrap();
        assert_eq!(failure.reason, reason);
        assert!(failure.message.as_str().contains(words), "{:?} does not say {words:?}", failure.message);
    }

    fn on(&self) -> Vec<&str> {
        self.pods.iter().filter_map(|pod| pod.seen.node.as_deref()).collect()
    }
}
