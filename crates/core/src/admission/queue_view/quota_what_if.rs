//! The effect of other quotas on pending servers.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::{TeamName, UserName};
use odc_api::v1alpha1::Quota;

use super::QueueView;
use crate::admission::convert::limits;
use crate::scheduler::{self, AccountSpec, Event};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaOverrides {
    pub users: BTreeMap<UserName, Quota>,
    pub teams: BTreeMap<TeamName, Quota>,
}

/// A server that would start at another time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartChange<'a> {
    pub server: &'a scheduler::Server,
    pub before: StartTime,
    pub after: StartTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartTime {
    Now,
    At(i64),
    Unknown,
}

impl QueueView {
    /// Returns the servers whose start would change with other quotas. Unknown users and teams are an error.
    pub fn compare_starts(&self, quotas: &QuotaOverrides, now: Timestamp) -> Result<Vec<StartChange<'_>>, String> {
        let now = now.as_second().max(self.as_of);
        let with_quota = |spec: Option<&AccountSpec>, quota: &Quota| {
            spec.map(|spec| AccountSpec { limits: limits(quota), usage: None, ..spec.clone() })
        };
        let mut events = Vec::new();
        for (name, quota) in &quotas.users {
            let spec = with_quota(self.state.user(name.as_str()), quota);
            events.push(Event::User(spec.ok_or_else(|| format!("User {name} not found."))?));
        }
        for (name, quota) in &quotas.teams {
            let spec = with_quota(self.state.team(name.as_str()), quota);
            events.push(Event::Team(spec.ok_or_else(|| format!("Team {name} not found."))?));
        }
        let changes = self.state.compare_starts(&events, &self.policy, now).into_iter().filter_map(|change| {
            let start_time = |start: Option<i64>| match start {
                Some(start) if start <= now => StartTime::Now,
                Some(start) => StartTime::At(start),
                None => StartTime::Unknown,
            };
            let server = self.state.server(&change.id)?;
            Some(StartChange { server, before: start_time(change.before), after: start_time(change.after) })
        });
        Ok(changes.collect())
    }
}
