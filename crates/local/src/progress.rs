//! Progress output on stderr: a spinner on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use odc_api::duration::format_seconds;

/// Interval at which a step still in progress is printed again when stderr is not a terminal.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    live: bool,
}

impl Progress {
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { live: std::io::stderr().is_terminal() && !dumb }
    }

    pub fn print(self, text: &str) {
        // Ignore write errors: a closed terminal must not stop the operation.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Shows `title` while `work` is in progress, then its duration.
    pub async fn step<T>(self, title: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        self.step_with(title, work, String::new).await
    }

    /// Like [`Progress::step`], with a detail that may change while `work` is in progress.
    pub async fn step_with<T>(
        self,
        title: &str,
        work: impl Future<Output = anyhow::Result<T>>,
        detail: impl Fn() -> String,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        let bar = if self.live {
            let style =
                ProgressStyle::with_template("  {spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        } else {
            self.print(&format!("  … {title}"));
            ProgressBar::hidden()
        };
        let mut tick = tokio::time::interval(if self.live { SPINNER_INTERVAL } else { REPORT_INTERVAL });
        tick.tick().await;
        tokio::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = tick.tick() => {
                    let text = line(title, &detail(), started.elapsed());
                    if self.live {
                        bar.set_message(text);
                        bar.tick();
                    } else {
                        self.print(&format!("  … {text}"));
                    }
                }
            }
        };
        bar.finish_and_clear();
        let mark = if result.is_ok() { '✓' } else { '✗' };
        self.print(&format!("  {mark} {}", line(title, "", started.elapsed())));
        result
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn line(title: &str, detail: &str, elapsed: Duration) -> String {
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    format!("{title}{detail} ({})", format_seconds(elapsed.as_secs()))
}
