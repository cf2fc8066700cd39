//! `odc sim`: simulates a request trace, or replays a recorded trace, in virtual time with the operator's scheduler.

mod table;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use odc_core::scheduler::{Policy, TraceRecord};
use odc_core::sim::{self, Line, Options, Report, trace_import};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Sim {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    simulate: Simulate,
}

#[derive(Args)]
struct Simulate {
    /// The trace: one JSON object per line, sorted by its time `t`; docs/reference/simulator.md lists all kinds of lines
    #[arg(required = true, value_name = "TRACE.jsonl")]
    trace: Option<PathBuf>,
    /// The scheduler policy; missing settings have the operator's defaults
    #[arg(long, value_name = "FILE.yaml")]
    policy: Option<PathBuf>,
    /// Also simulate the trace with these lines in place of those for the same team, user, flavor or node, and compare the
    /// results
    #[arg(long, value_name = "LINES.jsonl")]
    with: Option<PathBuf>,
    /// Record all events and plans as a trace that replays to the same decisions
    #[arg(long, value_name = "FILE.jsonl")]
    record: Option<PathBuf>,
    /// Exclude the estimates of the first N requests from the ETA coverage
    #[arg(long, value_name = "N", default_value_t = 0)]
    warm_up: usize,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Subcommand)]
enum Verb {
    /// Convert a trace from another format
    Convert {
        #[arg(value_enum)]
        from: From,
        file: PathBuf,
        /// Number of nodes, if the trace does not define it
        #[arg(long)]
        nodes: Option<u32>,
        /// Number of devices per node
        #[arg(long)]
        devices_per_node: Option<u32>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    /// The Standard Workload Format of the parallel workloads archive
    Swf,
    /// CSV with the columns t, user, count, lifetime and optionally id, team, nodes, actual, priority
    Csv,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// A report with a hash of all decisions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Simulation {
    #[serde(flatten)]
    report: Report,
    decision_hash: String,
}

impl Sim {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut out = BufWriter::new(io::stdout().lock());
        match self.verb {
            Some(Verb::Convert { from, file, nodes, devices_per_node }) => {
                let machine = trace_import::Machine { nodes, devices_per_node };
                let text = read(&file)?;
                let lines = match from {
                    From::Swf => trace_import::swf(&text, &machine),
                    From::Csv => trace_import::csv(&text, &machine),
                };
                for line in lines.with_context(|| format!("converting {}", file.display()))? {
                    writeln!(out, "{line}")?;
                }
            }
            None => self.simulate.run(&mut out)?,
        }
        out.flush()?;
        Ok(())
    }
}

impl Simulate {
    fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { trace, policy, with, record, warm_up, output } = self;
        let Some(trace) = trace else { unreachable!("clap requires the trace without a subcommand") };
        let options = Options { warm_up, ..Options::default() };
        let mut lines = read_trace(&trace)?;
        anyhow::ensure!(
            (policy.is_none() && with.is_none()) || !lines.iter().any(|(_, line)| line.is_recorded()),
            "{} is a recorded trace; --policy and --with require a request trace\nhint: run `devctl admin team what-if` for the \
             current queue",
            trace.display(),
        );
        let policy = match &policy {
            // It replaces the policies of the trace.
            Some(path) => {
                lines.retain(|(_, line)| !matches!(line.content, sim::Content::Policy(_)));
                read_policy(path)?
            }
            None => Policy::default(),
        };
        let simulation = simulate(&lines, &policy, options, record.as_deref())?;
        let changed = match &with {
            Some(with) => Some(simulate(&replace_lines(lines, &read_trace(with)?), &policy, options, None)?),
            None => None,
        };
        match (output, changed) {
            (Output::Json, None) => serde_json::to_writer(&mut *out, &simulation)?,
            (Output::Json, Some(changed)) => {
                serde_json::to_writer(&mut *out, &json!({"before": simulation, "after": changed}))?;
            }
            (Output::Table, changed) => table::write(out, &simulation, changed.as_ref())?,
        }
        writeln!(out)?;
        Ok(())
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn read_trace(path: &Path) -> anyhow::Result<Vec<(usize, Line)>> {
    sim::read(&read(path)?).with_context(|| format!("reading {}", path.display()))
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    serde_saphyr::from_str(&read(path)?).with_context(|| format!("reading {}", path.display()))
}

/// Replaces lines that define the same objects. Lines that define other objects are added.
fn replace_lines(lines: Vec<(usize, Line)>, with: &[(usize, Line)]) -> Vec<(usize, Line)> {
    let is_replaced = |line: &Line| with.iter().any(|(_, other)| other.defines_same(line));
    let unchanged = lines.into_iter().filter(|(_, line)| !is_replaced(line));
    let mut all: Vec<_> = with.iter().cloned().chain(unchanged).collect();
    all.sort_by_key(|(_, line)| line.t);
    all
}

fn simulate(
    lines: &[(usize, Line)],
    policy: &Policy,
    options: Options,
    record: Option<&Path>,
) -> anyhow::Result<Simulation> {
    let mut recorded_trace = record.map(|path| fs::File::create(path).map(BufWriter::new)).transpose()?;
    let mut hash = Sha256::new();
    let mut written = Ok(());
    let mut trace = |record: TraceRecord<'_>| {
        if let TraceRecord::Plan { now, plan } = record {
            plan.decision_lines(now).for_each(|line| hash.update(line + "\n"));
        }
        if let Some(file) = &mut recorded_trace
            && written.is_ok()
        {
            written = writeln!(file, "{}", sim::to_line(record));
        }
    };
    let report = sim::simulate(lines, policy, options, &mut trace)?;
    written.context("writing the recorded trace")?;
    if let Some(mut file) = recorded_trace {
        file.flush().context("writing the recorded trace")?;
    }
    let decision_hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Simulation { report, decision_hash })
}
