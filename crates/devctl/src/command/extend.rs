//! `devctl extend`: requests a longer lifetime, which the operator grants within the limits of the flavor. `devctl edit
//! --lifetime` may also shorten it.

use clap::Args;
use jiff::Timestamp;
use odc_api::duration::Duration;
use serde_json::json;

use crate::cli::shared::{DryRunArgs, ServerArg};
use crate::cli::value::Hours;
use crate::client::retry_on_conflict;
use crate::clock;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::output::duration::{format, format_clock, format_duration, format_until_expiry, seconds};
use crate::output::json::print_server;
use crate::resolve;
use crate::wait;

/// The extensions that the prompt offers.
const PRESETS: [Duration; 5] =
    [Duration::minutes(30), Duration::hours(1), Duration::hours(2), Duration::hours(4), Duration::hours(8)];

#[derive(Args, Debug)]
pub struct ExtendArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Extension, such as 2h
    #[arg(value_name = "DURATION")]
    pub duration: Option<Duration>,
    /// Extension, such as 2h
    #[arg(long, alias = "time", value_name = "DURATION", conflicts_with = "duration", hide = true)]
    pub by: Option<Duration>,
    /// Extension in hours, such as 0.5
    #[arg(long, value_name = "HOURS", conflicts_with_all = ["duration", "by"], hide = true)]
    pub hours: Option<Hours>,
    /// Total lifetime, counted from the first start
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["duration", "by", "hours"])]
    pub total: Option<Duration>,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

impl ExtendArgs {
    fn change(&self) -> Option<LifetimeChange> {
        let by = self.duration.or(self.by).or(self.hours.map(|hours| hours.0));
        by.map(LifetimeChange::ExtendBy).or(self.total.map(LifetimeChange::ExtendTo))
    }
}

pub async fn run(ctx: &ClusterContext, args: ExtendArgs) -> Result<()> {
    let server = resolve::resolve(ctx, args.server.name.as_deref()).await?;
    let change = match args.change() {
        Some(change) => change,
        None if ctx.ui.is_interactive() => {
            LifetimeChange::ExtendBy(crate::prompt::select("Extend by?", PRESETS.to_vec())?.1)
        }
        None => {
            return Err(Error::usage("missing duration").with_hint(format!("run `devctl extend {} 2h`", server.name())));
        }
    };
    let after = change_lifetime(ctx, &server, change, args.dry_run.dry_run).await?;
    print_server(&ctx.out, &after)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeChange {
    ExtendBy(Duration),
    ExtendTo(Duration),
    /// May also shorten the lifetime.
    Set(Duration),
}

/// Requests a lifetime, waits until the operator has granted it, and prints the result.
pub async fn change_lifetime(
    ctx: &ClusterContext,
    server: &ServerSummary,
    change: LifetimeChange,
    dry_run: bool,
) -> Result<ServerSummary> {
    let name = server.name();
    let mut known = Some(server.clone());
    let read = async || -> Result<(ServerSummary, Duration)> {
        let server = match known.take() {
            Some(server) => server,
            // Another client may have extended it: add to the new lifetime.
            None => resolve::exact(ctx, name).await?,
        };
        if let Some(error) = resolve::not_connectable(&server) {
            return Err(error);
        }
        let requested = requested_lifetime(&server, change, clock::now())?;
        Ok((server, requested))
    };
    let write = async |(server, requested): &(ServerSummary, Duration)| {
        let patch = json!({"spec": {"lifetime": requested.to_string()}});
        ctx.client.patch(name, patch, server.metadata.resource_version.as_deref(), dry_run).await
    };
    let ((before, requested), patched) = retry_on_conflict(read, write).await?;
    ctx.ui.trace_step("requesting the lifetime");
    if dry_run {
        ctx.ui.info(format!("Lifetime of server {name} would be set to {} (dry run)", format_duration(requested)));
        return Ok(patched);
    }
    let is_processed = |server: &ServerSummary| {
        server.status.lifetime.as_ref().is_some_and(|lifetime| lifetime.requested == requested)
    };
    let after = wait::until_status(ctx, name, "lifetime", is_processed).await?;
    ctx.ui.trace_step("waiting for the operator");
    report_limit(ctx, &before, &after, requested)?;
    ctx.ui.info(format_lifetime(&after, clock::now()));
    Ok(after)
}

/// Returns the new value of `spec.lifetime`.
fn requested_lifetime(server: &ServerSummary, change: LifetimeChange, now: Timestamp) -> Result<Duration> {
    let name = server.name();
    let before = server.spec.lifetime.unwrap_or_default();
    let granted = server.status.lifetime.as_ref().map_or(before, |lifetime| lifetime.granted);
    let requested = match change {
        LifetimeChange::ExtendTo(total) if total < granted => {
            return Err(Error::usage(format!(
                "total lifetime {} is shorter than the current {}",
                format_duration(total),
                format_duration(granted)
            ))
            .with_hint(format!("to shorten it, run `devctl edit {name} --lifetime {total}`")));
        }
        LifetimeChange::Set(total) if total <= run_time(server, granted, now) => {
            return Err(Error::usage(format!(
                "server {name} has already run for {}",
                format_duration(run_time(server, granted, now))
            ))
            .with_hint(format!("give a longer lifetime, or delete the server with `devctl delete {name}`")));
        }
        LifetimeChange::ExtendTo(total) | LifetimeChange::Set(total) => total,
        LifetimeChange::ExtendBy(by) if by == Duration::ZERO => {
            return Err(Error::usage("duration must be greater than zero").with_hint("give a duration such as 2h"));
        }
        LifetimeChange::ExtendBy(by) => Duration::from_std(granted.as_std().saturating_add(by.as_std())),
    };
    // If a limit reduced the same request before, the spec would not change and the operator would not react.
    let unchanged = requested == before && granted < requested;
    Ok(if unchanged { Duration::from_std(requested.as_std() + std::time::Duration::from_secs(1)) } else { requested })
}

/// Returns how long a running server has run; zero if its lifetime is paused, because its expiry is then unknown.
fn run_time(server: &ServerSummary, granted: Duration, now: Timestamp) -> Duration {
    let left = server.status.expires_at.as_ref().map(|end| end.0.as_second() - now.as_second());
    let seconds = left.map_or(0, |left| seconds(granted).saturating_sub(left));
    Duration::from_std(std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Fails if the limits of the flavor allow no extension, and warns if they allow less than requested.
fn report_limit(
    ctx: &ClusterContext,
    before: &ServerSummary,
    after: &ServerSummary,
    requested: Duration,
) -> Result<()> {
    let granted = |server: &ServerSummary| {
        server.status.lifetime.as_ref().map(|lifetime| lifetime.granted).or(server.spec.lifetime).unwrap_or_default()
    };
    let (old, new) = (granted(before), granted(after));
    let (name, flavor) = (after.name(), after.flavor().unwrap_or("default"));
    if new == old && new < requested {
        return Err(Error::conflict(format!(
            "cannot extend server {name}: flavor {flavor} limits the lifetime to {}",
            format_duration(new)
        ))
        .with_hint("run `devctl flavors` to see the limits"));
    }
    if new < requested {
        let extension = format(seconds(new) - seconds(old));
        ctx.ui.warn(format!(
            "flavor {flavor} limits the lifetime to {}; extended server {name} by {extension}",
            format_duration(new)
        ));
    }
    Ok(())
}

fn format_lifetime(server: &ServerSummary, now: Timestamp) -> String {
    let granted = server.status.lifetime.as_ref().map(|lifetime| format_duration(lifetime.granted));
    let lifetime = format!("Lifetime of server {} is now {}", server.name(), granted.unwrap_or_default());
    match &server.status.expires_at {
        Some(end) => {
            format!("{lifetime}; it expires at {} ({})", format_clock(end.0, now), format_until_expiry(end.0, now))
        }
        None => format!("{lifetime}; it is paused while the server is not running"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(requested: &str, granted: &str) -> ServerSummary {
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}, "lifetime": requested},
            "status": {"lifetime": {"requested": requested, "granted": granted}}});
        serde_json::from_value(server).unwrap()
    }

    fn request(server: &ServerSummary, change: LifetimeChange) -> Result<Duration> {
        requested_lifetime(server, change, "2026-01-01T03:00:00Z".parse().unwrap())
    }

    fn extended_by(server: &ServerSummary, by: &str) -> String {
        request(server, LifetimeChange::ExtendBy(by.parse().unwrap())).unwrap().to_string()
    }

    #[test]
    fn extension_is_added_to_the_granted_lifetime() {
        assert_eq!(extended_by(&server("8h", "8h"), "2h"), "10h");
        assert_eq!(extended_by(&server("72h", "24h"), "2h"), "26h");
    }

    #[test]
    fn repeated_request_above_the_limit_changes_the_spec() {
        assert_eq!(extended_by(&server("72h", "24h"), "48h"), "72h1s");
    }

    #[test]
    fn total_below_the_granted_lifetime_is_rejected() {
        let total = |total: &str| request(&server("8h", "8h"), LifetimeChange::ExtendTo(total.parse().unwrap()));
        assert!(total("2h").unwrap_err().to_string().contains("devctl edit box --lifetime 2h"));
        assert_eq!(total("9h").unwrap().to_string(), "9h");
    }

    #[test]
    fn zero_extension_is_rejected() {
        assert!(request(&server("8h", "8h"), LifetimeChange::ExtendBy(Duration::ZERO)).is_err());
    }

    #[test]
    fn set_lifetime_may_be_shorter_but_not_below_the_run_time() {
        let mut running = server("8h", "8h");
        let set = |server: &ServerSummary, total: &str| request(server, LifetimeChange::Set(total.parse().unwrap()));
        assert_eq!(set(&running, "2h").unwrap().to_string(), "2h", "a paused server");
        running.status.expires_at = Some(serde_json::from_value(json!("2026-01-01T08:00:00Z")).unwrap());
        assert_eq!(set(&running, "4h").unwrap().to_string(), "4h");
        assert_eq!(set(&running, "9h").unwrap().to_string(), "9h");
        let error = set(&running, "3h").unwrap_err();
        assert_eq!(error.message, "server box has already run for 3h");
    }
}
