//! `devctl hibernate`: to sleep, with the devices given back and the home kept.

use odc_api::v1alpha1::Phase;
use serde_json::json;

use crate::app::App;
use crate::args::Hibernate;
use crate::failure::{Failure, Result};
use crate::find;
use crate::view;
use crate::wait;

pub async fn run(app: &App, args: Hibernate) -> Result<()> {
    let server = match args.server.name.as_deref() {
        Some(name) => find::named(app, name).await?,
        None => find::only(app, |server| server.phase() == Some(Phase::Running), "run").await?,
    };
    let name = server.name();
    if let Some(failure) = find::not_reachable(&server) {
        return Err(failure);
    }
    if server.ephemeral() {
        return Err(Failure::conflict(format!("{name} cannot sleep: its home is on the node and would be lost"))
            .advise(format!("devctl delete {name} ends it; create with --home-claim NAME to be able to sleep.")));
    }
    if server.phase() == Some(Phase::Hibernated) {
        app.talk.say(format!("{name} sleeps already."));
        return view::changed(&app.out, &server);
    }
    let mut after =
        app.backend.change(name, json!({"spec": {"desired": "Hibernated"}}), None, args.trial.dry_run).await?;
    app.talk.step("asking to sleep");
    if args.trial.dry_run {
        app.talk.say(format!("Nothing was changed: {name} would be put to sleep."));
    } else if args.no_wait {
        app.talk.say(format!("{name} goes to sleep."));
    } else {
        after = wait::until_asleep(app, name, args.timeout.into()).await?;
        app.talk.say(format!("{name} sleeps; its home is kept and its time stands still. devctl ssh {name} wakes it."));
    }
    view::changed(&app.out, &after)
}
