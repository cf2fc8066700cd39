//! Scenarios: the lifecycle of a server, its status, and the number of writes.

mod cost;
mod deletion;
mod lifetime;
mod node;
mod queue_timeout;
mod self_healing;
mod start;
mod termination;
mod volume_in_use;

use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Desired, DevServer, DevServerFlavor, HibernationCause, Image, Phase, StopCause};

use super::api::Answer;
use super::event::Event;
use super::observer::Effect::{self, Admit, Change, Create, Delete, Release, Revoke, Status, UpdatePending};
use super::{Cluster, Pod, Secret};
use crate::manifest::Kind;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn hours(hours: u64) -> Duration {
    minutes(60 * hours)
}

fn gang() -> DevServer {
    DevServer::test().size("flavor-gpu", 1, 2)
}

/// A running server with an empty log.
fn running(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    cluster.settle();
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster.observer.log.clear();
    cluster
}

fn hibernated(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.apply(&Event::Desire(Desired::Hibernated));
    cluster.settle();
    cluster.observer.log.clear();
    cluster
}

fn secret() -> String {
    "server-1-keys-uid-serv".into()
}

fn pod(ordinal: usize) -> String {
    format!("server-1-{ordinal}")
}

impl Cluster {
    /// Applies the event and runs the cluster without advancing the clock.
    fn after_event(mut self, event: &Event) -> Self {
        self.apply(event);
        self.settle();
        self
    }

    fn after_time(mut self, time: Duration) -> Self {
        self.pass(time);
        self
    }

    /// Checks the writes since the beginning of the scenario.
    #[track_caller]
    fn cost(&self, expect: &[Effect]) {
        assert_eq!(self.observer.log, expect);
    }

    #[track_caller]
    fn is(&self, phase: Phase) -> &Self {
        assert_eq!(self.phase(), Some(phase), "{:?}", self.observer.log);
        self
    }

    /// Checks the reason of a condition and a part of its message.
    #[track_caller]
    fn has_condition(&self, kind: Type, status: &str, reason: &str, message: &str) -> &Self {
        let conditions = self.status().conditions;
        let condition = condition::find(&conditions, kind).unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), (status, reason), "{}", condition.message);
        assert!(condition.message.contains(message), "{:?} does not contain {message:?}", condition.message);
        self
    }

    #[track_caller]
    fn has_failure(&self, reason: &str, message: &str) {
        let failure = self.status().last_failure.unwrap();
        assert_eq!(failure.reason, reason);
        assert!(failure.message.as_str().contains(message), "{:?} does not contain {message:?}", failure.message);
    }

    #[track_caller]
    fn is_stopping_for(&self, cause: StopCause) {
        assert_eq!(self.status().stopping.map(|stopping| stopping.cause), Some(cause));
    }

    fn nodes(&self) -> Vec<&str> {
        self.pods.iter().filter_map(|pod| pod.object.node.as_deref()).collect()
    }
}
