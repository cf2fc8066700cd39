//! A cluster on paper: one server with its pods, Secret and Service, a few nodes with their kubelets, the queue, the
//! operator and a clock. Everything that can happen is a method, every write of ours is a point where the operator may
//! die, and what must never happen is checked at every step.

mod agent;
mod api;
mod crash;
mod kubelet;
mod observer;
mod operator;
mod property;
mod queue;
mod race;
mod script;
mod story;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::{DevServer, DevServerStatus, Phase};
use serde_json::Value;

use super::fixtures::{self, Request, at};
use crate::seen::{self, Node};
use agent::Agents;
use api::Fault;
use observer::Observer;
use operator::Operator;
use script::Event;

#[derive(Clone)]
struct Cluster {
    now: Timestamp,
    /// The stored server, and what it is checked against.
    request: Request,
    /// Of the stored server.
    version: u64,
    deleted: bool,
    machines: Vec<Machine>,
    pods: Vec<Pod>,
    processes: Vec<Process>,
    secret: Option<Secret>,
    service: Option<Value>,
    /// What a kubelet says that tries to pull the server's image, if it cannot.
    image_trouble: Option<&'static str>,
    /// What a registry says that is asked for the image's entrypoint.
    entrypoint: Result<Vec<String>, String>,
    /// Absent where none can be asked.
    agents: Option<Agents>,
    operator: Operator,
    observer: Observer,
    /// Our writes so far, refused ones included.
    writes: usize,
    fault: Option<(usize, Fault)>,
    /// What somebody else does right before our write of that number.
    between: Option<(usize, Event)>,
    /// How everything was when the writes that are being made were decided.
    decided_on: Option<Box<Cluster>>,
    /// Whether the queue is faster than the driver.
    queue_first: bool,
    numbers: u64,
}

/// A node, and whether its kubelet works. One without an entry in the API is switched off.
#[derive(Clone)]
struct Machine {
    name: String,
    up: bool,
    node: Option<Node>,
    /// Since when it is missing in the API although it works.
    missing: Option<Timestamp>,
}

#[derive(Clone)]
struct Pod {
    seen: seen::Pod,
    /// The node it must run on.
    pinned: String,
    /// The public host key it was made for.
    key: String,
}

/// What really runs, whatever the API says.
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
        let request = Request::of(server).claim(|state| {
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
            image_trouble: None,
            entrypoint: Ok(vec![]),
            agents: None,
            operator: Operator::default(),
            observer: Observer::default(),
            writes: 0,
            fault: None,
            between: None,
            decided_on: None,
            queue_first: false,
            numbers: 0,
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
        self.numbers += 1;
        self.numbers
    }

    /// Whether pods of it share a disk.
    fn has_disk(&self) -> bool {
        !matches!(self.server().spec.home, odc_api::v1alpha1::Home::Ephemeral(_))
    }

    /// Something changed that the operator watches.
    fn changed(&mut self) {
        self.operator.dirty = true;
    }

    /// Lets driver and queue work until neither has anything to do.
    fn work(&mut self) {
        let mut rounds = 0;
        while !self.operator.down && !self.deleted {
            self.notice_missing();
            rounds += 1;
            assert!(rounds < 60, "the operator does not come to rest: {:?}", self.observer.log);
            if self.queue_first && self.queue() {
                continue;
            }
            if self.operator.dirty || self.operator.due.is_some_and(|due| due <= self.now) {
                self.reconcile();
            } else if !self.queue() {
                break;
            }
        }
        self.check_rest();
    }

    /// Lets everything happen that needs no time.
    fn settle(&mut self) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 60, "the cluster does not come to rest: {:?}", self.observer.log);
            self.work();
            let moved = self.kubelet();
            if !moved && (!self.operator.dirty || self.operator.down || self.deleted) {
                break;
            }
        }
    }

    /// Time passes, and everybody works.
    fn pass(&mut self, by: Duration) {
        self.advance(by, Self::settle);
    }

    /// Time passes, and the kubelets do nothing.
    fn tick(&mut self, by: Duration) {
        self.advance(by, Self::work);
    }

    fn advance(&mut self, by: Duration, work: fn(&mut Self)) {
        let end = self.now.saturating_add(by).unwrap();
        loop {
            work(self);
            let due = [self.operator.due, self.queue_due()].into_iter().flatten().filter(|_| !self.operator.down).min();
            let next = due.filter(|due| *due <= end);
            self.nothing_is_due_before(next.unwrap_or(end));
            self.run_clock_to(next.unwrap_or(end));
            if next.is_none() {
                work(self);
                return;
            }
        }
    }

    fn run_clock_to(&mut self, then: Timestamp) {
        let passed = Duration::try_from(self.now.duration_until(then)).unwrap_or_default();
        if self.phase() == Some(Phase::Running) {
            self.observer.ran += passed;
        }
        self.now = then.max(self.now);
    }

    /// Whether the operator said when to look again: at no moment before then there is anything to write.
    fn nothing_is_due_before(&mut self, then: Timestamp) {
        if self.operator.down || self.deleted {
            return;
        }
        let (now, all) = (self.now, self.now.duration_until(then));
        for moment in [all / 2, all - k8s_openapi::jiff::SignedDuration::from_millis(1)] {
            if moment.is_positive() {
                self.now = now.saturating_add(moment).unwrap();
                let plan = self.decide();
                let idle =
                    plan.writes.is_empty() && plan.status.is_none() && plan.ask.is_none() && plan.calls.is_empty();
                assert!(idle, "{moment:#} after {now} something is due, but nobody looks: {plan:#?}");
            }
        }
        self.now = now;
    }

    /// When nobody has anything to do, nobody has anything to write, a newly started operator neither.
    fn check_rest(&mut self) {
        if self.operator.down || self.deleted {
            return;
        }
        let plan = self.decide();
        assert!(plan.writes.is_empty() && plan.status.is_none() && plan.ask.is_none(), "a second look: {plan:#?}");
        let memory = std::mem::take(&mut self.operator);
        let plan = self.decide();
        assert!(plan.writes.is_empty() && plan.status.is_none(), "after a restart: {plan:#?}");
        self.operator = memory;
        self.check_time();
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
