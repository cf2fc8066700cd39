//! The queue as it stands after a plan: when everybody who waits is expected to start, and questions to it that change
//! nothing.

mod what_if;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::PlannedStart;
use odc_api::v1alpha1::condition::Reason;

pub use what_if::{Change, Planned, Quotas};

use super::queue::told;
use super::{Refusals, Server};
use crate::scheduler::{self, Eta, Event, Forecast, Moved, Promise, Promises, State, Wait, World};

#[derive(Clone, Debug, Default)]
pub struct Outlook {
    pub(super) world: World,
    /// Made when it is needed and kept while somebody waits: it is as large as the world.
    pub(super) forecast: OnceLock<Forecast>,
    waits: Vec<Wait>,
    etas: BTreeMap<String, Eta>,
    /// Why the planned start of somebody who waits is later than it was, by uid.
    moved: BTreeMap<String, Moved>,
    policy: scheduler::Policy,
    /// When it was so.
    pub(super) at: i64,
}

/// A server that waits, as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing<'a> {
    pub server: &'a scheduler::Server,
    pub position: Option<u32>,
    pub eta: Option<Eta>,
    /// Why its planned start is later than it was when it was last moved.
    pub moved: Option<&'a Moved>,
    pub reason: Reason,
    pub message: String,
}

/// What would become of a server that nobody has asked for yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It would start at once.
    Now,
    Later {
        position: Option<u32>,
        eta: Option<Eta>,
        reason: Reason,
        message: String,
    },
}

impl Outlook {
    /// Takes note of who waits and whose planned start moved, in a world in which everything that was granted has started.
    pub(super) fn look(&mut self, waits: Vec<Wait>, moved: &[Moved], policy: scheduler::Policy, at: i64) {
        self.remember(moved, &waits);
        let known = self.forecast.take();
        self.etas = BTreeMap::new();
        if !waits.is_empty() {
            let mut forecast = known.unwrap_or_else(|| Forecast::of(&self.world, policy.half_life, at));
            self.etas = etas(&self.world, &mut forecast, &waits, &policy, at);
            self.forecast = forecast.into();
        }
        (self.waits, self.policy, self.at) = (waits, policy, at);
    }

    /// What was moved is forgotten when it is where it was, or when nobody waits for it any more.
    fn remember(&mut self, moved: &[Moved], waits: &[Wait]) {
        let mut known = std::mem::take(&mut self.moved);
        known.extend(moved.iter().map(|moved| (moved.id.clone(), moved.clone())));
        let still = |wait: &Wait| {
            let moved = known.remove(&wait.id)?;
            let later = wait.start.is_none_or(|start| start > moved.from);
            later.then(|| (wait.id.clone(), Moved { to: wait.start, ..moved }))
        };
        self.moved = waits.iter().filter_map(still).collect();
    }

    /// Whether anybody has planned at all.
    pub fn is_of_a_plan(&self) -> bool {
        self.at != 0
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn waits(&self) -> &[Wait] {
        &self.waits
    }

    pub fn eta(&self, uid: &str) -> Option<Eta> {
        self.etas.get(uid).copied()
    }

    /// Where and when those who wait are to start, by uid.
    pub(super) fn planned(&self) -> BTreeMap<String, PlannedStart> {
        let start = |promise: Promise| {
            let at = Timestamp::from_second(promise.start).unwrap_or(Timestamp::MAX);
            (promise.id, PlannedStart { at: stored(at), nodes: promise.nodes })
        };
        self.world.promises().map(start).collect()
    }

    /// How many wait.
    pub fn length(&self) -> usize {
        self.waits.len()
    }

    /// Everybody who waits, in the order of the queue.
    pub fn standings(&self) -> Vec<Standing<'_>> {
        self.standings_of(|_| true)
    }

    /// Those who are wanted. Only what is wanted is put into words: in a long queue that is most of the work.
    pub fn standings_of(&self, wanted: impl Fn(&scheduler::Server) -> bool) -> Vec<Standing<'_>> {
        let mut explained = self.world.explained();
        let standing = |wait: &Wait| {
            let server = self.world.get(&wait.id).filter(|server| wanted(server))?;
            let (reason, message) = explained.why(wait);
            let (eta, moved) = (self.eta(&wait.id), self.moved.get(&wait.id));
            Some(Standing { server, position: wait.position, eta, moved, reason, message })
        };
        self.waits.iter().filter_map(standing).collect()
    }

    /// How promises to those who waited for a flavor were kept.
    pub fn promises(&self, flavor: &str) -> Option<&Promises> {
        self.world.record(flavor).map(|record| &record.promises)
    }

    /// What would become of this server if it were asked for now. Nobody is promised anything.
    pub fn ask(&self, server: &Server, now: Timestamp) -> Prospect {
        // The last pass may have been long ago, if nothing has changed since.
        let now = now.as_second().max(self.at);
        let (mut world, half_life) = (self.world.clone(), self.policy.half_life);
        let asked = scheduler::Server { state: State::Waiting, ..told(server, &Refusals::default()) };
        let event = Event::Server(Box::new(asked));
        world.apply(event.clone(), half_life, now);
        let plan = world.sketch(&self.policy, now);
        let Some(wait) = plan.waits.iter().find(|wait| wait.id == server.uid) else { return Prospect::Now };
        let mut forecast = self.forecast.get_or_init(|| Forecast::of(&self.world, half_life, now)).clone();
        forecast.apply(&event, &world, half_life, now);
        let eta = etas(&world, &mut forecast, std::slice::from_ref(wait), &self.policy, now).remove(&wait.id);
        let (reason, message) = world.explained().why(wait);
        Prospect::Later { position: wait.position, eta, reason, message }
    }
}

fn etas(
    world: &World,
    forecast: &mut Forecast,
    waits: &[Wait],
    policy: &scheduler::Policy,
    now: i64,
) -> BTreeMap<String, Eta> {
    let likely = forecast.starts(world, policy, now);
    let eta = |wait: &Wait| {
        let likely = likely.get(&wait.id).copied()?;
        Some((wait.id.clone(), world.eta(&wait.id, likely, wait.start, now)?))
    };
    waits.iter().filter_map(eta).collect()
}
