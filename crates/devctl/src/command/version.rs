//! `devctl version`.

use serde::Serialize;

use crate::app::Desk;
use crate::args::Format;
use crate::failure::Result;
use crate::version;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    #[serde(rename = "version")]
    number: &'static str,
    commit: &'static str,
    /// The API it speaks.
    api: String,
}

pub fn run(desk: &Desk) -> Result<()> {
    let api = format!("{}/v1alpha1", odc_api::GROUP);
    match desk.out.format {
        Format::Json => desk.out.json(&Version { number: version::NUMBER, commit: version::COMMIT, api }),
        Format::Yaml => desk.out.yaml(&Version { number: version::NUMBER, commit: version::COMMIT, api }),
        Format::Name => desk.out.print(&format!("{}\n", version::NUMBER)),
        Format::Table | Format::Wide => desk.out.print(&format!("devctl {}, {api}\n", version::LONG)),
    }
}
