//! The handles that all tasks of a leader share.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use odc_api::v1alpha1::{DevServer, Disk};
use tokio::sync::watch;

use crate::agents::AgentCalls;
use crate::agents::ssh_control_ca::CaState;
use crate::api_server_clock::Clock;
use crate::cache::assumed::AssumedSender;
use crate::cache::cluster::ClusterCache;
use crate::config::Config;
use crate::error::Error;
use crate::events::EventRecorder;
use crate::flavor::PendingHistories;
use crate::invalid_objects::InvalidServers;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::scheduler::PlannerState;
use crate::soft_state::SoftStates;
use crate::validated_servers::ValidatedServers;
use crate::work_queues::WorkQueues;

pub struct Context {
    pub client: Client,
    pub clock: Clock,
    pub leadership: Leadership,
    pub config: Config,
    pub user_settings: odc_core::user::Settings,
    pub metrics: Arc<Metrics>,
    pub events: EventRecorder,
    pub cluster: ClusterCache,
    /// Servers as this process wrote them, for the cache.
    pub assumed_servers: AssumedSender<DevServer>,
    /// Disks, the same.
    pub assumed_disks: AssumedSender<Disk>,
    pub soft_states: SoftStates,
    /// The validated requests of servers.
    pub validated_servers: ValidatedServers,
    pub work_queues: WorkQueues,
    pub leader_since: Timestamp,
    /// The CA whose certificates agents accept.
    pub control_ca: watch::Sender<CaState>,
    pub agent_calls: AgentCalls,
    pub invalid_servers: InvalidServers,
    /// The scheduler's planner. A query about a long queue holds the lock while it clones the queue on a blocking
    /// thread, so asynchronous tasks must not block on it.
    pub planner: tokio::sync::Mutex<PlannerState>,
    /// Flavor histories that the flavor loop has not stored yet.
    pub pending_histories: PendingHistories,
}

impl Context {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Fails if this process is no longer leader. Must be called before every write.
    pub fn ensure_leader(&self) -> Result<(), Error> {
        self.leadership.ensure_leader()
    }

    /// Reports whether this process is leader, for requests that are not writes: [`Leadership::release`] does not wait for them.
    pub fn is_leader(&self) -> bool {
        !self.leadership.is_over()
    }
}
