//! `devctl wake`, and how every command wakes a server.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;
use rand::Rng as _;
use serde_json::{Value, json};

use super::show::activity;
use crate::app::App;
use crate::args::Wake;
use crate::failure::{Failure, Result};
use crate::find;
use crate::glance::Glance;
use crate::panel;
use crate::wait::{self, Interrupt};

pub async fn run(app: &App, args: Wake) -> Result<()> {
    let sleeps = |server: &Glance| matches!(server.phase(), Some(Phase::Hibernated | Phase::Hibernating));
    let server = match args.name.as_deref() {
        Some(name) => find::named(app, name).await?,
        None => find::only(app, sleeps, "sleep").await?,
    };
    let name = server.name();
    if let Some(failure) = find::not_reachable(&server) {
        return Err(failure);
    }
    if !rouse(app, &server, args.dry_run).await? {
        app.talk.say(format!("{name} does not sleep; it is {}.", server.phase_word()));
        return Ok(());
    }
    if args.dry_run {
        app.talk.say(format!("Nothing was changed: {name} would be woken."));
        return Ok(());
    }
    if args.no_wait {
        app.talk.say(format!("{name} wakes. devctl ssh {name} waits for it and goes in."));
        return Ok(());
    }
    let ready = wait::until_ready(app, name, Interrupt::Leaves, args.timeout.map(Into::into)).await?;
    let activity = if ready.spec.access.jupyter { activity(app, &ready).await } else { None };
    app.out.print(&panel::ready(app, &ready, activity.as_ref(), Timestamp::now()))
}

/// Wakes a server that sleeps or is about to; says whether it did.
pub async fn rouse(app: &App, server: &Glance, dry_run: bool) -> Result<bool> {
    let mut id = [0_u8; 12];
    rand::rng().fill_bytes(&mut id);
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let Some(patch) = wish(server, &id) else { return Ok(false) };
    if server.ended() {
        return Err(Failure::conflict(format!("{} has ended", server.name())));
    }
    app.backend.change(server.name(), patch, None, dry_run).await?;
    app.talk.step("asking to wake");
    Ok(true)
}

/// What wakes it: whoever was told to sleep is told to run; whoever idleness or a drain put to sleep gets a new id. Pure.
fn wish(server: &Glance, id: &str) -> Option<Value> {
    let told = server.spec.desired.as_deref() == Some("Hibernated");
    let sleeps = matches!(server.phase(), Some(Phase::Hibernated | Phase::Hibernating));
    match (told, sleeps) {
        (true, _) => Some(json!({"spec": {"desired": "Running"}})),
        (false, true) => Some(json!({"spec": {"wake": id}})),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{Desired, DevServer};

    use super::*;

    fn asked(desired: Desired, phase: Phase) -> Option<Value> {
        let server = DevServer::test().desired(desired).in_phase(phase);
        wish(&Glance::try_from(&server).unwrap(), "id-1")
    }

    #[test]
    fn who_put_it_to_sleep_decides_what_wakes_it() {
        let told = Some(json!({"spec": {"desired": "Running"}}));
        assert_eq!(asked(Desired::Hibernated, Phase::Hibernated), told);
        assert_eq!(asked(Desired::Hibernated, Phase::Running), told);
        assert_eq!(asked(Desired::Running, Phase::Hibernated), Some(json!({"spec": {"wake": "id-1"}})));
        assert_eq!(asked(Desired::Running, Phase::Hibernating), Some(json!({"spec": {"wake": "id-1"}})));
        assert_eq!(asked(Desired::Running, Phase::Running), None);
        assert_eq!(asked(Desired::Running, Phase::Queued), None);
    }
}
