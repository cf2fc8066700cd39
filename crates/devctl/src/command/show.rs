//! `devctl show`.

use jiff::Timestamp;
use odc_api::v1alpha1::Phase;

use crate::app::App;
use crate::args::{Format, Show};
use crate::backend::Scope;
use crate::failure::Result;
use crate::find;
use crate::glance::Glance;
use crate::panel;
use crate::prospect::{freshen, told};
use crate::remote;
use crate::view::{Activity, Detail};

pub async fn run(app: &App, args: Show) -> Result<()> {
    let mut server = find::server(app, args.server.name.as_deref()).await?;
    if server.phase() == Some(Phase::Queued) && !args.offline {
        let entries = told(app, app.backend.entries(Scope::Own)).await?;
        freshen(&mut server, &entries.unwrap_or_default());
    }
    let activity = if args.offline { None } else { activity(app, &server).await };
    let now = Timestamp::now();
    match app.out.format {
        Format::Json => app.out.json(&Detail::new(&server, activity)),
        Format::Yaml => app.out.yaml(&Detail::new(&server, activity)),
        Format::Name => app.out.print(&format!("{}\n", server.name())),
        Format::Table | Format::Wide => app.out.print(&panel::whole(app, &server, activity.as_ref(), now)),
    }
}

/// What the server says about itself, if it runs. One that cannot be asked is shown without, and why is said.
pub async fn activity(app: &App, server: &Glance) -> Option<Activity> {
    if !server.ready() {
        return None;
    }
    let status = remote::status(app, server).await;
    app.talk.step("asking the server itself");
    match status {
        Ok(status) => status.as_ref().map(Activity::read),
        Err(failure) => {
            let advice = failure.advice.as_deref().unwrap_or_default();
            app.talk.say(format!("{} itself could not be asked: {}. {advice}", server.name(), failure.message));
            None
        }
    }
}
