//! What other quotas would change for those who wait.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::{TeamName, UserName};
use odc_api::v1alpha1::Quota;

use super::Outlook;
use crate::grants::queue::limits;
use crate::scheduler::{self, Account, Difference, Event};

/// Other limits than there are, by who would have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    pub users: BTreeMap<UserName, Quota>,
    pub teams: BTreeMap<TeamName, Quota>,
}

/// A server that would start at another time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub server: &'a scheduler::Server,
    pub before: Planned,
    pub after: Planned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    Now,
    At(i64),
    Unknown,
}

impl Outlook {
    /// What would change for those who wait, if these had other quotas. Names whom nobody knows are an error.
    pub fn what_if(&self, quotas: &Quotas, now: Timestamp) -> Result<Vec<Change<'_>>, String> {
        let now = now.as_second().max(self.at);
        let other = |account: Option<&Account>, quota: &Quota| {
            account.map(|account| Account { limits: limits(quota), used: None, ..account.clone() })
        };
        let mut events = Vec::new();
        for (name, quota) in &quotas.users {
            let account = other(self.world.user(name.as_str()), quota);
            events.push(Event::User(account.ok_or_else(|| format!("There is no user {name}."))?));
        }
        for (name, quota) in &quotas.teams {
            let account = other(self.world.team(name.as_str()), quota);
            events.push(Event::Team(account.ok_or_else(|| format!("There is no team {name}."))?));
        }
        let changes = self.world.what_if(&events, &self.policy, now).into_iter().filter_map(|difference| {
            let start = |at: Option<i64>| match at {
                Some(at) if at <= now => Planned::Now,
                Some(at) => Planned::At(at),
                None => Planned::Unknown,
            };
            let Difference { id, before, after } = difference;
            Some(Change { server: self.world.get(&id)?, before: start(before), after: start(after) })
        });
        Ok(changes.collect())
    }
}
