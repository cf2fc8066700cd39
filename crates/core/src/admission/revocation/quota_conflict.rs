//! Detects that two leaders admitted servers from the same quota during a change of leader. The surplus admission is
//! revoked before its pods are bound. Lowering a quota revokes nothing.

use std::collections::BTreeMap;

use super::super::convert::limits;
use super::super::{AccountRef, Accounts, Server};
use crate::scheduler::{Limits, ResourceUsage, exceeded_flavor_limit, find_exceeded_limit};

/// Writes of two leaders can overlap for this time.
const MAX_LEADER_OVERLAP_SECONDS: u64 = 60;

/// Valid admissions by account.
#[derive(Default)]
pub(super) struct QuotaConflicts<'a>(BTreeMap<AccountRef, Vec<&'a Server>>);

impl<'a> QuotaConflicts<'a> {
    /// Adds a valid admission. Borrowing servers are above the quota by definition, and are reclaimed by preemption.
    pub fn add(&mut self, server: &'a Server) {
        if !is_borrowing(server) {
            for account in server.accounts() {
                self.0.entry(account).or_default().push(server);
            }
        }
    }

    /// Returns the account whose quota the server exceeds together with valid admissions, one of which another leader made
    /// at the same time.
    pub fn find(&self, server: &Server, accounts: &Accounts) -> Option<AccountRef> {
        server.accounts().filter(|_| !is_borrowing(server)).find(|id| {
            let account = match id {
                AccountRef::User(name) => accounts.users.get(name),
                AccountRef::Team(name) => accounts.teams.get(name),
            };
            let valid = self.0.get(id).map(Vec::as_slice).unwrap_or_default();
            let is_concurrent = |other: &&Server| epoch(other) != epoch(server) && overlaps(other, server);
            valid.iter().any(is_concurrent)
                && account.is_some_and(|account| exceeds(&limits(&account.quota), valid, server))
        })
    }
}

fn is_borrowing(server: &Server) -> bool {
    server.admission.as_ref().and_then(|admission| admission.borrowed).unwrap_or(false)
}

fn epoch(server: &Server) -> Option<i64> {
    server.admission.as_ref().map(|admission| admission.epoch)
}

/// Reports whether two admissions may have been written at the same time. The requests of an earlier leader are in flight
/// only for a short time.
fn overlaps(one: &Server, other: &Server) -> bool {
    let admitted_at = |server: &Server| Some(server.admission.as_ref()?.admitted_at.as_ref()?.0.as_second());
    let times = admitted_at(one).zip(admitted_at(other));
    times.is_some_and(|(one, other)| one.abs_diff(other) <= MAX_LEADER_OVERLAP_SECONDS)
}

/// Reports whether a server exceeds the limits together with others.
fn exceeds(limits: &Limits, valid: &[&Server], server: &Server) -> bool {
    let usage = |server: &Server| ResourceUsage::new(&server.request);
    let used = valid.iter().fold(ResourceUsage::default(), |sum, other| sum.saturating_add(usage(other)));
    let same_flavor = valid.iter().filter(|other| other.flavor == server.flavor);
    let flavor_devices = same_flavor.map(|other| other.request.devices()).fold(0, i64::saturating_add);
    let flavor = server.flavor.as_str();
    let exceeds_flavor_limit =
        |limit: &i64| exceeded_flavor_limit(flavor, *limit, flavor_devices, usage(server)).is_some();
    find_exceeded_limit(limits, used, usage(server), |_| false).is_some()
        || limits.flavors.get(flavor).is_some_and(exceeds_flavor_limit)
}
