//! What two leaders granted from one quota, each without knowing of the other. Like room that was granted twice it is
//! taken back before pods have it. A quota that was lowered takes nothing away.

use std::collections::BTreeMap;

use super::queue::limits;
use super::{Accounts, Holder, Server};
use crate::scheduler::Limits;

/// For how many seconds grants of two leaders can cross.
const OVERLAP: u64 = 60;

/// What users and teams hold, as far as grants were looked at.
#[derive(Default)]
pub(super) struct Overdraft<'a>(BTreeMap<Holder, Vec<&'a Server>>);

impl<'a> Overdraft<'a> {
    /// It keeps what it has. Loans are above quotas by their nature, and are asked back in another way.
    pub fn charge(&mut self, server: &'a Server) {
        if !is_lent(server) {
            for holder in server.holders() {
                self.0.entry(holder).or_default().push(server);
            }
        }
    }

    /// Whose quota does not allow this one beside those that keep what they have, one of which another leader granted.
    pub fn overdrawn(&self, server: &Server, accounts: &Accounts) -> Option<Holder> {
        server.holders().filter(|_| !is_lent(server)).find(|holder| {
            let account = match holder {
                Holder::User(name) => accounts.users.get(name),
                Holder::Team(name) => accounts.teams.get(name),
            };
            let held = self.0.get(holder).map(Vec::as_slice).unwrap_or_default();
            let by_another = |other: &&Server| epoch(other) != epoch(server) && is_of_the_same_time(other, server);
            held.iter().any(by_another)
                && account.is_some_and(|account| is_above(&limits(&account.quota), held, server))
        })
    }
}

fn is_lent(server: &Server) -> bool {
    server.admission.as_ref().and_then(|admission| admission.borrowed).unwrap_or(false)
}

fn epoch(server: &Server) -> Option<i64> {
    server.admission.as_ref().map(|admission| admission.epoch)
}

/// Two leaders write at the same time only for as long as the first one's last requests are under way.
fn is_of_the_same_time(one: &Server, other: &Server) -> bool {
    let at = |server: &Server| Some(server.admission.as_ref()?.granted_at.as_ref()?.0.as_second());
    at(one).zip(at(other)).is_some_and(|(one, other)| one.abs_diff(other) <= OVERLAP)
}

/// Quotas are exact to the billionth.
fn is_above(limits: &Limits, held: &[&Server], server: &Server) -> bool {
    let all = || held.iter().copied().chain([server]);
    let total = |of: fn(&Server) -> i64| all().map(|server| i128::from(of(server))).sum::<i128>();
    let of_flavor = || all().filter(|other| other.flavor == server.flavor).map(|other| other.request.devices());
    let nodes = |server: &Server| i64::try_from(server.request.nodes()).unwrap_or(i64::MAX);
    let cpu: i128 = all().map(|one| i128::from(one.request.each.cpu) * i128::from(nodes(one))).sum();
    let memory: i128 = all().map(|one| i128::from(one.request.each.memory) * i128::from(nodes(one))).sum();
    limits.devices.is_some_and(|most| total(|one| one.request.devices()) > i128::from(most))
        || limits.flavors.get(server.flavor.as_str()).is_some_and(|most| of_flavor().sum::<i64>() > *most)
        || limits.cpu.is_some_and(|most| cpu * 1_000_000 > most)
        || limits.memory.is_some_and(|most| memory * 1_000_000_000 > most)
}
