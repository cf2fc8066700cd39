//! Everything the scheduler is told and decides, written down so that `odc sim` can decide it once more.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use odc_core::scheduler::{Policy, Step};
use odc_core::sim;
use serde_json::json;

use crate::context::Context;

/// Nothing where nobody asked for it, or after it could not be written.
#[derive(Default)]
pub struct Recording(Option<BufWriter<File>>);

impl Recording {
    /// Each leader begins with an empty world, so each has its own file.
    pub fn new(ctx: &Context) -> Self {
        let Some(directory) = &ctx.config.record else { return Self(None) };
        let path = directory.join(format!("queue-{}.jsonl", ctx.lead.epoch));
        match begin(&path, &ctx.config.queue, ctx.now().as_second()) {
            Ok(file) => {
                tracing::info!(path = %path.display(), "recording the queue");
                Self(Some(file))
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, path = %path.display(), "nothing is recorded");
                Self(None)
            }
        }
    }

    pub fn take(&mut self, step: Step<'_>) {
        self.write(|file| writeln!(file, "{}", sim::recorded(step)));
    }

    /// After each plan, so that it is there when this process ends.
    pub fn flush(&mut self) {
        self.write(BufWriter::flush);
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) {
        let Some(file) = &mut self.0 else { return };
        if let Err(error) = write(file) {
            tracing::error!(error = &error as &dyn std::error::Error, "the recording ends here");
            self.0 = None;
        }
    }
}

fn begin(path: &Path, policy: &Policy, now: i64) -> std::io::Result<BufWriter<File>> {
    let mut file = BufWriter::new(File::create_new(path)?);
    writeln!(file, "{}", json!({"t": now, "policy": policy}))?;
    Ok(file)
}
