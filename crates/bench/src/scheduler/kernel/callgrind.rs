//! Instructions, which are the same on every machine and whatever else it does.

use std::process::Command;

use anyhow::Context as _;

/// Those of a decision. Counted are two runs that differ only in how often they plan, so that nothing else is in the
/// difference and no symbol is needed.
pub(super) fn instructions(nodes: u32, pending: u32) -> anyhow::Result<f64> {
    let (few, first) = counted(nodes, 1, pending)?;
    let (many, all) = counted(nodes, 3, pending)?;
    anyhow::ensure!(all > first && many > few, "three plans cost no more than one: {many} and {few} instructions");
    Ok((many - few) as f64 / (all - first) as f64)
}

/// All instructions of a rehearsal, and the decisions it made.
fn counted(nodes: u32, plans: u32, pending: u32) -> anyhow::Result<(u64, u64)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let output = command.arg("rehearsal").args([nodes, plans, pending].map(|number| number.to_string())).output();
    let output = output.context("valgrind counts instructions; install it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    let collected = collected.with_context(|| format!("callgrind said no count: {said}"))?.parse()?;
    Ok((collected, String::from_utf8_lossy(&output.stdout).trim().parse()?))
}
