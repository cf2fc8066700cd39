//! `devctl list --watch`: what is there, then every change. Drawn over where the cursor can be moved; elsewhere a row, or
//! an object on a line, for each change.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;

use super::{Filter, print, table};
use crate::app::App;
use crate::args::Format;
use crate::backend::{Change, Scope};
use crate::failure::Result;
use crate::glance::Glance;
use crate::known::{Key, Known};
use crate::output::Output;
use crate::output::live::Live;
use crate::view::Server;

pub(super) async fn run(app: &App, out: &Output, scope: Scope, filter: &Filter) -> Result<()> {
    let owners = scope != Scope::Own;
    let mut changes = app.backend.watch(scope, None);
    let mut known = Known::default();
    let drawn = out.repaints() && !out.structured();
    let (mut live, mut told) = (Live::default(), Told::default());
    // Ages grow by themselves; nobody is asked for that.
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(Change::Interrupted(why))) => app.talk.verbose(|| format!("The connection is made anew: {why}")),
                Some(change) => known.take(change?),
                None => return Ok(()),
            },
            _ = tick.tick(), if drawn => {}
        }
        let Some(servers) = known.complete() else { continue };
        let now = Timestamp::now();
        if drawn {
            let shown: Vec<Glance> = servers.values().filter(|server| filter.shows(server, now)).cloned().collect();
            let text =
                if shown.is_empty() { "No servers.\n".to_owned() } else { out.rendered(&table(&shown, owners, now)) };
            live.show(out, &text)?;
        } else {
            let news = told.news(servers, |server| filter.shows(server, now));
            tell(out, &news, owners, now, told.begun)?;
            told.begun |= !told.servers.is_empty();
        }
    }
}

/// What was printed already, where lines cannot be taken back.
#[derive(Default)]
struct Told {
    servers: BTreeMap<Key, Glance>,
    begun: bool,
}

impl Told {
    /// What differs from what was told. A server that is no longer among those to be shown is told once more: as it is
    /// now, or as deleted if it is nowhere.
    fn news(&mut self, all: &BTreeMap<Key, Glance>, fits: impl Fn(&Glance) -> bool) -> Vec<Glance> {
        let shown: BTreeMap<Key, Glance> =
            all.iter().filter(|(_, server)| fits(server)).map(|(key, server)| (key.clone(), server.clone())).collect();
        let changed = |old: &Glance, new: &Glance| old.metadata.resource_version != new.metadata.resource_version;
        let mut news: Vec<Glance> = Vec::new();
        for (key, server) in &shown {
            if self.servers.get(key).is_none_or(|old| changed(old, server)) {
                news.push(server.clone());
            }
        }
        for (key, old) in self.servers.iter().filter(|(key, _)| !shown.contains_key(*key)) {
            match all.get(key) {
                // Only time has passed.
                Some(server) if !changed(old, server) => {}
                Some(server) => news.push(server.clone()),
                None => {
                    let mut gone = old.clone();
                    gone.status.phase = Some("Deleted".to_owned());
                    news.push(gone);
                }
            }
        }
        self.servers = shown;
        news
    }
}

fn tell(out: &Output, news: &[Glance], owners: bool, now: Timestamp, begun: bool) -> Result<()> {
    match out.format {
        Format::Json | Format::Yaml => {
            for server in news {
                // Each object by itself, so that a reader need not wait for an end that never comes.
                out.one_of_many(&Server::from(server))?;
            }
            Ok(())
        }
        Format::Table | Format::Wide | Format::Name if news.is_empty() => Ok(()),
        Format::Table | Format::Wide | Format::Name if !begun => print(out, news, owners, now),
        Format::Table | Format::Wide | Format::Name => print(&out.without_headers(), news, owners, now),
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Phase};

    use super::*;
    use crate::known::key;

    fn servers(all: &[(&str, Phase, &str)]) -> BTreeMap<Key, Glance> {
        let server = |(name, phase, version): &(&str, Phase, &str)| {
            let mut server = Glance::try_from(&DevServer::test().named(name).in_phase(*phase)).unwrap();
            server.metadata.resource_version = Some((*version).to_owned());
            (key(&server), server)
        };
        all.iter().map(server).collect()
    }

    #[test]
    fn who_leaves_the_filter_is_not_deleted() {
        let mut told = Told::default();
        let mut news = |all: &[(&str, Phase, &str)]| -> Vec<String> {
            let runs = |server: &Glance| server.phase() == Some(Phase::Running);
            let news = told.news(&servers(all), runs);
            news.iter().map(|server| format!("{} {}", server.name(), server.phase_word())).collect()
        };
        let (box_runs, notes_run) = (("box", Phase::Running, "1"), ("notes", Phase::Running, "1"));
        assert_eq!(news(&[box_runs, notes_run]), ["box Running", "notes Running"]);
        assert_eq!(news(&[("box", Phase::Hibernated, "2"), notes_run]), ["box Hibernated"]);
        assert_eq!(news(&[("box", Phase::Hibernated, "3"), notes_run]), Vec::<String>::new());
        assert_eq!(news(&[("box", Phase::Hibernated, "3")]), ["notes Deleted"]);
    }

    #[test]
    fn one_that_time_alone_takes_away_is_not_told_again() {
        let mut told = Told::default();
        let all = servers(&[("box", Phase::Expired, "1")]);
        assert_eq!(told.news(&all, |_| true).len(), 1);
        assert_eq!(told.news(&all, |_| false).len(), 0);
    }
}
