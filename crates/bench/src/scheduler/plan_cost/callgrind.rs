//! Instruction counts, which do not depend on the machine or its load.

use std::process::Command;

use anyhow::Context as _;

/// Returns the instructions per decision, as the difference of two runs with different numbers of plans.
pub(super) fn instructions(nodes: u32, pending: u32) -> anyhow::Result<f64> {
    let (few, first) = count(nodes, 1, pending)?;
    let (many, all) = count(nodes, 3, pending)?;
    anyhow::ensure!(all > first && many > few, "three plans need no more instructions than one: {many} and {few}");
    Ok((many - few) as f64 / (all - first) as f64)
}

/// Returns the instructions and decisions of one run.
fn count(nodes: u32, plans: u32, pending: u32) -> anyhow::Result<(u64, u64)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let output = command.arg("tune").args([nodes, plans, pending].map(|number| number.to_string())).output();
    let output = output.context("running valgrind; is it installed?")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {stderr}");
    let collected = stderr.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    let collected =
        collected.with_context(|| format!("no instruction count in the output of callgrind: {stderr}"))?.parse()?;
    Ok((collected, String::from_utf8_lossy(&output.stdout).trim().parse()?))
}
