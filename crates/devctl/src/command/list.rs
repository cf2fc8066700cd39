//! `devctl list`.

mod rows;
mod watch;

use clap::Args;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use odc_api::name::UserName;
use odc_api::v1alpha1::Phase;

use crate::cli::Format;
use crate::cli::shared::WatchArgs;
use crate::client::Scope;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::output::Output;
use crate::output::json::ServerJson;

pub use rows::{note, table};

/// Finished servers are listed by default for this long.
const RECENT_SECONDS: i64 = 3600;

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only servers whose name starts with one of these
    #[arg(value_name = "NAME", add = clap_complete::ArgValueCompleter::new(crate::completion::server))]
    pub names: Vec<String>,
    /// Servers of another user, or of all users with `all`
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Only servers in these phases, such as running,queued; `all` includes finished servers of any age
    #[arg(short = 's', long = "phase", alias = "status", value_name = "PHASES", value_delimiter = ',')]
    pub phases: Vec<String>,
    /// Include servers that finished more than an hour ago
    #[arg(short, long)]
    pub all: bool,
    /// Print all columns, same as -o wide
    #[arg(short, long, hide = true)]
    pub details: bool,
    #[command(flatten)]
    pub watch: WatchArgs,
}

pub async fn run(ctx: &ClusterContext, args: ListArgs) -> Result<()> {
    let scope = parse_scope(args.user.as_deref())?;
    let filter = Filter::new(&args)?;
    let mut out = ctx.out.clone();
    if args.details && out.format == Format::Table {
        out.format = Format::Wide;
    }
    if args.watch.watch {
        return watch::run(ctx, &out, scope, &filter).await;
    }
    let mut servers = Vec::new();
    let mut pages = ctx.client.list(scope.clone());
    while let Some(page) = pages.next().await {
        servers.extend(page?);
    }
    ctx.ui.trace_step("listing servers");
    let now = clock::now();
    let total = servers.len();
    servers.retain(|server| filter.matches(server, now));
    print(&out, &servers, scope != Scope::Own, now)?;
    ctx.ui.trace_step("printing");
    if servers.is_empty() && !out.structured() {
        ctx.ui.info(empty_message(total, &filter));
    }
    Ok(())
}

fn empty_message(total: usize, filter: &Filter) -> &'static str {
    match (total, filter.is_narrow()) {
        (0, _) => "No servers found. Run `devctl create` to create one.",
        (_, true) => "No matching servers found",
        (_, false) => "No active servers found. Run `devctl list --all` to see finished ones.",
    }
}

fn parse_scope(user: Option<&str>) -> Result<Scope> {
    match user {
        None => Ok(Scope::Own),
        Some("all") => Ok(Scope::All),
        Some(user) => {
            let name = user.parse::<UserName>();
            let name = name.map_err(|error| Error::usage(error.to_string()).with_hint("give a user name or `all`"))?;
            Ok(Scope::Namespace(odc_api::namespace::for_user(&name)))
        }
    }
}

fn print(out: &Output, servers: &[ServerSummary], owners: bool, now: Timestamp) -> Result<()> {
    let names = || servers.iter().map(|server| server.name().to_owned()).collect();
    match out.format {
        Format::Json | Format::Yaml => {
            let servers: Vec<ServerJson> = servers.iter().map(ServerJson::from).collect();
            out.show(&servers, names, || table(&[], owners, now))
        }
        // Do not print a header without rows.
        Format::Table | Format::Wide if servers.is_empty() => Ok(()),
        Format::Name | Format::Table | Format::Wide => out.show(&(), names, || table(servers, owners, now)),
    }
}

/// Selects the servers to list.
struct Filter {
    prefixes: Vec<String>,
    phases: Vec<Phase>,
    /// Include finished servers of any age.
    finished: bool,
}

impl Filter {
    fn new(args: &ListArgs) -> Result<Self> {
        let mut filter = Self { prefixes: args.names.clone(), phases: Vec::new(), finished: args.all };
        for word in &args.phases {
            if word.eq_ignore_ascii_case("all") {
                filter.finished = true;
                continue;
            }
            let phase = Phase::ALL.iter().find(|phase| phase.as_str().eq_ignore_ascii_case(word));
            let phase = phase.ok_or_else(|| {
                let all = Phase::ALL.iter().map(|phase| phase.as_str().to_lowercase()).collect::<Vec<_>>().join(", ");
                Error::usage(format!("unknown phase {word:?}")).with_hint(format!("choose from {all}, or `all`"))
            })?;
            filter.phases.push(*phase);
        }
        Ok(filter)
    }

    /// Reports whether names or phases restrict the list.
    fn is_narrow(&self) -> bool {
        !self.prefixes.is_empty() || !self.phases.is_empty()
    }

    fn matches(&self, server: &ServerSummary, now: Timestamp) -> bool {
        let prefix =
            self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| server.name().starts_with(prefix.as_str()));
        let phase = if self.phases.is_empty() {
            self.finished || !server.is_finished() || is_recent(server, now)
        } else {
            server.phase().is_some_and(|phase| self.phases.contains(&phase))
        };
        prefix && phase
    }
}

fn is_recent(server: &ServerSummary, now: Timestamp) -> bool {
    let finished = server.status.finished_at.as_ref().map(|time| time.0);
    finished.is_none_or(|finished| now.as_second() - finished.as_second() < RECENT_SECONDS)
}
