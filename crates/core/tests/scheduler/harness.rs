//! Test harness: a model of the cluster that applies plans to the scheduler state.

use std::collections::{BTreeMap, BTreeSet};

use odc_api::v1alpha1::Priority;
use odc_core::resources::Resources;
use odc_core::scheduler::{
    AccountSpec, ClusterState, Event, Limits, Node, NodeState, Plan, Policy, Request, RunInfo, Server, ServerState,
};

pub const GPU: &str = "gpu";
pub const ZONE: &str = "zone";

#[derive(Clone, Debug)]
pub struct Harness {
    pub state: ClusterState,
    pub policy: Policy,
    pub now: i64,
    pub nodes: BTreeMap<String, Node>,
    pub servers: BTreeMap<String, Server>,
    pub teams: BTreeMap<String, AccountSpec>,
    pub users: BTreeMap<String, AccountSpec>,
}

/// How many cases the long tests run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    Quick,
    Default,
    Full,
}

impl Effort {
    /// Reads `ODC_EFFORT`: any value selects `Default`. `./dev test` does not set it.
    pub fn from_env() -> Self {
        if cfg!(feature = "full") {
            Self::Full
        } else if std::env::var_os("ODC_EFFORT").is_some() {
            Self::Default
        } else {
            Self::Quick
        }
    }
}

pub fn amounts(gpus: i64) -> Resources {
    let mut amounts = Resources::default().with_device(GPU, gpus);
    amounts.pods = 1;
    amounts
}

pub fn node(name: &str, gpus: i64, zone: &str) -> Node {
    let mut capacity = amounts(gpus);
    capacity.pods = 100;
    Node { name: name.into(), labels: [(ZONE.to_owned(), zone.to_owned())].into(), capacity, ..Node::default() }
}

pub fn server(id: &str, gpus: i64, lifetime: i64, queued_at: i64) -> Server {
    Server {
        id: id.into(),
        name: id.into(),
        owner: "ada".into(),
        team: None,
        flavor: "h100".into(),
        request: Request { nodes: 1, per_node: amounts(gpus), device: Some(GPU.into()), ..Request::default() },
        priority: Priority::Normal,
        preemptible: false,
        queued_at,
        not_before: None,
        booking_confirmed: false,
        max_hold_time: Some(lifetime),
        preemptions: 0,
        rejected_by: BTreeMap::new(),
        excluded_this_cycle: false,
        state: ServerState::Pending,
    }
}

impl Harness {
    pub fn new(policy: Policy) -> Self {
        Self {
            state: ClusterState::new(),
            policy,
            now: 0,
            nodes: BTreeMap::new(),
            servers: BTreeMap::new(),
            teams: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }

    pub fn apply(&mut self, event: Event) {
        self.state.apply(event, self.policy.usage_half_life, self.now);
    }

    pub fn node(&mut self, node: Node) {
        self.nodes.insert(node.name.clone(), node.clone());
        self.apply(Event::Node(node));
    }

    pub fn team(&mut self, name: &str, devices: Option<i64>, borrowing_limit: Option<i64>) {
        let limits = Limits { devices, ..Limits::default() };
        self.set_team(AccountSpec { name: name.into(), weight: 1, limits, borrowing_limit, usage: None });
    }

    pub fn set_team(&mut self, account: AccountSpec) {
        self.teams.insert(account.name.clone(), account.clone());
        self.apply(Event::Team(account));
    }

    pub fn user(&mut self, name: &str, limits: Limits) {
        let account = AccountSpec { name: name.into(), weight: 1, limits, borrowing_limit: None, usage: None };
        self.users.insert(name.into(), account.clone());
        self.apply(Event::User(account));
    }

    pub fn put(&mut self, server: Server) {
        self.servers.insert(server.id.clone(), server.clone());
        self.apply(Event::Server(Box::new(server)));
    }

    pub fn remove(&mut self, id: &str) {
        self.servers.remove(id);
        self.apply(Event::ServerDeleted(id.into()));
    }

    /// Makes a node unschedulable and returns its servers to the queue.
    pub fn make_unschedulable(&mut self, name: &str) {
        let mut node = self.nodes[name].clone();
        node.state = NodeState::Unschedulable;
        self.node(node);
        let is_affected = |server: &&Server| {
            running(server).is_some_and(|running| running.nodes.iter().any(|(node, _)| node == name))
        };
        let affected: Vec<Server> = self.servers.values().filter(is_affected).cloned().collect();
        for server in affected {
            self.put(Server { state: ServerState::Pending, ..server });
        }
    }

    pub fn make_schedulable(&mut self, name: &str) {
        let mut node = self.nodes[name].clone();
        node.state = NodeState::Schedulable;
        self.node(node);
    }

    pub fn plan(&mut self) -> Plan {
        self.state.plan(&self.policy, self.now)
    }

    /// Plans with another pending server, without changing the state. Returns the state with the server too.
    pub fn dry_run(&self, server: Server) -> (ClusterState, Plan) {
        let mut state = self.state.clone();
        state.apply(Event::Server(Box::new(server)), self.policy.usage_half_life, self.now);
        let plan = state.plan_dry_run(&self.policy, self.now);
        (state, plan)
    }

    pub fn apply_plan(&mut self, plan: &Plan) {
        self.try_apply_plan(plan).unwrap();
    }

    /// Applies a plan step by step. Returns an error for a step that violates an invariant.
    pub fn try_apply_plan(&mut self, plan: &Plan) -> Result<(), String> {
        self.check_preemptions(plan)?;
        for id in &plan.confirmed_bookings {
            let server = Server { booking_confirmed: true, ..self.servers[id].clone() };
            self.put(server);
        }
        for preemption in &plan.preemptions {
            let mut server = self.servers[&preemption.id].clone();
            server.preemptions += 1;
            if let ServerState::Running(running) = &mut server.state {
                (running.end, running.terminating) = (Some(preemption.end), true);
            }
            self.put(server);
        }
        for assignment in &plan.assignments {
            self.check_assignment(assignment)?;
            let mut server = self.servers[&assignment.id].clone();
            let nodes = assignment.nodes.iter().map(|node| (node.clone(), server.request.per_node.clone())).collect();
            let end = server.max_hold_time.map(|hold_time| self.now.saturating_add(hold_time));
            server.state = ServerState::Running(RunInfo { nodes, started_at: self.now, end, terminating: false });
            self.put(server);
        }
        Ok(())
    }

    /// Removes servers that have reached their end; preempted ones are pending again.
    pub fn expire(&mut self) {
        let is_over =
            |server: &&Server| running(server).is_some_and(|running| running.end.is_some_and(|end| end <= self.now));
        let over: Vec<Server> = self.servers.values().filter(is_over).cloned().collect();
        for server in over {
            if running(&server).is_some_and(|running| running.terminating) {
                self.put(Server { state: ServerState::Pending, ..server });
            } else {
                self.remove(&server.id);
            }
        }
    }

    /// Returns a new state with the same objects, usage and reservations.
    pub fn rebuilt_state(&self) -> ClusterState {
        let mut state = ClusterState::new();
        let usage_half_life = self.policy.usage_half_life;
        let mut apply = |event| state.apply(event, usage_half_life, self.now);
        self.servers.values().rev().for_each(|server| apply(Event::Server(Box::new(server.clone()))));
        self.nodes.values().rev().for_each(|node| apply(Event::Node(node.clone())));
        let teams: BTreeSet<&String> = self.servers.values().filter_map(|server| server.team.as_ref()).collect();
        for name in teams.into_iter().chain(self.teams.keys()) {
            let known = self.teams.get(name).cloned().unwrap_or_else(|| default_account(name));
            apply(Event::Team(AccountSpec { usage: self.state.team_usage(name, usage_half_life, self.now), ..known }));
        }
        let users: BTreeSet<&String> = self.servers.values().map(|server| &server.owner).collect();
        for name in users.into_iter().chain(self.users.keys()) {
            let known = self.users.get(name).cloned().unwrap_or_else(|| default_account(name));
            apply(Event::User(AccountSpec { usage: self.state.user_usage(name, usage_half_life, self.now), ..known }));
        }
        self.state.reservations().for_each(|reservation| apply(Event::Reservation(reservation)));
        state
    }
}

fn default_account(name: &str) -> AccountSpec {
    AccountSpec { name: name.to_owned(), ..AccountSpec::default() }
}

pub fn running(server: &Server) -> Option<&RunInfo> {
    match &server.state {
        ServerState::Running(running) => Some(running),
        ServerState::Pending | ServerState::Inactive => None,
    }
}

/// Returns a policy without fair shares, so that the order is that of arrival.
pub fn without_shares() -> Policy {
    Policy { fair_share_resolution: i64::MAX, ..Policy::default() }
}
