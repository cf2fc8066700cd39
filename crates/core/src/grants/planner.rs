//! The scheduler's world, kept from plan to plan. It is told only what changed, remembers what it promised to whom, and
//! sees who comes and goes: what they used, how long they stayed, and whether promises were kept.
//!
//! A plan is told to it as if it were carried out. Where it was not, the facts of the next one say so, and it is told
//! again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::{Record, Usage};

use super::outlook::Outlook;
use super::queue::{self, Picture};
use super::{Facts, Holder, Policy, admission, record};
use crate::scheduler::{self, Account, Event, Promise, State, Step, Used, World};

/// Whoever wants to record what happens is called at every step.
pub type Watch<'w> = &'w mut dyn FnMut(Step<'_>);

#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// The queue as it stands, with its world.
    outlook: Outlook,
    /// Servers that held nodes when the facts were last looked at, by uid; nothing before that.
    held: Option<BTreeMap<String, Stay>>,
    /// Flavors of which something was learned that nobody has stored yet.
    learned: BTreeSet<String>,
}

/// Since when it is there, and until when it may be, if that is known.
#[derive(Clone, Copy, Debug)]
struct Stay {
    since: i64,
    end: Option<i64>,
}

impl Planner {
    pub fn outlook(&self) -> &Outlook {
        &self.outlook
    }

    fn world(&self) -> &World {
        &self.outlook.world
    }

    /// Time that never goes back, whatever the clock does: what was recorded is sorted by it.
    fn second(&self, now: Timestamp) -> i64 {
        now.as_second().max(self.outlook.at)
    }

    fn tell(&mut self, event: Event, policy: &Policy, now: i64, watch: Watch<'_>) {
        watch(Step::Told { now, event: &event });
        let Outlook { world, forecast, .. } = &mut self.outlook;
        if let Some(forecast) = forecast.get_mut() {
            forecast.apply(&event, world, policy.queue.half_life, now);
        }
        world.apply(event, policy.queue.half_life, now);
    }

    /// Tells the world what changed. Gives those of whose servers one is gone without having been seen to leave.
    pub(super) fn keep_up(
        &mut self,
        facts: &Facts<'_>,
        picture: Picture,
        policy: &Policy,
        now: Timestamp,
        watch: Watch<'_>,
    ) -> BTreeSet<Holder> {
        let second = self.second(now);
        let before = self.held.take();
        let gone = before.as_ref().map(|before| self.notice_who_came_and_went(before, facts, policy, second, watch));
        for event in self.changes(picture) {
            self.tell(event, policy, second, watch);
        }
        for flavor in &facts.flavors {
            let name = flavor.metadata.name.as_deref().unwrap_or_default();
            let stored = flavor.status.as_ref().and_then(|status| status.record.as_ref()).and_then(record::read);
            if let Some(record) = stored.filter(|_| self.world().record(name).is_none()) {
                self.tell(Event::Record { flavor: name.to_owned(), record: Box::new(record) }, policy, second, watch);
            }
        }
        if before.is_none() {
            for event in self.uses(facts, policy, second).into_iter().chain(self.promised(facts)) {
                self.tell(event, policy, second, watch);
            }
        }
        self.held = Some(held(facts, before.unwrap_or_default()));
        gone.unwrap_or_default()
    }

    /// What differs from what the world was told.
    fn changes(&self, picture: Picture) -> Vec<Event> {
        let world = self.world();
        let servers: HashSet<&str> = picture.servers.iter().map(|server| server.id.as_str()).collect();
        let nodes: HashSet<&str> = picture.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut events = Vec::new();
        let gone = world.servers().filter(|server| !servers.contains(server.id.as_str()));
        events.extend(gone.map(|server| Event::ServerGone(server.id.clone())));
        let gone = world.nodes().filter(|node| !nodes.contains(node.name.as_str()));
        events.extend(gone.map(|node| Event::NodeGone(node.name.clone())));
        let known: BTreeMap<&str, &scheduler::Node> = world.nodes().map(|node| (node.name.as_str(), node)).collect();
        let new = picture.nodes.iter().filter(|node| known.get(node.name.as_str()) != Some(node));
        events.extend(new.map(|node| Event::Node(node.clone())));
        events.extend(changed(world.users(), &picture.users, Event::User, Event::UserGone));
        events.extend(changed(world.teams(), &picture.teams, Event::Team, Event::TeamGone));
        let new = picture.servers.into_iter().filter(|server| world.get(&server.id) != Some(server));
        events.extend(new.map(|server| Event::Server(Box::new(server))));
        events
    }

    /// What everybody used until now, from what is stored and what they hold since. It counts from the grants that are
    /// there, so nothing has to be stored when a server starts.
    fn uses(&self, facts: &Facts<'_>, policy: &Policy, now: i64) -> Vec<Event> {
        let half_life = policy.queue.half_life;
        let used = |usage: Option<&Usage>, runs: &dyn Fn(&scheduler::Server) -> bool| {
            let before = usage.map_or(Used { amount: 0, at: i64::MIN }, stored_use);
            let since = self.world().servers().filter(|server| runs(server)).filter_map(|server| {
                let State::Running(running) = &server.state else { return None };
                let from = Used { amount: 0, at: running.since.max(before.at).min(now) };
                Some(from.until(now, server.ask.cost(), half_life).amount)
            });
            let faded = before.until(now, 0, half_life).amount;
            Used { amount: since.fold(faded, i64::saturating_add), at: now }
        };
        let users = facts.accounts.users.iter().map(|(name, account)| {
            let used = used(account.usage.as_ref(), &|server| server.owner == name.as_str());
            Event::User(Account { used: Some(used), ..queue::told_account(name.as_str(), account) })
        });
        let teams = facts.accounts.teams.iter().map(|(name, account)| {
            let used = used(account.usage.as_ref(), &|server| server.team.as_deref() == Some(name.as_str()));
            Event::Team(Account { used: Some(used), ..queue::told_account(name.as_str(), account) })
        });
        users.chain(teams).collect()
    }

    /// The planned starts that the leader before this one gave.
    fn promised(&self, facts: &Facts<'_>) -> Vec<Event> {
        let planned = facts.servers.iter().filter(|server| server.waits()).filter_map(|server| {
            let planned = server.admission.as_ref()?.planned.as_ref()?;
            let (start, known) = (planned.at.0.as_second(), self.world().get(&server.uid)?);
            let until = start.saturating_add(known.lifetime.unwrap_or(i64::MAX));
            Some(Promise { id: known.id.clone(), place: 0, start, until, nodes: planned.nodes.clone() })
        });
        planned.enumerate().map(|(place, promise)| Event::Promise(Promise { place, ..promise })).collect()
    }

    /// Learns from it.
    fn notice_who_came_and_went(
        &mut self,
        before: &BTreeMap<String, Stay>,
        facts: &Facts<'_>,
        policy: &Policy,
        now: i64,
        watch: Watch<'_>,
    ) -> BTreeSet<Holder> {
        let mut gone = BTreeSet::new();
        let servers: HashMap<&str, &super::Server> =
            facts.servers.iter().map(|server| (server.uid.as_str(), *server)).collect();
        for (uid, stay) in before {
            let server = servers.get(uid.as_str());
            if server.is_some_and(|server| server.is_granted()) {
                continue;
            }
            let Some(known) = self.world().get(uid) else { continue };
            if server.is_none() {
                let team = known.team.as_ref().and_then(|team| team.parse().ok()).map(Holder::Team);
                gone.extend(known.owner.parse().ok().map(Holder::User).into_iter().chain(team));
            }
            // Who lost its nodes did not leave them.
            let returns = server.is_some_and(|server| server.waits());
            if let Some(end) = stay.end.filter(|_| !returns) {
                let (lifetime, stayed) = (end.saturating_sub(stay.since), now.saturating_sub(stay.since));
                let flavor = known.flavor.clone();
                self.learned.insert(flavor.clone());
                self.tell(Event::Stay { flavor, lifetime, stayed }, policy, now, watch);
            }
        }
        for server in facts.servers.iter().filter(|server| server.is_granted() && !before.contains_key(&server.uid)) {
            let Some(admission) = &server.admission else { continue };
            if let (Some(promise), Some(granted)) = (&admission.promise, &admission.granted_at) {
                let (given, waited) = admission::outcome(promise, granted.0);
                let flavor = server.flavor.to_string();
                self.learned.insert(flavor.clone());
                self.tell(Event::Waited { flavor, given, waited }, policy, now, watch);
            }
        }
        gone
    }

    /// Decides, and takes note of it as if it were carried out.
    pub(super) fn decide(&mut self, policy: &Policy, now: Timestamp, watch: Watch<'_>) -> scheduler::Plan {
        let second = self.second(now);
        let mut plan = self.outlook.world.plan(&policy.queue, second);
        watch(Step::Planned { now: second, plan: &plan });
        let started = plan.grants.iter().map(|grant| {
            let server = self.world().get(&grant.id)?;
            Some(queue::started(server, &grant.nodes, now))
        });
        let leaving = plan.preemptions.iter().map(|preemption| {
            let server = self.world().get(&preemption.id)?;
            Some(queue::asked_to_leave(server, preemption.end))
        });
        let booked = plan.booked.iter().map(|id| {
            let server = self.world().get(id)?;
            Some(scheduler::Server { booked: true, ..server.clone() })
        });
        let all: Vec<scheduler::Server> = started.chain(leaving).chain(booked).flatten().collect();
        for server in all {
            self.tell(Event::Server(Box::new(server)), policy, second, watch);
        }
        // What is said about those who wait is said of the world in which the others have started.
        self.outlook.look(std::mem::take(&mut plan.waits), &plan.moved, policy.queue, second);
        plan
    }

    /// What somebody used, as of now.
    pub fn usage(&self, of: &Holder, policy: &Policy, now: Timestamp) -> Usage {
        let (second, half_life) = (self.second(now), policy.queue.half_life);
        let used = match of {
            Holder::User(name) => self.world().used_by_user(name.as_str(), half_life, second),
            Holder::Team(name) => self.world().used_by_team(name.as_str(), half_life, second),
        };
        Usage { device_seconds: used.unwrap_or_default().amount / 1_000, at: stored(now) }
    }

    /// Flavors of which something was learned since this was last asked, with all that is known.
    pub fn learned(&mut self) -> Vec<(String, Record)> {
        let learned = std::mem::take(&mut self.learned);
        let known = |flavor: String| {
            let record = record::write(self.world().record(&flavor)?);
            Some((flavor, record))
        };
        learned.into_iter().filter_map(known).collect()
    }

    pub fn has_learned(&self) -> bool {
        !self.learned.is_empty()
    }

    /// What could not be stored.
    pub fn keep_learned(&mut self, flavor: String) {
        self.learned.insert(flavor);
    }
}

/// Of one that stops, what it might have stayed is what it might have before.
fn held(facts: &Facts<'_>, mut before: BTreeMap<String, Stay>) -> BTreeMap<String, Stay> {
    let held = facts.servers.iter().filter(|server| server.is_granted()).filter_map(|server| {
        let since = server.admission.as_ref()?.granted_at.as_ref()?.0.as_second();
        let known = before.remove(&server.uid).filter(|known| server.rests() && known.since == since);
        let end = server.ends.map(Timestamp::as_second);
        Some((server.uid.clone(), known.unwrap_or(Stay { since, end })))
    });
    held.collect()
}

fn stored_use(usage: &Usage) -> Used {
    Used { amount: usage.device_seconds.saturating_mul(1_000), at: usage.at.0.as_second() }
}

/// Accounts that are not as they were told. Whoever is only known by name has never been told of.
fn changed<'a>(
    known: impl Iterator<Item = &'a Account>,
    now: &[Account],
    set: fn(Account) -> Event,
    gone: fn(String) -> Event,
) -> Vec<Event> {
    let known: BTreeMap<&str, &Account> = known.map(|account| (account.name.as_str(), account)).collect();
    let rules = |account: &Account| Account { used: None, ..account.clone() };
    let is_new =
        |account: &&Account| known.get(account.name.as_str()).map(|known| rules(known)) != Some(rules(account));
    let names: HashSet<&str> = now.iter().map(|account| account.name.as_str()).collect();
    let unruled = |account: &Account| rules(account) == Account { name: account.name.clone(), ..Account::default() };
    let left = known.values().filter(|account| !names.contains(account.name.as_str()) && !unruled(account));
    let left: Vec<Event> = left.map(|account| gone(account.name.clone())).collect();
    now.iter().filter(is_new).cloned().map(set).chain(left).collect()
}
