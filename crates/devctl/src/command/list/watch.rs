//! `devctl list --watch`: what is there, then every change. Drawn over on a terminal; elsewhere a row, or an object on a
//! line, for each change.

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
use crate::output::Output;
use crate::output::live::Live;
use crate::view::Server;

type Key = (String, String);

pub(super) async fn run(app: &App, out: &Output, scope: Scope, filter: &Filter) -> Result<()> {
    let owners = scope != Scope::Own;
    let mut changes = app.backend.watch(scope, None);
    let mut known = Known::default();
    let drawn = out.is_terminal() && !out.structured();
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
        let shown: Vec<Glance> = servers.filter(|server| filter.shows(server, now)).cloned().collect();
        if drawn {
            let text =
                if shown.is_empty() { "No servers.\n".to_owned() } else { out.rendered(&table(&shown, owners, now)) };
            live.show(out, &text)?;
        } else {
            told.tell(out, shown, owners, now)?;
        }
    }
}

/// What a watch has told so far. While it tells everything anew, what it told before stays.
#[derive(Default)]
struct Known {
    servers: Option<BTreeMap<Key, Glance>>,
    anew: BTreeMap<Key, Glance>,
    listing: bool,
}

impl Known {
    fn take(&mut self, change: Change) {
        match change {
            Change::Relisted => (self.anew, self.listing) = (BTreeMap::new(), true),
            Change::Put(server) => {
                let into = if self.listing { &mut self.anew } else { self.servers.get_or_insert_default() };
                into.insert(key(&server), *server);
            }
            Change::Gone(server) => {
                self.servers.get_or_insert_default().remove(&key(&server));
            }
            Change::Listed => (self.servers, self.listing) = (Some(std::mem::take(&mut self.anew)), false),
            Change::Interrupted(_) => {}
        }
    }

    /// Nothing before everything is known.
    fn complete(&self) -> Option<impl Iterator<Item = &Glance>> {
        self.servers.as_ref().map(BTreeMap::values)
    }
}

/// What was printed already, where lines cannot be taken back.
#[derive(Default)]
struct Told {
    versions: BTreeMap<Key, Glance>,
    begun: bool,
}

impl Told {
    fn tell(&mut self, out: &Output, shown: Vec<Glance>, owners: bool, now: Timestamp) -> Result<()> {
        let shown: BTreeMap<Key, Glance> = shown.into_iter().map(|server| (key(&server), server)).collect();
        let version = |server: &Glance| server.metadata.resource_version.clone();
        let mut news: Vec<Glance> = Vec::new();
        for (key, server) in &shown {
            if self.versions.get(key).is_none_or(|old| version(old) != version(server)) {
                news.push(server.clone());
            }
        }
        for (key, server) in &self.versions {
            if !shown.contains_key(key) {
                let mut gone = server.clone();
                gone.status.phase = Some("Deleted".to_owned());
                news.push(gone);
            }
        }
        self.versions = shown;
        match out.format {
            Format::Json | Format::Yaml => {
                for server in &news {
                    // Each object by itself, so that a reader need not wait for an end that never comes.
                    if out.format == Format::Yaml {
                        out.print("---\n")?;
                    }
                    out.show(&Server::from(server), Vec::new, || table(&[], owners, now))?;
                }
            }
            Format::Table | Format::Wide | Format::Name if news.is_empty() => {}
            Format::Table | Format::Wide | Format::Name if !self.begun => print(out, &news, owners, now)?,
            Format::Table | Format::Wide | Format::Name => print(&out.without_headers(), &news, owners, now)?,
        }
        self.begun |= !news.is_empty();
        Ok(())
    }
}

fn key(server: &Glance) -> Key {
    (server.namespace().to_owned(), server.name().to_owned())
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Phase};

    use super::*;

    fn put(name: &str) -> Change {
        Change::Put(Box::new(Glance::try_from(&DevServer::test().named(name).in_phase(Phase::Running)).unwrap()))
    }

    fn names(known: &Known) -> Option<Vec<String>> {
        known.complete().map(|servers| servers.map(|server| server.name().to_owned()).collect())
    }

    #[test]
    fn nothing_is_shown_before_everything_is_known_and_nothing_vanishes_meanwhile() {
        let mut known = Known::default();
        known.take(Change::Relisted);
        known.take(put("a"));
        assert_eq!(names(&known), None);
        known.take(Change::Listed);
        known.take(put("b"));
        assert_eq!(names(&known).unwrap(), ["a", "b"]);
        known.take(Change::Relisted);
        known.take(put("b"));
        assert_eq!(names(&known).unwrap(), ["a", "b"]);
        known.take(Change::Listed);
        assert_eq!(names(&known).unwrap(), ["b"]);
    }
}
