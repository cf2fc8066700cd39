//! A simulated cluster: one server with its pods, Secret and Service, a few nodes with their kubelets, the scheduler, the
//! operator and a clock. External events are methods, the operator may crash after each of its writes, and invariants are
//! checked at each step.

mod agent;
mod api;
mod crash;
mod event;
mod kubelet;
mod observer;
mod operator;
mod property;
mod race;
mod scenario;
mod scheduler;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{DevServer, DevServerStatus, Phase};
use serde_json::Value;

use super::fixtures::{self, Request, at};
use crate::cluster::{self, Node};
use crate::plan::Write;
use agent::Agents;
use api::Fault;
use event::Event;
use observer::Observer;
use operator::Operator;

#[derive(Clone)]
struct Cluster {
    now: Timestamp,
    /// The stored server, and the objects it is validated against.
    request: Request,
    /// The resource version of the stored server.
    version: u64,
    deleted: bool,
    machines: Vec<Machine>,
    pods: Vec<Pod>,
    processes: Vec<Process>,
    secret: Option<Secret>,
    service: Option<Value>,
    /// The error of pulling the server's image.
    image_error: Option<&'static str>,
    /// The answer of the registry about the image's entrypoint.
    entrypoint: Result<Vec<String>, String>,
    /// Absent if agents cannot be reached.
    agents: Option<Agents>,
    operator: Operator,
    observer: Observer,
    /// The number of writes of the operator, including rejected ones.
    writes: usize,
    fault: Option<(usize, Fault)>,
    /// An external event right before the write of that number.
    interleaved: Option<(usize, Event)>,
    /// The cluster at the time of the current plan.
    planned_on: Option<Box<Cluster>>,
    /// Whether the scheduler runs before the controller.
    scheduler_first: bool,
    next_number: u64,
}

/// A machine with its kubelet. One without a node is powered off, unless `missing` is set.
#[derive(Clone)]
struct Machine {
    name: String,
    up: bool,
    node: Option<Node>,
    /// Since when its node is missing in the API although it runs.
    missing: Option<Timestamp>,
}

#[derive(Clone)]
struct Pod {
    object: cluster::Pod,
    /// The node it is pinned to.
    pinned: String,
    /// The public host key at its creation.
    key: String,
}

/// A running process, independent of the API.
#[derive(Clone, Debug)]
struct Process {
    pod_uid: String,
    pod_name: String,
    machine: String,
}

#[derive(Clone)]
struct Secret {
    owner: String,
    key: String,
}

impl Cluster {
    fn new(server: DevServer) -> Self {
        let request = Request::new(server).claim(|state| {
            if let Some(claim) = &mut state.claim {
                claim.shared = true;
            }
        });
        let machines = ["node-1", "node-2", "node-3"].map(Machine::new).to_vec();
        let mut cluster = Self {
            now: at(1_000_000),
            request,
            version: 1,
            deleted: false,
            machines,
            pods: vec![],
            processes: vec![],
            secret: None,
            service: None,
            image_error: None,
            entrypoint: Ok(vec![]),
            agents: None,
            operator: Operator::default(),
            observer: Observer::default(),
            writes: 0,
            fault: None,
            interleaved: None,
            planned_on: None,
            scheduler_first: false,
            next_number: 0,
        };
        cluster.operator.dirty = true;
        cluster
    }

    fn server(&self) -> &DevServer {
        &self.request.server
    }

    fn status(&self) -> DevServerStatus {
        self.server().status.clone().unwrap_or_default()
    }

    fn phase(&self) -> Option<Phase> {
        self.server().status.as_ref().and_then(|status| status.phase)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn has_volume(&self) -> bool {
        !matches!(self.server().spec.home, odc_api::v1alpha1::Home::Ephemeral(_))
    }

    /// Triggers a reconciliation.
    fn changed(&mut self) {
        self.operator.dirty = true;
    }

    /// Runs controller and scheduler until both are done.
    fn work(&mut self) {
        let mut rounds = 0;
        while !self.operator.down && !self.deleted {
            self.observe_missing_nodes();
            rounds += 1;
            assert!(rounds < 60, "the operator does not converge: {:?}", self.observer.log);
            if self.scheduler_first && self.schedule() {
                continue;
            }
            if self.operator.dirty || self.operator.due.is_some_and(|due| due <= self.now) {
                self.reconcile();
            } else if !self.schedule() {
                break;
            }
        }
        self.check_stable();
    }

    /// Runs operator and kubelets until all are done, without advancing the clock.
    fn settle(&mut self) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 60, "the cluster does not converge: {:?}", self.observer.log);
            self.work();
            let progressed = self.kubelet();
            if !progressed && (!self.operator.dirty || self.operator.down || self.deleted) {
                break;
            }
        }
    }

    /// Advances the clock; operator and kubelets run.
    fn pass(&mut self, by: Duration) {
        self.advance(by, Self::settle);
    }

    /// Advances the clock; only the operator runs.
    fn tick(&mut self, by: Duration) {
        self.advance(by, Self::work);
    }

    fn advance(&mut self, by: Duration, work: fn(&mut Self)) {
        let end = self.now.saturating_add(by).unwrap();
        loop {
            work(self);
            let due =
                [self.operator.due, self.scheduler_due()].into_iter().flatten().filter(|_| !self.operator.down).min();
            let next = due.filter(|due| *due <= end);
            self.check_nothing_due_before(next.unwrap_or(end));
            self.set_clock(next.unwrap_or(end));
            if next.is_none() {
                work(self);
                return;
            }
        }
    }

    fn set_clock(&mut self, then: Timestamp) {
        let passed = Duration::try_from(self.now.duration_until(then)).unwrap_or_default();
        if self.phase() == Some(Phase::Running) {
            self.observer.ran += passed;
        }
        self.now = then.max(self.now);
    }

    /// Checks that the requeue time is not too late: there is nothing to write at any moment before `then`.
    fn check_nothing_due_before(&mut self, then: Timestamp) {
        if self.operator.down || self.deleted {
            return;
        }
        let (now, all) = (self.now, self.now.duration_until(then));
        for moment in [all / 2, all - k8s_openapi::jiff::SignedDuration::from_millis(1)] {
            if moment.is_positive() {
                self.now = now.saturating_add(moment).unwrap();
                let plan = self.plan();
                let empty =
                    plan.writes.is_empty() && plan.status.is_none() && plan.query.is_none() && plan.calls.is_empty();
                assert!(empty, "{moment:#} after {now} a write is due without a requeue: {plan:#?}");
            }
        }
        self.now = now;
    }

    /// Checks that another reconciliation writes nothing, neither by this operator nor by a restarted one.
    fn check_stable(&mut self) {
        if self.operator.down || self.deleted {
            return;
        }
        let plan = self.plan();
        assert!(
            plan.writes.is_empty() && plan.status.is_none() && plan.query.is_none(),
            "a second reconciliation: {plan:#?}"
        );
        let state = std::mem::take(&mut self.operator);
        let plan = self.plan();
        self.operator = state;
        // Secrets are not watched, so a new operator learns of an existing one when it tries to create it. It writes
        // nothing else before it knows the answer.
        if !matches!(plan.writes.as_slice(), [Write::CreateWithKeys { .. }]) {
            assert!(plan.writes.is_empty() && plan.status.is_none(), "after a restart: {plan:#?}");
        }
        self.check_lifetime();
    }
}

impl Machine {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), up: true, node: Some(node(name, 0)), missing: None }
    }
}

fn node(name: &str, number: u64) -> Node {
    Node { uid: format!("uid-{name}-{number}"), ..fixtures::node(name) }
}
