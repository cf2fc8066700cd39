//! `devctl list --watch`: redrawn on a terminal, elsewhere one row or object per change.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Filter, print, table};
use crate::cli::Format;
use crate::client::Scope;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::Result;
use crate::live_view::{self, Sources, View, Watched};
use crate::model::server::ServerSummary;
use crate::output::Output;
use crate::output::json::ServerJson;
use crate::output::redraw::LiveRegion;
use crate::watch_cache::Key;

pub(super) async fn run(ctx: &ClusterContext, out: &Output, scope: Scope, filter: &Filter) -> Result<()> {
    let owners = scope != Scope::Own;
    let mut view = ListView { out, filter, owners, region: LiveRegion::default(), log: ChangeLog::default() };
    live_view::run(ctx, Sources { servers: Some(scope), flavors: false }, &mut view).await
}

struct ListView<'a> {
    out: &'a Output,
    filter: &'a Filter,
    owners: bool,
    region: LiveRegion,
    log: ChangeLog,
}

impl View for ListView<'_> {
    type Data = ();

    async fn fetch(&self) -> Result<()> {
        Ok(())
    }

    fn render(&mut self, watched: &Watched, (): &()) -> Result<()> {
        let Some(servers) = watched.servers.snapshot() else { return Ok(()) };
        let (out, now) = (self.out, clock::now());
        if out.can_redraw() && !out.structured() {
            let matching: Vec<ServerSummary> =
                servers.values().filter(|server| self.filter.matches(server, now)).cloned().collect();
            let text = if matching.is_empty() {
                "No servers found\n".to_owned()
            } else {
                out.render(&table(&matching, self.owners, now))
            };
            return self.region.show(out, &text);
        }
        let changes = self.log.changes(servers, |server| self.filter.matches(server, now));
        print_changes(out, &changes, self.owners, now, self.log.started)?;
        self.log.started |= !self.log.printed.is_empty();
        Ok(())
    }
}

/// The servers that were printed, where output cannot be redrawn.
#[derive(Default)]
struct ChangeLog {
    printed: BTreeMap<Key, ServerSummary>,
    /// Whether the header was printed.
    started: bool,
}

impl ChangeLog {
    /// Returns the servers that changed since they were printed. A server that no longer matches the filter is returned
    /// once more with its new state, a deleted one with the phase `Deleted`.
    fn changes(
        &mut self,
        servers: &BTreeMap<Key, ServerSummary>,
        matches: impl Fn(&ServerSummary) -> bool,
    ) -> Vec<ServerSummary> {
        let matching: BTreeMap<Key, ServerSummary> = servers
            .iter()
            .filter(|(_, server)| matches(server))
            .map(|(key, server)| (key.clone(), server.clone()))
            .collect();
        let differs =
            |old: &ServerSummary, new: &ServerSummary| old.metadata.resource_version != new.metadata.resource_version;
        let mut changes: Vec<ServerSummary> = Vec::new();
        for (key, server) in &matching {
            if self.printed.get(key).is_none_or(|old| differs(old, server)) {
                changes.push(server.clone());
            }
        }
        for (key, old) in self.printed.iter().filter(|(key, _)| !matching.contains_key(*key)) {
            match servers.get(key) {
                // The filter excludes it only because time has passed.
                Some(server) if !differs(old, server) => {}
                Some(server) => changes.push(server.clone()),
                None => {
                    let mut deleted = old.clone();
                    deleted.status.phase = Some("Deleted".to_owned());
                    changes.push(deleted);
                }
            }
        }
        self.printed = matching;
        changes
    }
}

fn print_changes(out: &Output, changes: &[ServerSummary], owners: bool, now: Timestamp, started: bool) -> Result<()> {
    match out.format {
        Format::Json | Format::Yaml => changes.iter().try_for_each(|server| out.document(&ServerJson::from(server))),
        Format::Table | Format::Wide | Format::Name if changes.is_empty() => Ok(()),
        Format::Table | Format::Wide | Format::Name if !started => print(out, changes, owners, now),
        Format::Table | Format::Wide | Format::Name => print(&out.without_headers(), changes, owners, now),
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Phase};

    use super::*;
    use crate::watch_cache::key;

    fn servers(states: &[(&str, Phase, &str)]) -> BTreeMap<Key, ServerSummary> {
        let server = |(name, phase, version): &(&str, Phase, &str)| {
            let mut server = ServerSummary::try_from(&DevServer::test().named(name).in_phase(*phase)).unwrap();
            server.metadata.resource_version = Some((*version).to_owned());
            (key(&server), server)
        };
        states.iter().map(server).collect()
    }

    #[test]
    fn server_that_leaves_the_filter_is_printed_once_more() {
        let mut log = ChangeLog::default();
        let mut changes = |states: &[(&str, Phase, &str)]| -> Vec<String> {
            let is_running = |server: &ServerSummary| server.phase() == Some(Phase::Running);
            let changes = log.changes(&servers(states), is_running);
            changes.iter().map(|server| format!("{} {}", server.name(), server.phase_str())).collect()
        };
        let (first, notes) = (("box", Phase::Running, "1"), ("notes", Phase::Running, "1"));
        assert_eq!(changes(&[first, notes]), ["box Running", "notes Running"]);
        assert_eq!(changes(&[("box", Phase::Hibernated, "2"), notes]), ["box Hibernated"]);
        assert_eq!(changes(&[("box", Phase::Hibernated, "3"), notes]), Vec::<String>::new());
        assert_eq!(changes(&[("box", Phase::Hibernated, "3")]), ["notes Deleted"]);
    }

    #[test]
    fn server_that_only_ages_out_of_the_filter_is_not_printed() {
        let mut log = ChangeLog::default();
        let servers = servers(&[("box", Phase::Expired, "1")]);
        assert_eq!(log.changes(&servers, |_| true).len(), 1);
        assert_eq!(log.changes(&servers, |_| false).len(), 0);
    }
}
