//! `devctl wake`.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use super::show::activity;
use crate::app::App;
use crate::args::Wake;
use crate::failure::Result;
use crate::find;
use crate::glance::Glance;
use crate::panel;
use crate::view;
use crate::wait::{self, Interrupt};
use crate::waking::{Waking, new_id, waking};

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
    let after = match waking(&server, &new_id()) {
        Waking::Awake => {
            app.talk.say(format!("{name} does not sleep; it is {}.", server.phase_word()));
            return view::changed(&app.out, &server);
        }
        Waking::UnderWay => server.clone(),
        Waking::By(patch) => {
            let after = app.backend.change(name, patch, None, args.trial.dry_run).await?;
            app.talk.step("asking to wake");
            after
        }
    };
    if args.trial.dry_run {
        app.talk.say(format!("Nothing was changed: {name} would be woken."));
        return view::changed(&app.out, &after);
    }
    if args.no_wait {
        app.talk.say(format!("{name} wakes. devctl ssh {name} waits for it and goes in."));
        return view::changed(&app.out, &after);
    }
    let ready = wait::until_ready(app, name, Interrupt::Leaves, args.timeout.map(Into::into)).await?;
    if app.out.structured() {
        return view::changed(&app.out, &ready);
    }
    let activity = if ready.spec.access.jupyter { activity(app, &ready).await } else { None };
    app.out.print(&panel::ready(app, &ready, activity.as_ref(), Timestamp::now()))
}
