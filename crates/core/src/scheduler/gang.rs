//! Which of the nodes with room a server gets: all it needs or none, on different nodes that agree on the topology.

use std::collections::BTreeMap;

use super::Request;
use super::room::{Place, Room};

/// The nodes to grant, of those that have room; nothing if they are too few.
pub(super) fn choose<'r>(
    request: &'r Request,
    with_room: impl Iterator<Item = (usize, &'r Place<'r>)>,
) -> Option<Vec<usize>> {
    let needed = request.nodes();
    let groups = groups(request, with_room).into_iter().filter(|(_, places)| places.len() >= needed);
    // The tightest group that will do, so that large ones stay whole for large gangs.
    let (_, mut places) = groups.min_by_key(|(value, places)| (places.len(), *value))?;
    places.sort_by_cached_key(|(_, place)| Rank::of(request, place));
    let mut chosen: Vec<usize> = places.into_iter().take(needed).map(|(at, _)| at).collect();
    // In the order of names, which tells people more than ours.
    chosen.sort_unstable();
    Some(chosen)
}

/// Those of the nodes that have enough others beside them.
pub(super) fn enough(request: &Request, room: &Room<'_>, nodes: &[usize]) -> Vec<usize> {
    let groups = groups(request, room.among(nodes)).into_values();
    let mut enough: Vec<usize> =
        groups.filter(|places| places.len() >= request.nodes()).flatten().map(|(at, _)| at).collect();
    enough.sort_unstable();
    enough
}

/// How many of the nodes agree at most.
pub(super) fn largest(request: &Request, room: &Room<'_>, nodes: &[usize]) -> usize {
    groups(request, room.among(nodes)).values().map(Vec::len).max().unwrap_or_default()
}

/// By the value of the topology label; all in one where there is none to agree on.
fn groups<'r>(
    request: &'r Request,
    places: impl Iterator<Item = (usize, &'r Place<'r>)>,
) -> BTreeMap<&'r str, Vec<(usize, &'r Place<'r>)>> {
    let mut groups: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (at, place) in places {
        let value = match request.shared_label() {
            None => Some(""),
            Some(label) => place.node.labels.get(label).map(String::as_str),
        };
        if let Some(value) = value {
            groups.entry(value).or_default().push((at, place));
        }
    }
    groups
}

/// How good a node is for a request; the smallest is the best.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    /// It has devices that the request does not ask for. They would lie idle for want of the CPU.
    wasteful: bool,
    /// Nothing of it is used. Whole nodes are kept for those who need whole ones.
    whole: bool,
    /// Fuller nodes first, by the device and then by CPU.
    device: i64,
    cpu: i64,
    name: &'a str,
}

impl<'a> Rank<'a> {
    fn of(request: &Request, place: &Place<'a>) -> Self {
        let device = request.device.as_deref().filter(|device| request.each.device(device) > 0);
        let free = device.map_or(0, |device| place.free.device(device));
        Self {
            wasteful: device.is_none() && place.node.allocatable.devices().next().is_some(),
            whole: match device {
                Some(device) => free >= place.node.allocatable.device(device),
                None => place.servers == 0,
            },
            device: free,
            cpu: place.free.cpu,
            name: &place.node.name,
        }
    }
}
