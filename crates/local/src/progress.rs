//! Tells a person what is going on and how long it has taken: a live line on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::process::elapsed;

/// How often a log that nobody watches live is told that something still goes on.
const STILL: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    live: bool,
}

impl Progress {
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { live: std::io::stderr().is_terminal() && !dumb }
    }

    pub fn say(self, text: &str) {
        // A closed terminal is no reason to stop what is being done.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Shows `what` while `work` goes on, then how long it took.
    pub async fn step<T>(self, what: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        self.step_with(what, work, String::new).await
    }

    /// Like [`Progress::step`], with a note that may change on the way.
    pub async fn step_with<T>(
        self,
        what: &str,
        work: impl Future<Output = anyhow::Result<T>>,
        note: impl Fn() -> String,
    ) -> anyhow::Result<T> {
        let started = Instant::now();
        let bar = if self.live {
            let style =
                ProgressStyle::with_template("  {spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        } else {
            self.say(&format!("  … {what}"));
            ProgressBar::hidden()
        };
        let mut tick = tokio::time::interval(if self.live { Duration::from_millis(100) } else { STILL });
        tick.tick().await;
        tokio::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = tick.tick() => {
                    let text = line(what, &note(), started.elapsed());
                    if self.live {
                        bar.set_message(text);
                        bar.tick();
                    } else {
                        self.say(&format!("  … {text}"));
                    }
                }
            }
        };
        bar.finish_and_clear();
        let mark = if result.is_ok() { '✓' } else { '✗' };
        self.say(&format!("  {mark} {}", line(what, "", started.elapsed())));
        result
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn line(what: &str, note: &str, time: Duration) -> String {
    let note = if note.is_empty() { String::new() } else { format!(": {note}") };
    format!("{what}{note} ({})", elapsed(time))
}
