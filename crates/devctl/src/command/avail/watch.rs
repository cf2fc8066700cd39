//! What is free, as it changes. Flavors are watched; the queue is asked again when one changes, and not too often.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use odc_api::v1alpha1::DevServerFlavor;
use tokio::time::Instant;

use super::{Told, chosen, print, table, views};
use crate::app::App;
use crate::args::{Avail, Format};
use crate::failure::{Kind, Result};
use crate::output::live::Live;
use crate::prospect::told;

/// The queue works a plan out for every size of every flavor.
const LEAST: Duration = Duration::from_secs(5);

pub(super) async fn run(app: &App, args: &Avail) -> Result<()> {
    let mut changes = app.backend.watch_flavors();
    let mut flavors: Option<Vec<DevServerFlavor>> = None;
    let (mut said, mut live, mut printed): (Told, _, Option<String>) = (None, Live::default(), None);
    // When the queue is asked next: at a change, but no sooner than some time after the last question.
    let (mut asked, mut due) = (None::<Instant>, false);
    loop {
        let next = asked.map_or_else(Instant::now, |asked| asked + LEAST);
        tokio::select! {
            change = changes.next() => {
                let Some(change) = change else { return Ok(()) };
                (flavors, due) = (Some(change?), true);
            }
            () = tokio::time::sleep_until(next), if due => {
                match told(app, app.backend.availabilities()).await {
                    Ok(new) => (said, due) = (new, false),
                    // As with a watch that breaks: the next question may be answered.
                    Err(failure) if failure.kind == Kind::Failed => app.talk.verbose(|| failure.message),
                    Err(failure) => return Err(failure),
                }
                asked = Some(Instant::now());
            }
        }
        let (Some(flavors), Some(_)) = (&flavors, asked) else { continue };
        let shown = chosen(flavors, args)?;
        let views = views(&shown, &said);
        // Where nothing is drawn over, only what changed is news, not that time has passed.
        let data = serde_json::to_string(&views).ok();
        let news = printed.is_none() || printed != data;
        match app.out.format {
            Format::Json | Format::Yaml if news => app.out.one_of_many(&views)?,
            Format::Name if news => print(app, &shown, &said)?,
            Format::Table | Format::Wide if news || app.out.repaints() => {
                live.show(&app.out, &app.out.rendered(&table(shown.into_iter(), &said, Timestamp::now())))?;
            }
            _ => {}
        }
        printed = data;
    }
}
