//! A cluster that carries out plans and counts on its own what they come to.

use std::collections::{BTreeMap, BTreeSet};

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{Account, Ask, Event, Limits, Node, Plan, Policy, Running, Server, Service, State, World};

pub const GPU: &str = "gpu";
pub const ZONE: &str = "zone";

#[derive(Clone, Debug)]
pub struct Harness {
    pub world: World,
    pub policy: Policy,
    pub now: i64,
    pub nodes: BTreeMap<String, Node>,
    pub servers: BTreeMap<String, Server>,
    pub teams: BTreeMap<String, Account>,
    pub users: BTreeMap<String, Account>,
}

/// How much of what takes long is done: a little beside one's work, all of it where all tests run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    Quick,
    Whole,
    Full,
}

impl Effort {
    /// `./dev test` sets `ODC_EFFORT`.
    pub fn asked() -> Self {
        if cfg!(feature = "full") {
            Self::Full
        } else if std::env::var_os("ODC_EFFORT").is_some() {
            Self::Whole
        } else {
            Self::Quick
        }
    }
}

pub fn amounts(gpus: i64) -> Amounts {
    let mut amounts = Amounts::default().with_device(GPU, gpus);
    amounts.pods = 1;
    amounts
}

pub fn node(name: &str, gpus: i64, zone: &str) -> Node {
    let mut capacity = amounts(gpus);
    capacity.pods = 100;
    Node { name: name.into(), labels: [(ZONE.to_owned(), zone.to_owned())].into(), capacity, ..Node::default() }
}

pub fn server(id: &str, gpus: i64, lifetime: i64, queued: i64) -> Server {
    Server {
        id: id.into(),
        name: id.into(),
        owner: "ada".into(),
        team: None,
        flavor: "h100".into(),
        ask: Ask { nodes: 1, each: amounts(gpus), device: Some(GPU.into()), ..Ask::default() },
        priority: Priority::Normal,
        preemptible: false,
        queued,
        not_before: None,
        booked: false,
        lifetime: Some(lifetime),
        preemptions: 0,
        unfit: BTreeMap::new(),
        barred: false,
        state: State::Waiting,
    }
}

impl Harness {
    pub fn new(policy: Policy) -> Self {
        Self {
            world: World::new(),
            policy,
            now: 0,
            nodes: BTreeMap::new(),
            servers: BTreeMap::new(),
            teams: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }

    pub fn tell(&mut self, event: Event) {
        self.world.apply(event, self.policy.half_life, self.now);
    }

    pub fn node(&mut self, node: Node) {
        self.nodes.insert(node.name.clone(), node.clone());
        self.tell(Event::Node(node));
    }

    pub fn team(&mut self, name: &str, devices: Option<i64>, borrow: Option<i64>) {
        let limits = Limits { devices, ..Limits::default() };
        let account = Account { name: name.into(), weight: 1, limits, borrow, used: None };
        self.teams.insert(name.into(), account.clone());
        self.tell(Event::Team(account));
    }

    pub fn user(&mut self, name: &str, limits: Limits) {
        let account = Account { name: name.into(), weight: 1, limits, borrow: None, used: None };
        self.users.insert(name.into(), account.clone());
        self.tell(Event::User(account));
    }

    pub fn put(&mut self, server: Server) {
        self.servers.insert(server.id.clone(), server.clone());
        self.tell(Event::Server(Box::new(server)));
    }

    pub fn remove(&mut self, id: &str) {
        self.servers.remove(id);
        self.tell(Event::ServerGone(id.into()));
    }

    /// A node takes nobody any more; whoever is on it waits again.
    pub fn close(&mut self, name: &str) {
        let mut node = self.nodes[name].clone();
        node.service = Service::Closed;
        self.node(node);
        let on =
            |server: &&Server| running(server).is_some_and(|running| running.on.iter().any(|(node, _)| node == name));
        let lost: Vec<Server> = self.servers.values().filter(on).cloned().collect();
        for server in lost {
            self.put(Server { state: State::Waiting, ..server });
        }
    }

    pub fn open(&mut self, name: &str) {
        let mut node = self.nodes[name].clone();
        node.service = Service::Open;
        self.node(node);
    }

    pub fn plan(&mut self) -> Plan {
        self.world.plan(&self.policy, self.now)
    }

    pub fn carry_out(&mut self, plan: &Plan) {
        for id in &plan.booked {
            let server = Server { booked: true, ..self.servers[id].clone() };
            self.put(server);
        }
        for preemption in &plan.preemptions {
            let mut server = self.servers[&preemption.id].clone();
            server.preemptions += 1;
            if let State::Running(running) = &mut server.state {
                (running.end, running.leaving) = (Some(preemption.end), true);
            }
            self.put(server);
        }
        for grant in &plan.grants {
            let mut server = self.servers[&grant.id].clone();
            let on = grant.nodes.iter().map(|node| (node.clone(), server.ask.each.clone())).collect();
            let end = server.lifetime.map(|lifetime| self.now.saturating_add(lifetime));
            server.state = State::Running(Running { on, since: self.now, end, leaving: false });
            self.put(server);
        }
        self.check(plan);
    }

    /// Everybody whose time is over leaves; who was asked to leave waits again.
    pub fn expire(&mut self) {
        let over =
            |server: &&Server| running(server).is_some_and(|running| running.end.is_some_and(|end| end <= self.now));
        let over: Vec<Server> = self.servers.values().filter(over).cloned().collect();
        for server in over {
            if running(&server).is_some_and(|running| running.leaving) {
                self.put(Server { state: State::Waiting, ..server });
            } else {
                self.remove(&server.id);
            }
        }
    }

    /// What must hold at every instant, counted plainly.
    pub fn check(&self, plan: &Plan) {
        let mut used: BTreeMap<&str, i64> = BTreeMap::new();
        for server in self.servers.values() {
            for (node, what) in running(server).into_iter().flat_map(|running| &running.on) {
                *used.entry(node).or_default() += what.device(GPU);
            }
        }
        for (node, used) in used {
            assert!(used <= self.nodes[node].capacity.device(GPU), "{node} gives {used} at {}", self.now);
        }
        for grant in &plan.grants {
            let server = &self.servers[&grant.id];
            let nodes: BTreeSet<&String> = grant.nodes.iter().collect();
            assert_eq!((nodes.len(), grant.nodes.len()), (server.ask.nodes(), server.ask.nodes()), "{grant:?}");
            assert!(nodes.iter().all(|node| self.nodes[*node].service == Service::Open), "{grant:?}");
            if let Some(label) = server.ask.topology.as_ref().filter(|_| server.ask.nodes > 1) {
                let zones: BTreeSet<_> = nodes.iter().map(|node| self.nodes[*node].labels.get(label)).collect();
                assert!(zones.len() == 1 && !zones.contains(&None), "{grant:?} is in {zones:?}");
            }
            assert!(server.not_before.is_none_or(|at| at <= self.now), "{grant:?} before its time");
        }
        self.check_quotas(plan);
    }

    /// No team is above its quota and what it may borrow, and nobody borrows what is not idle.
    fn check_quotas(&self, plan: &Plan) {
        if plan.grants.is_empty() {
            return;
        }
        let held = |team: &str| -> i64 {
            let of_team = self.servers.values().filter(|server| server.team.as_deref() == Some(team));
            of_team.filter(|server| running(server).is_some()).map(|server| server.ask.devices()).sum()
        };
        for grant in &plan.grants {
            let server = &self.servers[&grant.id];
            let Some(team) = server.team.as_ref().and_then(|team| self.teams.get(team)) else { continue };
            let Some(limit) = team.limits.devices else { continue };
            let most = match (grant.borrowed, team.borrow) {
                (false, _) => limit,
                (true, Some(more)) => limit + more,
                (true, None) => i64::MAX,
            };
            // Whoever borrowed in the same plan came after those who did not.
            let lent = plan.grants.iter().filter(|other| other.borrowed && other.id != grant.id && !grant.borrowed);
            let lent = lent.map(|other| &self.servers[&other.id]).filter(|other| other.team == server.team);
            let lent: i64 = lent.map(|other| other.ask.devices()).sum();
            assert!(held(&team.name) - lent <= most, "team {} holds {} at {}", team.name, held(&team.name), self.now);
            let asked_back = server.preemptible && server.preemptions < self.policy.most_preemptions;
            assert!(!grant.borrowed || asked_back, "{grant:?} cannot be asked back");
        }
        for server in plan.grants.iter().map(|grant| &self.servers[&grant.id]) {
            let Some(most) = self.users.get(&server.owner).and_then(|user| user.limits.devices) else { continue };
            let of_user = self.servers.values().filter(|other| other.owner == server.owner && running(other).is_some());
            let held: i64 = of_user.map(|server| server.ask.devices()).sum();
            assert!(held <= most, "user {} holds {held} at {}", server.owner, self.now);
        }
    }

    /// The same facts told to a world that knows nothing else: what is there, what was used, what was promised.
    pub fn told_anew(&self) -> World {
        let mut world = World::new();
        let half_life = self.policy.half_life;
        let mut tell = |event| world.apply(event, half_life, self.now);
        self.servers.values().rev().for_each(|server| tell(Event::Server(Box::new(server.clone()))));
        self.nodes.values().rev().for_each(|node| tell(Event::Node(node.clone())));
        let teams: BTreeSet<&String> = self.servers.values().filter_map(|server| server.team.as_ref()).collect();
        for name in teams.into_iter().chain(self.teams.keys()) {
            let known = self.teams.get(name).cloned().unwrap_or_else(|| nobody(name));
            tell(Event::Team(Account { used: self.world.used_by_team(name, half_life, self.now), ..known }));
        }
        let users: BTreeSet<&String> = self.servers.values().map(|server| &server.owner).collect();
        for name in users.into_iter().chain(self.users.keys()) {
            let known = self.users.get(name).cloned().unwrap_or_else(|| nobody(name));
            tell(Event::User(Account { used: self.world.used_by_user(name, half_life, self.now), ..known }));
        }
        self.world.promises().for_each(|promise| tell(Event::Promise(promise)));
        world
    }
}

/// An account nothing was said about.
fn nobody(name: &str) -> Account {
    Account { name: name.to_owned(), ..Account::default() }
}

pub fn running(server: &Server) -> Option<&Running> {
    match &server.state {
        State::Running(running) => Some(running),
        State::Waiting | State::Resting => None,
    }
}

/// Fair shares that never differ, for what is to depend on arrival alone.
pub fn without_shares() -> Policy {
    Policy { share_step: i64::MAX, ..Policy::default() }
}
