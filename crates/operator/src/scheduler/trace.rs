//! Records the scheduler's inputs and decisions in the format that `odc sim` replays.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use odc_core::scheduler::{Policy, TraceRecord};
use odc_core::sim;
use serde_json::json;

use crate::context::Context;

/// `None` if tracing is disabled or failed.
#[derive(Default)]
pub struct Trace(Option<BufWriter<File>>);

impl Trace {
    /// Creates the trace file. Each leader starts with an empty state, so each has its own file.
    pub fn new(ctx: &Context) -> Self {
        let Some(directory) = &ctx.config.trace_dir else { return Self(None) };
        let path = directory.join(format!("queue-{}.jsonl", ctx.leadership.epoch));
        match create(&path, &ctx.config.scheduler_policy, ctx.now().as_second()) {
            Ok(file) => {
                tracing::info!(path = %path.display(), "recording a scheduler trace");
                Self(Some(file))
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, path = %path.display(), "failed to create the scheduler trace, tracing disabled");
                Self(None)
            }
        }
    }

    pub fn record(&mut self, step: TraceRecord<'_>) {
        self.write(|file| writeln!(file, "{}", sim::to_line(step)));
    }

    /// Writes buffered records after each plan, so that the trace is complete when the process exits.
    pub fn flush(&mut self) {
        self.write(BufWriter::flush);
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) {
        let Some(file) = &mut self.0 else { return };
        if let Err(error) = write(file) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "failed to write the scheduler trace, tracing disabled");
            self.0 = None;
        }
    }
}

fn create(path: &Path, policy: &Policy, now: i64) -> std::io::Result<BufWriter<File>> {
    let mut file = BufWriter::new(File::create_new(path)?);
    writeln!(file, "{}", json!({"t": now, "policy": policy}))?;
    Ok(file)
}
