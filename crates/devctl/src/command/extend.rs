//! `devctl extend`: more time, as the flavor's limits allow, answered by the operator.

use jiff::Timestamp;
use odc_api::duration::Duration;
use serde_json::json;

use crate::app::App;
use crate::args::Extend;
use crate::failure::{Failure, Kind, Result};
use crate::find;
use crate::glance::Glance;
use crate::output::time::{clock, left, span, whole_seconds};
use crate::view;
use crate::wait;

/// How often to try when others write too.
const ATTEMPTS: u32 = 5;
/// What is offered when nothing was said.
const USUAL: [Duration; 5] =
    [Duration::minutes(30), Duration::hours(1), Duration::hours(2), Duration::hours(4), Duration::hours(8)];

pub async fn run(app: &App, args: Extend) -> Result<()> {
    let server = find::server(app, args.server.name.as_deref()).await?;
    let wish = match (args.length(), args.total) {
        (Some(by), _) => Wish::By(by),
        (None, Some(total)) => Wish::Total(total),
        (None, None) if app.talk.can_ask() => Wish::By(crate::pick::select("By how much?", USUAL.to_vec())?.1),
        (None, None) => {
            return Err(Failure::usage("by how much is not said").advise(format!("devctl extend {} 2h", server.name())));
        }
    };
    let after = extend(app, &server, wish, args.trial.dry_run).await?;
    if !app.out.structured() && !args.trial.dry_run {
        app.out.print(&format!("{}\n", granted(&after, Timestamp::now())))?;
    }
    view::changed(&app.out, &after)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    By(Duration),
    Total(Duration),
}

/// Asks, waits for the answer, and says what the limits left of it.
pub async fn extend(app: &App, server: &Glance, wish: Wish, dry_run: bool) -> Result<Glance> {
    let name = server.name();
    let (mut server, mut attempt) = (server.clone(), 1);
    let (asked, changed) = loop {
        if let Some(failure) = find::not_reachable(&server) {
            return Err(failure);
        }
        let asked = asked(&server, wish)?;
        let patch = json!({"spec": {"lifetime": asked.to_string()}});
        let version = server.metadata.resource_version.as_deref();
        match app.backend.change(name, patch, version, dry_run).await {
            // Somebody else wrote meanwhile, perhaps more time too: what is added, is added to that.
            Err(failure) if failure.kind == Kind::Conflict && attempt < ATTEMPTS => {
                server = find::named(app, name).await?;
                attempt += 1;
            }
            outcome => break (asked, outcome?),
        }
    };
    app.talk.step("asking for more time");
    if dry_run {
        app.talk.say(format!("Nothing was changed: {name} would be asked to run {asked} in all."));
        return Ok(changed);
    }
    let answer = |server: &Glance| server.status.lifetime.as_ref().is_some_and(|lifetime| lifetime.asked == asked);
    let after = wait::answered(app, name, "more time", answer).await?;
    app.talk.step("waiting for the answer");
    verdict(app, &server, &after, asked)?;
    Ok(after)
}

/// What `spec.lifetime` must become. Pure.
fn asked(server: &Glance, wish: Wish) -> Result<Duration> {
    let before = server.spec.lifetime.unwrap_or_default();
    let granted = server.status.lifetime.as_ref().map_or(before, |lifetime| lifetime.granted);
    let asked = match wish {
        Wish::Total(total) if total < granted => {
            return Err(Failure::usage(format!("{total} in all is less than the {granted} it has"))
                .advise(format!("devctl edit {} --lifetime {total} shortens it.", server.name())));
        }
        Wish::Total(total) => total,
        Wish::By(by) if by == Duration::ZERO => {
            return Err(Failure::usage("nothing is no extension").advise("Say 2h, for example."));
        }
        Wish::By(by) => Duration::from_std(granted.as_std().saturating_add(by.as_std())),
    };
    // Limits once cut the wish to less. The same wish again would be no change, and nobody would look at it.
    let unheard = asked == before && granted < asked;
    Ok(if unheard { Duration::from_std(asked.as_std() + std::time::Duration::from_secs(1)) } else { asked })
}

fn verdict(app: &App, before: &Glance, after: &Glance, asked: Duration) -> Result<()> {
    let of =
        |server: &Glance| server.status.lifetime.as_ref().map(|lifetime| lifetime.granted).or(server.spec.lifetime);
    let (had, has) = (of(before).unwrap_or_default(), of(after).unwrap_or_default());
    let (name, flavor) = (after.name(), after.flavor().unwrap_or("its flavor"));
    if has == had && has < asked {
        return Err(Failure::conflict(format!(
            "{name} cannot be extended: {flavor} allows no more than the {has} it has"
        ))
        .advise("devctl flavors shows the limits; devctl create makes a new one when this one ends."));
    }
    if has < asked {
        let more = whole_seconds(has) - whole_seconds(had);
        app.talk.say(format!("{flavor} allows no more than {has}, so {name} got {} more.", span(more)));
    }
    Ok(())
}

pub fn granted(server: &Glance, now: Timestamp) -> String {
    if let Some(end) = &server.status.expires_at {
        return format!("{} runs until {} ({})", server.name(), clock(end.0, now), left(end.0, now));
    }
    let time = server.status.lifetime.as_ref().map(|lifetime| lifetime.granted.to_string()).unwrap_or_default();
    format!("{} may run {time} in all; its time stands still while it does not run", server.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(asked: &str, granted: &str) -> Glance {
        let server = json!({"metadata": {"name": "box"}, "spec": {"home": {}, "lifetime": asked},
            "status": {"lifetime": {"asked": asked, "granted": granted}}});
        serde_json::from_value(server).unwrap()
    }

    fn wish(server: &Glance, by: &str) -> String {
        asked(server, Wish::By(by.parse().unwrap())).unwrap().to_string()
    }

    #[test]
    fn more_time_is_added_to_what_there_is_not_to_what_was_wished() {
        assert_eq!(wish(&server("8h", "8h"), "2h"), "10h");
        assert_eq!(wish(&server("72h", "24h"), "2h"), "26h");
    }

    #[test]
    fn a_wish_that_was_cut_before_is_heard_again() {
        assert_eq!(wish(&server("72h", "24h"), "48h"), "72h1s");
    }

    #[test]
    fn less_than_there_is_is_no_extension() {
        let total = |total: &str| asked(&server("8h", "8h"), Wish::Total(total.parse().unwrap()));
        assert!(total("2h").unwrap_err().to_string().contains("devctl edit box --lifetime 2h"));
        assert_eq!(total("9h").unwrap().to_string(), "9h");
    }

    #[test]
    fn nothing_is_refused() {
        assert!(asked(&server("8h", "8h"), Wish::By(Duration::ZERO)).is_err());
    }
}
