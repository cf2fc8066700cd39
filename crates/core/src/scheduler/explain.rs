//! Why a server waits: one word for programs and one sentence for people. No times, no places in the queue and nobody
//! else's names: the same state always gives the same sentence, and nobody learns whom they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use odc_api::v1alpha1::condition::Reason;

use super::World;
use super::event::Ask;
use super::fit;
use super::measure::Measure;
use super::node::Place;
use super::plan::{Stop, Wait};
use super::shape::{Shape, Spot};
use super::world::Entry;

/// Sentences about servers that wait. Those of one kind that no node refused and that wait for the same share theirs, so
/// each is made once.
pub struct Explained<'a> {
    world: &'a World,
    shared: BTreeMap<(u32, &'static str), Why>,
}

type Why = (Reason, String);

impl World {
    /// Begins to say why servers wait, from everything the world was told by now. What a plan granted should be among
    /// that.
    pub fn explained(&self) -> Explained<'_> {
        Explained { world: self, shared: BTreeMap::new() }
    }
}

impl Explained<'_> {
    pub fn why(&mut self, wait: &Wait) -> Why {
        let Some(entry) = self.world.find(&wait.id).and_then(|at| self.world.entry(at)) else {
            return (Reason::NotQueued, "The server is not known to the queue.".to_owned());
        };
        if let Stop::Quota(excess) = &wait.stop {
            return (Reason::QuotaExceeded, excess.message(self.world));
        }
        if !entry.server.unfit.is_empty() {
            return explain(self.world, entry, &wait.stop);
        }
        let world = self.world;
        let key = (entry.shape, wait.stop.word());
        self.shared.entry(key).or_insert_with(|| explain(world, entry, &wait.stop)).clone()
    }
}

fn explain(world: &World, entry: &Entry, stop: &Stop) -> Why {
    let Some(shape) = world.shape_of(entry) else {
        return (Reason::NotQueued, "The server is not known to the queue.".to_owned());
    };
    let subject = Subject { request: &entry.server.ask, shape, world, entry };
    match stop {
        Stop::Never => subject.never(),
        Stop::Refused => subject.refused(),
        Stop::Behind => subject.behind(),
        Stop::TooLong => subject.too_long(),
        Stop::NoRoom | Stop::Barred => subject.no_room(),
        Stop::Quota(excess) => (Reason::QuotaExceeded, excess.message(world)),
        Stop::Booked(true) => (Reason::Booked, "Its booked time is promised and has not come.".to_owned()),
        Stop::Booked(false) => {
            let why = "Its booked time has not come, and is not promised: servers that asked earlier may still be there \
                       then.";
            (Reason::Booked, why.to_owned())
        }
    }
}

/// What a sentence is about.
struct Subject<'a> {
    request: &'a Ask,
    shape: &'a Shape,
    world: &'a World,
    entry: &'a Entry,
}

impl Subject<'_> {
    /// No node could ever hold it.
    fn never(&self) -> Why {
        let (short, why) = self.why_never();
        (Reason::Unsatisfiable, self.sentence(short, &why))
    }

    /// It would fit, but not before others.
    fn behind(&self) -> Why {
        let why = "that is free, but servers ahead of it in the queue come first";
        (Reason::InsufficientCapacity, self.sentence(None, why))
    }

    /// It would fit, but somebody ahead is to start there before it would end.
    fn too_long(&self) -> Why {
        let why = "that is free now, but a server ahead of it is to start there before it would end; with a shorter \
                   lifetime it could start now";
        (Reason::InsufficientCapacity, self.sentence(None, why))
    }

    /// The nodes that could hold it will not have it.
    fn refused(&self) -> Why {
        let unfit = &self.entry.server.unfit;
        let why = match (unfit.len(), unfit.first_key_value()) {
            (1, Some((node, why))) => format!("node {node} did not take it ({why}) and is tried again when it changes"),
            (count, Some((node, why))) => {
                format!("{count} nodes did not take it ({node}: {why}) and are tried again when they change")
            }
            (_, None) => "its nodes did not take it".to_owned(),
        };
        (Reason::Unschedulable, self.sentence(None, &why))
    }

    /// Too little is free, or it is in the wrong places.
    fn no_room(&self) -> Why {
        let open: Vec<&Place> = self.open().map(|(_, place)| place).collect();
        let (reason, short, why) = if open.is_empty() {
            let why = "no node that it could use takes pods at the moment".to_owned();
            (Reason::InsufficientCapacity, None, why)
        } else if let Some(short) = Measure::asked(self.request).find(|measure| self.is_short(*measure, &open)) {
            let (reason, why) = self.why_short(short, &open);
            (reason, Some(short), why)
        } else {
            (Reason::Fragmented, None, self.why_scattered())
        };
        let unfit = &self.entry.server.unfit;
        let except = match (unfit.len(), unfit.first_key_value()) {
            (_, None) => String::new(),
            (1, Some((node, _))) => format!(", not counting node {node}, which did not take it"),
            (some, _) => format!(", not counting {some} nodes that did not take it"),
        };
        (reason, self.sentence(short, &(why + &except)))
    }

    /// Nodes that take pods and did not refuse this one.
    fn open(&self) -> impl Iterator<Item = (&Spot, &Place)> {
        let open = self.like().filter(|(spot, _)| spot.open);
        open.filter(|(_, place)| !self.entry.server.unfit.contains_key(&place.node.name))
    }

    /// Nodes whose labels, lasting taints and reach are right.
    fn like(&self) -> impl Iterator<Item = (&Spot, &Place)> {
        self.shape.spots().filter_map(|(node, spot)| Some((spot, self.world.place(node)?)))
    }

    /// Whether too few nodes have enough of this alone.
    fn is_short(&self, measure: Measure<'_>, open: &[&Place]) -> bool {
        let need = measure.of(&self.request.each);
        open.iter().filter(|place| measure.of(&place.free) >= need).count() < self.request.nodes()
    }

    fn why_short(&self, short: Measure<'_>, open: &[&Place]) -> Why {
        let free = || open.iter().map(|place| short.of(&place.free).max(0));
        let (most, sum) = (free().max().unwrap_or_default(), free().fold(0, i64::saturating_add));
        let need = short.of(&self.request.each);
        let why = match free().filter(|free| *free >= need).count() {
            _ if sum == 0 => short.none_free().to_owned(),
            0 => {
                let (most, verb, sum) = (short.there(most), short.verb(most), short.shortly(sum));
                format!("at most {most} {verb} free on one node, {sum} in all")
            }
            some => {
                let nodes = if some == 1 { "1 node has" } else { &format!("{some} nodes have") };
                format!("only {nodes} enough, and {} {} free in all", short.there(sum), short.verb(sum))
            }
        };
        let enough = sum >= self.request.in_all(need);
        (if enough { Reason::Fragmented } else { Reason::InsufficientCapacity }, why)
    }

    /// There is enough of everything, but not together.
    fn why_scattered(&self) -> String {
        match largest(self.open().filter(|(_, place)| place.free.holds(&self.request.each))) {
            0 => "no node has all of that free at once".to_owned(),
            1 => "only 1 node has all of that free at once".to_owned(),
            some => format!("only {some} such nodes have all of that free at once"),
        }
    }

    fn why_never(&self) -> (Option<Measure<'_>>, String) {
        if self.like().next().is_none() {
            return (None, self.why_unlike());
        }
        let large = || self.like().filter(|(spot, _)| spot.could);
        let why = match largest(large()) {
            0 if large().next().is_none() => return self.why_small(),
            0 => "no node that could hold it has that label".to_owned(),
            1 => "only 1 node could ever hold that".to_owned(),
            some => format!("only {some} such nodes could ever hold that"),
        };
        (None, why + self.not_counted())
    }

    /// Nodes that have the labels a server asks for and are for others who ask for more.
    fn on_request(&self) -> impl Iterator<Item = &Place> {
        let Ask { selector, .. } = self.request;
        let places = self.world.places().map(|(_, place)| place);
        places.filter(|place| {
            let labels = &place.node.labels;
            fit::has_labels(labels, selector) && !fit::is_selected(labels, selector)
        })
    }

    fn not_counted(&self) -> &'static str {
        if self.on_request().next().is_some() { ", not counting those on request" } else { "" }
    }

    /// No node is large enough, even when empty.
    fn why_small(&self) -> (Option<Measure<'_>>, String) {
        let most = |measure: Measure<'_>| {
            let all = self.like().map(|(_, place)| measure.of(&place.node.capacity));
            all.max().unwrap_or_default()
        };
        let nodes = if self.request.selector.is_empty() { "no node" } else { "no node with the labels it asks for" };
        let short = Measure::asked(self.request).find(|measure| most(*measure) < measure.of(&self.request.each));
        let why = match short.map(|short| (short, most(short))) {
            None => format!("{nodes} has all of that"),
            Some((Measure::Device(_), ..=0)) => format!("{nodes} has any"),
            Some((Measure::Volumes(_), ..=0)) => format!("{nodes} can attach any"),
            Some((short, most)) => format!("{nodes} has more than {}", short.there(most)),
        };
        (short, why + self.not_counted())
    }

    /// The first thing that no node has right.
    fn why_unlike(&self) -> String {
        let Ask { selector, reach, .. } = self.request;
        let all = || self.world.places().map(|(_, place)| &place.node);
        let labelled = || all().filter(|node| fit::has_labels(&node.labels, selector));
        let mut selected = labelled().filter(|node| fit::is_selected(&node.labels, selector)).peekable();
        if all().next().is_none() {
            "the cluster has no node".to_owned()
        } else if labelled().next().is_none() {
            let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("no node has the labels it asks for ({})", labels.join(", "))
        } else if selected.peek().is_none() {
            let labels: BTreeSet<&str> = labelled().flat_map(|node| fit::unasked(&node.labels, selector)).collect();
            let labels: Vec<&str> = labels.into_iter().collect();
            format!("every node it could use is only for servers that ask for its label ({})", labels.join(", "))
        } else if selected.any(|node| reach.iter().all(|reach| reach.includes(&node.labels))) {
            "every node it could use has a taint that its flavor does not tolerate".to_owned()
        } else {
            "none of the nodes it asks for can reach all of its volumes".to_owned()
        }
    }

    /// `Needs 4 nvidia.com/gpu on one node; … .`
    fn sentence(&self, short: Option<Measure<'_>>, why: &str) -> String {
        let nodes = match self.request.nodes() {
            1 => "one node".to_owned(),
            many => format!("each of {many} nodes"),
        };
        let shared = self.request.shared_label().map_or_else(String::new, |label| format!(" with the same {label}"));
        format!("Needs {} on {nodes}{shared}; {why}.", need(self.request, short))
    }
}

/// How many of the nodes agree at most.
fn largest<'a>(nodes: impl Iterator<Item = (&'a Spot, &'a Place)>) -> usize {
    let mut groups: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (spot, _) in nodes {
        if let Some(group) = &spot.group {
            *groups.entry(group.clone()).or_default() += 1;
        }
    }
    groups.into_values().max().unwrap_or_default()
}

/// What a server needs on each node: its devices, or CPU and memory where it has none, and what it is short of.
fn need(request: &Ask, short: Option<Measure<'_>>) -> String {
    let text = |measure: Measure<'_>| measure.needed(measure.of(&request.each));
    let mut shown: Vec<_> = Measure::asked(request).filter(|measure| matches!(measure, Measure::Device(_))).collect();
    if shown.is_empty() {
        shown = vec![Measure::Cpu, Measure::Memory];
    }
    let main = shown.iter().map(|measure| text(*measure)).collect::<Vec<_>>().join(" and ");
    match short.filter(|short| !shown.contains(short)) {
        Some(short) => format!("{main} with {}", text(short)),
        None => main,
    }
}
