//! `odc local status`: prints the state of every component.

use std::io::Write as _;

use serde::Serialize;

use crate::control::{Reply, Request, SupervisorClient};
use crate::error::Error;
use crate::layout::Layout;
use crate::process::resident_memory;
use crate::supervisor::{ComponentStatus, State, Statuses};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    #[serde(flatten)]
    status: ComponentStatus,
    /// Resident memory of the process itself, without its children.
    memory_bytes: Option<u64>,
}

/// Prints the components. Fails if any of them is not ready.
pub async fn status(layout: Layout, json: bool) -> anyhow::Result<()> {
    let directory = layout.root().to_path_buf();
    let blueprint = super::load_blueprint(layout)?;
    let statuses = current_statuses(&blueprint.layout).await?.ok_or(Error::NotRunning { directory })?;
    let rows: Vec<Row> = statuses
        .into_iter()
        .map(|(name, status)| Row { memory_bytes: status.pid.and_then(memory), name, status })
        .collect();
    let ready = |name: &str| rows.iter().any(|row| row.name == name && row.status.state == State::Ready);
    let all_ready = blueprint.components().iter().all(|component| ready(&component.name));
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        const NAME_HEADER: &str = "COMPONENT";
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(NAME_HEADER.len());
        writeln!(out, "{NAME_HEADER:width$}  {:9} {:>8} {:>9} {:>9}  MESSAGE", "STATE", "PID", "MEMORY", "RESTARTS")?;
        for row in &rows {
            let pid = row.status.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
            let memory = row.memory_bytes.map_or_else(|| "-".into(), |bytes| format!("{} MiB", bytes >> 20));
            let state = match row.status.state {
                State::Waiting => "waiting",
                State::Starting => "starting",
                State::Ready => "ready",
                State::BackOff => "back-off",
            };
            let line = format!(
                "{:width$}  {state:9} {pid:>8} {memory:>9} {:>9}  {}",
                row.name, row.status.restarts, row.status.message
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out, "\n{} in {}", blueprint.settings.describe(), blueprint.layout.root().display())?;
        if blueprint.lacks_storage() {
            writeln!(out, "{}", super::up::NO_STORAGE)?;
        }
        for node in &blueprint.settings.stopped {
            writeln!(out, "Node {node} is powered off. Run `odc local node start {node}` to start it again.")?;
        }
    }
    anyhow::ensure!(all_ready, "not every component is ready\nhint: run `./dev logs NAME`");
    Ok(())
}

/// Returns `None` if no supervisor is running.
async fn current_statuses(layout: &Layout) -> anyhow::Result<Option<Statuses>> {
    let Some(mut client) = SupervisorClient::send(&layout.socket(), &Request::Watch).await? else { return Ok(None) };
    match client.next_reply().await? {
        Some(Reply::Statuses(statuses)) => Ok(Some(statuses)),
        _ => Ok(None),
    }
}

fn memory(pid: i32) -> Option<u64> {
    resident_memory(pid.try_into().ok()?).ok()
}
