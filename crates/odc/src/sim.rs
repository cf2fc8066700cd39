//! `odc sim`: the queue in virtual time. The same code as in the operator decides about a trace of requests, or once more
//! about what an operator recorded.

mod table;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use odc_core::scheduler::{Policy, Step};
use odc_core::sim::{self, Line, Options, Report, convert};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Sim {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    play: Play,
}

#[derive(Args)]
struct Play {
    /// The trace: one JSON object per line, sorted by its time `t`; docs/scheduling.md has all kinds of lines
    #[arg(required = true, value_name = "TRACE.jsonl")]
    trace: Option<PathBuf>,
    /// The rules of the queue; what it does not say is as in the operator
    #[arg(long, value_name = "FILE.yaml")]
    policy: Option<PathBuf>,
    /// What if? Plays the trace again with these lines in place of those of the same team, user, flavor or node, and
    /// shows what would have been otherwise
    #[arg(long, value_name = "LINES.jsonl")]
    with: Option<PathBuf>,
    /// Write everything the scheduler was told, and when it planned, as a trace that gives the same decisions
    #[arg(long, value_name = "FILE.jsonl")]
    record: Option<PathBuf>,
    /// Leave promises to the first N requests out of the coverage: nothing was known then
    #[arg(long, value_name = "N", default_value_t = 0)]
    warm_up: usize,
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Subcommand)]
enum Verb {
    /// Print somebody else's trace as one of ours
    Convert {
        #[arg(value_enum)]
        from: From,
        file: PathBuf,
        /// How many nodes there are, where the trace does not say
        #[arg(long)]
        nodes: Option<u32>,
        /// How many devices each of them has
        #[arg(long)]
        devices_per_node: Option<u32>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    /// The Standard Workload Format of the parallel workloads archive
    Swf,
    /// A table with the columns t, user, count, lifetime and perhaps id, team, nodes, actual, priority
    Csv,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// A report with the fingerprint of everything that was decided.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Played {
    #[serde(flatten)]
    report: Report,
    decision_hash: String,
}

impl Sim {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut out = BufWriter::new(io::stdout().lock());
        match self.verb {
            Some(Verb::Convert { from, file, nodes, devices_per_node }) => {
                let machine = convert::Machine { nodes, devices_per_node };
                let text = read(&file)?;
                let lines = match from {
                    From::Swf => convert::swf(&text, &machine),
                    From::Csv => convert::csv(&text, &machine),
                };
                for line in lines.with_context(|| format!("converting {}", file.display()))? {
                    writeln!(out, "{line}")?;
                }
            }
            None => self.play.run(&mut out)?,
        }
        out.flush()?;
        Ok(())
    }
}

impl Play {
    fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { trace, policy, with, record, warm_up, output } = self;
        let trace = trace.context("name a trace")?;
        let options = Options { warm_up, ..Options::default() };
        let mut lines = read_trace(&trace)?;
        anyhow::ensure!(
            (policy.is_none() && with.is_none()) || !lines.iter().any(|(_, line)| line.is_recorded()),
            "{} is a recording: it says what came of the rules that were, so it can only be decided again by them. Try \
             --policy and --with on a trace of requests; `devctl admin team what-if` answers for the queue as it is now.",
            trace.display(),
        );
        let policy = match &policy {
            // Those of the trace do not count then.
            Some(path) => {
                lines.retain(|(_, line)| !matches!(line.what, sim::What::Policy(_)));
                read_policy(path)?
            }
            None => Policy::default(),
        };
        let played = play(&lines, &policy, options, record.as_deref())?;
        let changed = match &with {
            Some(with) => Some(play(&replaced(lines, &read_trace(with)?), &policy, options, None)?),
            None => None,
        };
        match (output, changed) {
            (Output::Json, None) => serde_json::to_writer(&mut *out, &played)?,
            (Output::Json, Some(changed)) => {
                serde_json::to_writer(&mut *out, &json!({"before": played, "after": changed}))?;
            }
            (Output::Table, changed) => table::write(out, &played, changed.as_ref())?,
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

/// The trace with some of its lines replaced by others about the same thing; those about nothing in it come first.
fn replaced(lines: Vec<(usize, Line)>, with: &[(usize, Line)]) -> Vec<(usize, Line)> {
    let is_replaced = |line: &Line| with.iter().any(|(_, other)| other.is_about(line));
    let kept = lines.into_iter().filter(|(_, line)| !is_replaced(line));
    let mut all: Vec<_> = with.iter().cloned().chain(kept).collect();
    all.sort_by_key(|(_, line)| line.t);
    all
}

fn play(lines: &[(usize, Line)], policy: &Policy, options: Options, record: Option<&Path>) -> anyhow::Result<Played> {
    let mut recording = record.map(|path| fs::File::create(path).map(BufWriter::new)).transpose()?;
    let mut hash = Sha256::new();
    let mut failed = Ok(());
    let mut watch = |step: Step<'_>| {
        if let Step::Planned { now, plan } = step {
            plan.decided(now).for_each(|line| hash.update(line + "\n"));
        }
        if let Some(recording) = &mut recording
            && failed.is_ok()
        {
            failed = writeln!(recording, "{}", sim::recorded(step));
        }
    };
    let report = sim::simulate(lines, policy, options, &mut watch)?;
    failed.context("writing the recording")?;
    if let Some(mut recording) = recording {
        recording.flush().context("writing the recording")?;
    }
    let decision_hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Played { report, decision_hash })
}
