//! Whose turn it is. Servers that wait are looked at in their order, and each keeps the nodes it waits for from everybody
//! behind it: a later one may use other nodes, but never delays an earlier one.

use k8s_openapi::jiff::Timestamp;

use super::fit::{Nodes, Shapes};
use super::quota::{Excess, Ledger};
use super::room::Room;
use super::{Policy, Refusal, Refusals, Server, gang};

/// The servers that want to run and may not yet.
pub(super) struct Queue<'a> {
    entries: Vec<Entry<'a>>,
    shapes: Shapes<'a>,
    room: Room<'a>,
    ledger: Ledger<'a>,
}

struct Entry<'a> {
    server: &'a Server,
    shape: usize,
    /// By nodes it could use otherwise.
    refusals: Vec<&'a Refusal>,
    /// Its grant was just taken back. It gets none at once, for others were promised something from the same facts; but
    /// it has its place.
    barred: bool,
}

/// A server that gets nodes.
pub(super) struct Granted<'a> {
    pub server: &'a Server,
    pub nodes: Vec<String>,
}

/// A server that does not, and the state that shows why.
pub(super) struct Waiting<'a> {
    pub server: &'a Server,
    pub shape: usize,
    pub refusals: Vec<&'a Refusal>,
    pub stop: Stop,
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Quota(Excess),
    /// No node could ever hold it.
    Never,
    /// The nodes that could hold it will not have it.
    Refused,
    NoRoom,
    /// Only servers that came before it.
    Behind,
    /// The grant it had was taken back.
    Barred,
}

/// What all queueing came to.
pub(super) struct Settled<'a> {
    pub granted: Vec<Granted<'a>>,
    /// In order.
    pub waiting: Vec<Waiting<'a>>,
    pub shapes: Shapes<'a>,
    pub room: Room<'a>,
}

enum Verdict {
    Grant(Vec<usize>),
    Stop(Stop),
}

/// What is known in the middle of a pass.
struct Pass {
    /// The nodes that somebody earlier waits for.
    kept: Vec<bool>,
    /// What stopped a server of each shape. Within a pass room only shrinks, so it stops the next one too.
    stopped: Vec<Option<Stop>>,
}

impl<'a> Queue<'a> {
    pub fn new(room: Room<'a>, ledger: Ledger<'a>) -> Self {
        Self { entries: Vec::new(), shapes: Shapes::new(), room, ledger }
    }

    /// Puts a server at the end.
    pub fn push(&mut self, server: &'a Server, barred: bool, unfit: &'a Refusals, policy: &Policy, now: Timestamp) {
        let shape = self.shapes.find(&server.request, &self.room, policy, now);
        let refusals = unfit.of_server(&server.uid).collect();
        self.entries.push(Entry { server, shape, refusals, barred });
    }

    /// Grants until nothing more can be granted. A grant can use up the quota of an earlier server, which then waits for
    /// that and no longer for its nodes; so the last pass is always one that grants nothing, and the next plan, which
    /// begins where this one ended, has nothing to add.
    pub fn settle(mut self) -> Settled<'a> {
        let mut granted = Vec::new();
        loop {
            let (before, stops) = (granted.len(), self.pass(&mut granted));
            if granted.len() == before {
                let waiting = self.entries.into_iter().zip(stops).map(|(entry, stop)| Waiting {
                    server: entry.server,
                    shape: entry.shape,
                    refusals: entry.refusals,
                    stop,
                });
                return Settled { granted, waiting: waiting.collect(), shapes: self.shapes, room: self.room };
            }
        }
    }

    /// Looks at each server once, and says what stops those that stay.
    fn pass(&mut self, granted: &mut Vec<Granted<'a>>) -> Vec<Stop> {
        let mut pass = Pass { kept: vec![false; self.room.len()], stopped: vec![None; self.shapes.len()] };
        let mut stops = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            match self.verdict(&entry, &mut pass) {
                Verdict::Grant(nodes) => granted.push(self.grant(entry.server, &nodes)),
                Verdict::Stop(stop) => {
                    stops.push(stop);
                    self.entries.push(entry);
                }
            }
        }
        stops
    }

    fn grant(&mut self, server: &'a Server, nodes: &[usize]) -> Granted<'a> {
        for at in nodes {
            self.room.take(*at, &server.request.each);
        }
        self.ledger.charge(server);
        let names = self.room.among(nodes).map(|(_, place)| place.node.name.clone());
        Granted { server, nodes: names.collect() }
    }

    fn verdict(&self, entry: &Entry<'a>, pass: &mut Pass) -> Verdict {
        // Whoever is stopped by a quota waits for nobody's nodes, and so keeps none.
        if let Some(excess) = self.ledger.excess(entry.server) {
            return Verdict::Stop(Stop::Quota(excess));
        }
        let ordinary = entry.refusals.is_empty() && !entry.barred;
        if let Some(Some(stop)) = pass.stopped.get(entry.shape).filter(|_| ordinary) {
            return Verdict::Stop(stop.clone());
        }
        let Some(nodes) = self.shapes.nodes(entry.shape) else { return Verdict::Stop(Stop::Never) };
        let verdict = self.try_nodes(entry, nodes, pass);
        if let (Verdict::Stop(stop), Some(known)) = (&verdict, pass.stopped.get_mut(entry.shape).filter(|_| ordinary)) {
            *known = Some(stop.clone());
        }
        verdict
    }

    fn try_nodes(&self, entry: &Entry<'a>, nodes: &Nodes, pass: &mut Pass) -> Verdict {
        if nodes.could.is_empty() {
            return Verdict::Stop(Stop::Never);
        }
        if !entry.barred
            && let Some(chosen) = self.choose(entry, nodes, |at| pass.is_free(at))
        {
            return Verdict::Grant(chosen);
        }
        let hope = self.hope(entry, nodes);
        pass.keep(&hope);
        Verdict::Stop(if entry.barred {
            Stop::Barred
        } else if hope.is_empty() && !nodes.hope.is_empty() {
            Stop::Refused
        } else if self.choose(entry, nodes, |_| true).is_some() {
            Stop::Behind
        } else {
            Stop::NoRoom
        })
    }

    fn choose(&self, entry: &Entry<'a>, nodes: &Nodes, usable: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let request = &entry.server.request;
        let with_room = self.room.among(&nodes.open).filter(|(at, place)| {
            usable(*at) && place.free.holds(&request.each) && !entry.is_refused_by(&place.node.name)
        });
        gang::choose(request, with_room)
    }

    /// The nodes a server waits for.
    fn hope(&self, entry: &Entry<'a>, nodes: &Nodes) -> Vec<usize> {
        if entry.refusals.is_empty() {
            return nodes.hope.clone();
        }
        let willing = self.room.among(&nodes.hope).filter(|(_, place)| !entry.is_refused_by(&place.node.name));
        gang::enough(&entry.server.request, &self.room, &willing.map(|(at, _)| at).collect::<Vec<_>>())
    }
}

impl Entry<'_> {
    fn is_refused_by(&self, node: &str) -> bool {
        self.refusals.iter().any(|refusal| refusal.node == node)
    }
}

impl Pass {
    fn is_free(&self, at: usize) -> bool {
        self.kept.get(at).is_some_and(|kept| !kept)
    }

    fn keep(&mut self, nodes: &[usize]) {
        for at in nodes {
            if let Some(kept) = self.kept.get_mut(*at) {
                *kept = true;
            }
        }
    }
}
