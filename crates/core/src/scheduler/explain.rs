//! Why a server waits: one word for programs and one sentence for people. No times, no places in the queue and nobody
//! else's names: the same state always gives the same sentence, and nobody learns whom they wait for.

use std::collections::BTreeMap;

use odc_api::v1alpha1::condition::Reason;

use super::fit::{self, Nodes};
use super::gang;
use super::measure::Measure;
use super::queue::{Settled, Stop, Waiting};
use super::room::{Place, Room};
use super::{Refusal, Request};

/// Sentences about servers that wait. Those of one shape that no node refused share theirs, so each is made once.
pub(super) struct Explained<'a> {
    settled: &'a Settled<'a>,
    shared: BTreeMap<usize, Why>,
}

type Why = (Reason, String);

impl<'a> Explained<'a> {
    pub fn new(settled: &'a Settled<'a>) -> Self {
        Self { settled, shared: BTreeMap::new() }
    }

    pub fn why(&mut self, waiting: &Waiting<'_>) -> Why {
        if let Stop::Quota(excess) = &waiting.stop {
            return (Reason::QuotaExceeded, excess.message.clone());
        }
        if !waiting.refusals.is_empty() {
            return explain(self.settled, waiting);
        }
        self.shared.entry(waiting.shape).or_insert_with(|| explain(self.settled, waiting)).clone()
    }
}

fn explain(settled: &Settled<'_>, waiting: &Waiting<'_>) -> Why {
    let none = Nodes::default();
    let subject = Subject {
        request: &waiting.server.request,
        nodes: settled.shapes.nodes(waiting.shape).unwrap_or(&none),
        room: &settled.room,
        refusals: &waiting.refusals,
    };
    match &waiting.stop {
        Stop::Never => subject.never(),
        Stop::Refused => subject.refused(),
        Stop::Behind => subject.behind(),
        Stop::NoRoom | Stop::Barred => subject.no_room(),
        Stop::Quota(excess) => (Reason::QuotaExceeded, excess.message.clone()),
    }
}

/// What a sentence is about.
struct Subject<'a> {
    request: &'a Request,
    nodes: &'a Nodes,
    room: &'a Room<'a>,
    /// By nodes that will not have the server.
    refusals: &'a [&'a Refusal],
}

impl Subject<'_> {
    /// No node could ever hold it.
    fn never(&self) -> Why {
        let (short, why) = self.why_never();
        (Reason::Unsatisfiable, self.sentence(short, &why))
    }

    /// It would fit, but not before others.
    fn behind(&self) -> Why {
        (Reason::InsufficientCapacity, self.sentence(None, "that is free, but servers that asked earlier come first"))
    }

    /// The nodes that could hold it will not have it.
    fn refused(&self) -> Why {
        let why = match self.refusals {
            [] => "its nodes did not take it".to_owned(),
            [one] => format!("node {} did not take it ({}) and is tried again when it changes", one.node, one.why),
            [first, ..] => format!(
                "{} nodes did not take it ({}: {}) and are tried again when they change",
                self.refusals.len(),
                first.node,
                first.why
            ),
        };
        (Reason::Unschedulable, self.sentence(None, &why))
    }

    /// Too little is free, or it is in the wrong places.
    fn no_room(&self) -> Why {
        let open: Vec<&Place<'_>> = self.open().map(|(_, place)| place).collect();
        let (reason, short, why) = if open.is_empty() {
            let why = "no node that it could use takes pods at the moment".to_owned();
            (Reason::InsufficientCapacity, None, why)
        } else if let Some(short) = Measure::asked(self.request).find(|measure| self.is_short(*measure, &open)) {
            let (reason, why) = self.why_short(short, &open);
            (reason, Some(short), why)
        } else {
            (Reason::Fragmented, None, self.why_scattered())
        };
        let except = match self.refusals {
            [] => String::new(),
            [one] => format!(", not counting node {}, which did not take it", one.node),
            some => format!(", not counting {} nodes that did not take it", some.len()),
        };
        (reason, self.sentence(short, &(why + &except)))
    }

    /// Nodes that take pods and did not refuse this one.
    fn open(&self) -> impl Iterator<Item = (usize, &Place<'_>)> {
        let refused = |place: &Place<'_>| self.refusals.iter().any(|refusal| refusal.node == place.node.name);
        self.room.among(&self.nodes.open).filter(move |(_, place)| !refused(place))
    }

    /// Whether too few nodes have enough of this alone.
    fn is_short(&self, measure: Measure<'_>, open: &[&Place<'_>]) -> bool {
        let need = measure.of(&self.request.each);
        open.iter().filter(|place| measure.of(&place.free) >= need).count() < self.request.nodes()
    }

    fn why_short(&self, short: Measure<'_>, open: &[&Place<'_>]) -> Why {
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
        let roomy = self.open().filter(|(_, place)| place.free.holds(&self.request.each));
        let roomy: Vec<usize> = roomy.map(|(at, _)| at).collect();
        match gang::largest(self.request, self.room, &roomy) {
            0 => "no node has all of that free at once".to_owned(),
            1 => "only 1 node has all of that free at once".to_owned(),
            some => format!("only {some} such nodes have all of that free at once"),
        }
    }

    fn why_never(&self) -> (Option<Measure<'_>>, String) {
        if self.nodes.like.is_empty() {
            return (None, self.why_unlike());
        }
        let large = |place: &Place<'_>| place.node.allocatable.holds(&self.request.each);
        let like = || self.room.among(&self.nodes.like);
        let large: Vec<usize> = like().filter(|(_, place)| large(place)).map(|(at, _)| at).collect();
        let why = match gang::largest(self.request, self.room, &large) {
            0 if large.is_empty() => return self.why_small(),
            0 => "no node that could hold it has that label".to_owned(),
            1 => "only 1 node could ever hold that".to_owned(),
            some => format!("only {some} such nodes could ever hold that"),
        };
        (None, why)
    }

    /// No node is large enough, even when empty.
    fn why_small(&self) -> (Option<Measure<'_>>, String) {
        let most = |measure: Measure<'_>| {
            let all = self.room.among(&self.nodes.like).map(|(_, place)| measure.of(&place.node.allocatable));
            all.max().unwrap_or_default()
        };
        let nodes = if self.request.selector.is_empty() { "no node" } else { "no node with the labels it asks for" };
        let short = Measure::asked(self.request).find(|measure| most(*measure) < measure.of(&self.request.each));
        let why = match short.map(|short| (short, most(short))) {
            None => format!("{nodes} has all of that"),
            Some((Measure::Device(_), ..=0)) => format!("{nodes} has any"),
            Some((short, most)) => format!("{nodes} has more than {}", short.there(most)),
        };
        (short, why)
    }

    /// The first thing that no node has right.
    fn why_unlike(&self) -> String {
        let Request { selector, reach, .. } = self.request;
        let mut labelled =
            self.room.all().map(|(_, place)| place.node).filter(|node| fit::has_labels(node, selector)).peekable();
        if self.room.len() == 0 {
            "the cluster has no node".to_owned()
        } else if labelled.peek().is_none() {
            let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("no node has the labels it asks for ({})", labels.join(", "))
        } else if labelled.any(|node| reach.iter().all(|reach| reach.includes(&node.labels))) {
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

/// What a server needs on each node: its devices, or CPU and memory where it has none, and what it is short of.
fn need(request: &Request, short: Option<Measure<'_>>) -> String {
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
