//! `devctl list`.

mod rows;
mod watch;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use odc_api::name::UserName;
use odc_api::v1alpha1::Phase;

use crate::app::App;
use crate::args::{Format, List};
use crate::backend::Scope;
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::output::Output;
use crate::view::Server;

pub use rows::{note, table};

/// Ended servers are shown this long without being asked for.
const RECENT: i64 = 3600;

pub async fn run(app: &App, args: List) -> Result<()> {
    let scope = scope(args.user.as_deref())?;
    let filter = Filter::new(&args)?;
    let mut out = app.out.clone();
    if args.details && out.format == Format::Table {
        out.format = Format::Wide;
    }
    if args.watch {
        return watch::run(app, &out, scope, &filter).await;
    }
    let mut servers = Vec::new();
    let mut pages = app.backend.list(scope.clone());
    while let Some(page) = pages.next().await {
        servers.extend(page?);
    }
    app.talk.step("reading servers");
    let now = Timestamp::now();
    let before = servers.len();
    servers.retain(|server| filter.shows(server, now));
    print(&out, &servers, scope != Scope::Own, now)?;
    app.talk.step("printing");
    if servers.is_empty() && !out.structured() {
        app.talk.say(nothing(before, &filter));
    }
    Ok(())
}

fn nothing(hidden: usize, filter: &Filter) -> &'static str {
    match (hidden, filter.narrows()) {
        (0, _) => "No servers. devctl create makes one.",
        (_, true) => "No server fits.",
        (_, false) => "No servers but ended ones; devctl list --all shows them.",
    }
}

fn scope(user: Option<&str>) -> Result<Scope> {
    match user {
        None => Ok(Scope::Own),
        Some("all") => Ok(Scope::Everybody),
        Some(user) => {
            let name: UserName = user.parse().map_err(|error| {
                Failure::usage(format!("{user:?} is no user: {error}")).advise("Name a user, or say --user all.")
            })?;
            Ok(Scope::Namespace(odc_api::namespace::of(&name)))
        }
    }
}

fn print(out: &Output, servers: &[Glance], owners: bool, now: Timestamp) -> Result<()> {
    let names = || servers.iter().map(|server| server.name().to_owned()).collect();
    match out.format {
        Format::Json | Format::Yaml => {
            let views: Vec<Server> = servers.iter().map(Server::from).collect();
            out.show(&views, names, || table(&[], owners, now))
        }
        // A table of nothing is nothing.
        Format::Table | Format::Wide if servers.is_empty() => Ok(()),
        Format::Name | Format::Table | Format::Wide => out.show(&(), names, || table(servers, owners, now)),
    }
}

/// Which servers are shown.
struct Filter {
    names: Vec<String>,
    phases: Vec<Phase>,
    /// However long ago they ended.
    ended: bool,
}

impl Filter {
    fn new(args: &List) -> Result<Self> {
        let mut filter = Self { names: args.names.clone(), phases: Vec::new(), ended: args.all };
        for word in &args.status {
            if word.eq_ignore_ascii_case("all") {
                filter.ended = true;
                continue;
            }
            let known = Phase::ALL.iter().find(|phase| phase.as_str().eq_ignore_ascii_case(word));
            let phase = known.ok_or_else(|| {
                let all = Phase::ALL.iter().map(|phase| phase.as_str().to_lowercase()).collect::<Vec<_>>().join(", ");
                Failure::usage(format!("{word:?} is no phase")).advise(format!("There are {all}, and all."))
            })?;
            filter.phases.push(*phase);
        }
        Ok(filter)
    }

    fn narrows(&self) -> bool {
        !self.names.is_empty() || !self.phases.is_empty()
    }

    fn shows(&self, server: &Glance, now: Timestamp) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|name| server.name().starts_with(name.as_str()));
        let fits = if self.phases.is_empty() {
            self.ended || !server.ended() || recent(server, now)
        } else {
            server.phase().is_some_and(|phase| self.phases.contains(&phase))
        };
        named && fits
    }
}

fn recent(server: &Glance, now: Timestamp) -> bool {
    let ended = server.status.finished_at.as_ref().map(|time| time.0);
    ended.is_none_or(|ended| now.as_second() - ended.as_second() < RECENT)
}
