//! From what was typed to a server: whole names, beginnings that only one has, and what was probably meant.

use futures_util::StreamExt as _;
use odc_api::v1alpha1::Phase;

use crate::app::App;
use crate::backend::Scope;
use crate::failure::{Failure, Result};
use crate::glance::Glance;

/// Set inside every server: there, no name means this one.
const HERE: &str = "ODC_SERVER";

/// Below this, two names have nothing to do with each other.
const ALIKE: f64 = 0.7;

/// The server that was named, or the only one there is.
pub async fn server(app: &App, typed: Option<&str>) -> Result<Glance> {
    match typed {
        Some(typed) => named(app, typed).await,
        None => only(app, |server| !server.ended(), "have not ended").await,
    }
}

/// The server of this name, or the only one whose name begins so.
pub async fn named(app: &App, typed: &str) -> Result<Glance> {
    let typed = typed.strip_suffix(".odc").unwrap_or(typed);
    if let Some(found) = app.backend.glance(typed).await? {
        app.talk.step("reading the server");
        return Ok(found);
    }
    let all = all(app).await?;
    app.talk.step("reading the names of servers");
    let chosen = choose(typed, all.iter().map(Glance::name))?.to_owned();
    all.into_iter().find(|server| server.name() == chosen).ok_or_else(|| no_server(typed, None))
}

/// A server by its whole name and nothing else: for programs, which would not notice that another one was meant.
pub async fn whole(app: &App, name: &str) -> Result<Glance> {
    if let Some(found) = app.backend.glance(name).await? {
        return Ok(found);
    }
    let all = all(app).await?;
    Err(no_server(name, nearest(name, all.iter().map(Glance::name))))
}

/// The only server that fits; with several, the person is asked, or told to say which.
pub async fn only(app: &App, fits: impl Fn(&Glance) -> bool, which: &str) -> Result<Glance> {
    let here = std::env::var(HERE).ok();
    let mut fitting: Vec<Glance> = all(app).await?.into_iter().filter(fits).collect();
    app.talk.step("reading servers");
    if let Some(here) = here
        && let Some(position) = fitting.iter().position(|server| server.name() == here)
    {
        return Ok(fitting.swap_remove(position));
    }
    match fitting.len() {
        0 => Err(Failure::not_found(format!("you have no servers that {which}"))
            .advise("devctl create makes one, devctl list --all shows ended ones.")),
        1 => Ok(fitting.remove(0)),
        _ if app.talk.can_ask() => crate::pick::server(fitting, app.talk.width()),
        _ => {
            let names: Vec<&str> = fitting.iter().map(Glance::name).collect();
            Err(Failure::usage("there are several servers").advise(format!("Say which: {}.", listed(&names))))
        }
    }
}

pub async fn all(app: &App) -> Result<Vec<Glance>> {
    let mut pages = app.backend.list(Scope::Own);
    let mut all = Vec::new();
    while let Some(page) = pages.next().await {
        all.extend(page?);
    }
    Ok(all)
}

/// Of these names the one that was meant. Pure.
pub fn choose<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Result<&'a str> {
    let names: Vec<&str> = names.collect();
    if let Some(exact) = names.iter().find(|name| **name == typed) {
        return Ok(exact);
    }
    let beginning: Vec<&str> =
        names.iter().copied().filter(|name| !typed.is_empty() && name.starts_with(typed)).collect();
    match beginning.as_slice() {
        [one] => Ok(one),
        [] => Err(no_server(typed, nearest(typed, names.iter().copied()))),
        several => Err(Failure::usage(format!("{typed} is the beginning of several names"))
            .advise(format!("Say which: {}.", listed(several)))),
    }
}

fn no_server(typed: &str, near: Option<&str>) -> Failure {
    let advice = near.map_or_else(
        || "devctl list shows what you have, devctl create makes one.".to_owned(),
        |near| format!("Did you mean {near}?"),
    );
    Failure::not_found(format!("there is no server {typed}")).advise(advice)
}

/// The name that is most like this one, if any is like it at all.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let scored = names.map(|name| (strsim::jaro_winkler(&typed, &name.to_lowercase()), name));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= ALIKE).then_some(best.1)
}

/// Names for a sentence: all, or the first few and how many more.
pub fn listed(names: &[&str]) -> String {
    const MOST: usize = 8;
    if names.len() <= MOST {
        return names.join(", ");
    }
    format!("{} and {} more", names[..MOST].join(", "), names.len() - MOST)
}

/// Why nobody can get into this server, if so. One that sleeps, waits or starts can be waited for.
pub fn not_reachable(server: &Glance) -> Option<Failure> {
    let name = server.name();
    let again = format!("devctl create {name} makes a new one of the same name.");
    if server.deleting() {
        return Some(Failure::conflict(format!("{name} is being deleted")).advise(again));
    }
    let failure = match server.phase()? {
        Phase::Expired => Failure::conflict(format!("{name} has expired: its time was used up")),
        Phase::Cancelled => Failure::conflict(format!("{name} was ended")),
        Phase::Failed => {
            let why = server.status.last_failure.as_ref().map_or("", |failure| failure.message.as_str());
            let why = if why.is_empty() { String::new() } else { format!(": {}", why.trim_end_matches('.')) };
            return Some(
                Failure::conflict(format!("{name} has failed{why}"))
                    .advise(format!("devctl debug {name} says more. {again}")),
            );
        }
        Phase::Stopping => Failure::conflict(format!("{name} is being stopped")),
        _ => return None,
    };
    Some(failure.advise(again))
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::DevServer;

    use super::*;
    use crate::failure::Kind;

    #[test]
    fn whole_names_win_over_beginnings() {
        assert_eq!(choose("box", ["box", "box-2"].into_iter()).unwrap(), "box");
        assert_eq!(choose("tr", ["box", "train"].into_iter()).unwrap(), "train");
    }

    #[test]
    fn a_beginning_of_several_names_is_asked_back() {
        let failure = choose("bo", ["box", "boat"].into_iter()).unwrap_err();
        assert_eq!((failure.kind, failure.advice.as_deref()), (Kind::Usage, Some("Say which: box, boat.")));
    }

    #[test]
    fn near_misses_are_suggested_and_far_ones_are_not() {
        let failure = choose("bix", ["box", "train"].into_iter()).unwrap_err();
        assert_eq!((failure.kind, failure.advice.as_deref()), (Kind::NotFound, Some("Did you mean box?")));
        let failure = choose("zebra", ["box", "train"].into_iter()).unwrap_err();
        assert!(failure.advice.unwrap().contains("devctl list"));
        assert_eq!(choose("", ["box"].into_iter()).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(listed(&names).ends_with("n7 and 12 more"));
    }

    #[test]
    fn each_end_is_told_apart() {
        let in_phase = |phase| {
            let server = DevServer::test().named("box").in_phase(phase);
            not_reachable(&Glance::try_from(&server).unwrap()).map(|failure| failure.message)
        };
        assert!(in_phase(Phase::Expired).unwrap().contains("expired"));
        assert!(in_phase(Phase::Cancelled).unwrap().contains("ended"));
        assert!(in_phase(Phase::Failed).unwrap().contains("failed"));
        assert!(in_phase(Phase::Stopping).unwrap().contains("stopped"));
        for waits in
            [Phase::Pending, Phase::Queued, Phase::Starting, Phase::Running, Phase::Hibernating, Phase::Hibernated]
        {
            assert_eq!(in_phase(waits), None, "{waits}");
        }
    }
}
