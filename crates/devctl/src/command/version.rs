//! `devctl version`.

use serde::Serialize;

use crate::cli::Format;
use crate::context::LocalContext;
use crate::error::Result;
use crate::version;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionJson {
    version: &'static str,
    commit: &'static str,
    /// The API version that devctl uses.
    api: String,
}

pub fn run(ctx: &LocalContext) -> Result<()> {
    let api = format!("{}/v1alpha1", odc_api::GROUP);
    match ctx.out.format {
        Format::Json => ctx.out.json(&VersionJson { version: version::NUMBER, commit: version::COMMIT, api }),
        Format::Yaml => ctx.out.yaml(&VersionJson { version: version::NUMBER, commit: version::COMMIT, api }),
        Format::Name => ctx.out.print(&format!("{}\n", version::NUMBER)),
        Format::Table | Format::Wide => ctx.out.print(&format!("devctl {}, {api}\n", version::LONG)),
    }
}
