//! What the scheduler does with each pod as it comes, alone in the queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{self, Ask, Event, Policy, Running, Server, State, World};

use super::super::openb::{Node, Pod};
use super::super::workload::lifetime;

const DEVICE: &str = "gpu";
const YES: &str = "yes";
const MEBIBYTE: i64 = 1 << 20;

pub(super) struct Ours {
    world: World,
    policy: Policy,
    /// The numbers of nodes by their names.
    numbers: HashMap<String, usize>,
}

impl Ours {
    pub fn new(nodes: &[Node], pods: &[&Pod]) -> Self {
        let (policy, mut world, mut numbers) = (Policy::default(), World::new(), HashMap::new());
        // A node has a label for every choice of models that it is one of.
        let choices: BTreeSet<&str> =
            pods.iter().map(|pod| pod.models.as_str()).filter(|all| !all.is_empty()).collect();
        for (number, node) in nodes.iter().enumerate() {
            numbers.insert(node.name.clone(), number);
            let fits = choices.iter().filter(|choice| choice.split('|').any(|model| model == node.model));
            let labels = fits.map(|choice| ((*choice).to_owned(), YES.to_owned())).collect();
            let mut capacity = Amounts::default().with_device(DEVICE, node.devices);
            (capacity.cpu, capacity.memory, capacity.pods) = (node.cpu, node.memory * MEBIBYTE, 110);
            let node = scheduler::Node { name: node.name.clone(), labels, capacity, ..scheduler::Node::default() };
            world.apply(Event::Node(node), policy.half_life, 0);
        }
        Self { world, policy, numbers }
    }

    pub fn place(&mut self, number: usize, pod: &Pod, now: i64) -> Option<usize> {
        let mut server = server(number, pod, now);
        self.tell(Event::Server(Box::new(server.clone())), now);
        let plan = self.world.plan(&self.policy, now);
        let Some(node) = plan.grants.into_iter().find_map(|grant| grant.nodes.into_iter().next()) else {
            self.leave(number, now);
            return None;
        };
        let at = self.numbers.get(&node).copied();
        let end = server.lifetime.map(|lifetime| now + lifetime);
        let on = vec![(node, server.ask.each.clone())];
        server.state = State::Running(Running { on, since: now, end, leaving: false });
        self.tell(Event::Server(Box::new(server)), now);
        at
    }

    pub fn leave(&mut self, number: usize, now: i64) {
        self.tell(Event::ServerGone(number.to_string()), now);
    }

    fn tell(&mut self, event: Event, now: i64) {
        self.world.apply(event, self.policy.half_life, now);
    }
}

fn server(number: usize, pod: &Pod, now: i64) -> Server {
    let mut each = Amounts::default().with_device(DEVICE, pod.stay.devices);
    (each.cpu, each.memory, each.pods) = (pod.cpu, pod.memory * MEBIBYTE, 1);
    let selector = if pod.models.is_empty() { None } else { Some((pod.models.clone(), YES.to_owned())) };
    Server {
        id: number.to_string(),
        name: number.to_string(),
        owner: "all".to_owned(),
        team: None,
        flavor: DEVICE.to_owned(),
        ask: Ask {
            nodes: 1,
            each,
            device: Some(DEVICE.to_owned()),
            selector: selector.into_iter().collect(),
            ..Ask::default()
        },
        priority: Priority::Normal,
        preemptible: false,
        queued: now,
        not_before: None,
        booked: false,
        lifetime: Some(lifetime(pod.stay.seconds)),
        preemptions: 0,
        unfit: BTreeMap::new(),
        barred: false,
        state: State::Waiting,
    }
}
