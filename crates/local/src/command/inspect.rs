//! What runs, what it says, and how to use it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde::Serialize;

use crate::control::{Conversation, Reply, Request};
use crate::layout::Layout;
use crate::problem::Problem;
use crate::settings::Shape;
use crate::supervisor::{PartStatus, Snapshot, State};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    #[serde(flatten)]
    status: PartStatus,
    /// Of the process itself, without its children.
    memory_bytes: Option<u64>,
}

/// Prints the parts; an error if any of them is not ready.
pub async fn status(layout: Layout, json: bool) -> anyhow::Result<()> {
    let directory = layout.root().to_path_buf();
    let blueprint = super::blueprint(layout)?;
    let snapshot = snapshot(&blueprint.layout).await?.ok_or(Problem::NotRunning { directory })?;
    let rows: Vec<Row> = snapshot
        .into_iter()
        .map(|(name, status)| Row { memory_bytes: status.pid.and_then(memory), name, status })
        .collect();
    let ready = |name: &str| rows.iter().any(|row| row.name == name && row.status.state == State::Ready);
    let all_ready = blueprint.parts().iter().all(|part| ready(&part.name));
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(4).max(4);
        writeln!(out, "{:width$}  {:9} {:>8} {:>9} {:>9}  NOTE", "PART", "STATE", "PID", "MEMORY", "RESTARTS")?;
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
        for node in &blueprint.settings.stopped {
            writeln!(out, "{node} is taken away; bring it back: odc local node start {node}")?;
        }
    }
    anyhow::ensure!(all_ready, "not every part is ready; see ./dev logs NAME");
    Ok(())
}

/// Shell lines for `eval`.
pub fn env(layout: Layout) -> anyhow::Result<()> {
    let blueprint = super::blueprint(layout)?;
    let kubeconfig = blueprint.settings.existing.clone().unwrap_or_else(|| blueprint.layout.kubeconfig());
    let mut out = std::io::stdout().lock();
    writeln!(out, "export KUBECONFIG={}", quoted(&kubeconfig.display().to_string()))?;
    if blueprint.settings.shape() != Shape::ControlPlane {
        writeln!(out, "export DATABASE_URL={}", quoted(&blueprint.database_url()?))?;
    }
    writeln!(out, "export PATH={}:\"$PATH\"", quoted(&blueprint.layout.bin().display().to_string()))?;
    writeln!(out, "export ODC_LOCAL_DIR={}", quoted(&blueprint.layout.root().display().to_string()))?;
    Ok(())
}

/// Becomes `tail` on the part's log.
pub fn logs(layout: &Layout, name: Option<&str>, follow: bool) -> anyhow::Result<()> {
    let known = known_logs(&layout.logs(), "");
    let Some(name) = name.filter(|name| known.contains(*name)) else {
        if known.is_empty() {
            return Err(Problem::NotRunning { directory: layout.root().into() }.into());
        }
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Problem::NoSuchPart { name: name.unwrap_or_default().into(), known }.into());
    };
    let mut tail = std::process::Command::new("tail");
    tail.args(["-n", "200"]);
    if follow {
        tail.arg("-F");
    }
    Err(tail.arg(layout.log_of(name)).exec().into())
}

/// Names of parts that have a log; a node's are in a directory of its own.
fn known_logs(directory: &Path, prefix: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match name.strip_suffix(".log") {
            Some(part) => drop(known.insert(format!("{prefix}{part}"))),
            None if entry.path().is_dir() => known.extend(known_logs(&entry.path(), &format!("{name}/"))),
            None => {}
        }
    }
    known
}

/// Nothing if no supervisor runs.
async fn snapshot(layout: &Layout) -> anyhow::Result<Option<Snapshot>> {
    let Some(mut conversation) = Conversation::start(&layout.socket(), &Request::Watch).await? else { return Ok(None) };
    match conversation.next().await? {
        Some(Reply::Parts(snapshot)) => Ok(Some(snapshot)),
        _ => Ok(None),
    }
}

fn memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_survives_the_shell() {
        for word in ["plain", "with space", "it's", "$HOME `x` \"y\""] {
            let output =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
