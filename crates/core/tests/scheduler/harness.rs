//! A cluster that carries out plans.

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
        self.set_team(Account { name: name.into(), weight: 1, limits, borrow, used: None });
    }

    pub fn set_team(&mut self, account: Account) {
        self.teams.insert(account.name.clone(), account.clone());
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
        self.try_carry_out(plan).unwrap();
    }

    /// Does what a plan says, one thing after the other, and says which of them may not be.
    pub fn try_carry_out(&mut self, plan: &Plan) -> Result<(), String> {
        self.check_preemptions(plan)?;
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
            self.check_grant(grant)?;
            let mut server = self.servers[&grant.id].clone();
            let on = grant.nodes.iter().map(|node| (node.clone(), server.ask.each.clone())).collect();
            let end = server.lifetime.map(|lifetime| self.now.saturating_add(lifetime));
            server.state = State::Running(Running { on, since: self.now, end, leaving: false });
            self.put(server);
        }
        Ok(())
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
