//! Shows steps: spinners on a terminal, elsewhere one line per new step.

use std::collections::BTreeSet;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::steps::{Step, StepKey, StepState};
use crate::output::duration::format_since;
use crate::output::sanitize;
use crate::output::style::{GREEN, PLAIN, YELLOW, paint};
use crate::output::table::truncate;
use crate::ui::{Ui, warning};

/// Cells beside the text of a spinner, one of them so that the terminal does not wrap the line.
const SPINNER_MARGIN: usize = 5;

pub struct ProgressView<'a> {
    ui: &'a Ui,
    name: String,
    spinners: Option<Spinners>,
    /// Lines that were printed, where they cannot be redrawn.
    printed: BTreeSet<String>,
}

struct Spinners {
    bars: MultiProgress,
    rows: Vec<(StepKey, ProgressBar, StepState)>,
    width: usize,
}

impl<'a> ProgressView<'a> {
    /// `name` starts the lines where they cannot be redrawn.
    pub fn new(ui: &'a Ui, name: &str) -> Self {
        let spinners = ui.can_redraw().then(|| Spinners::new(ui.width()));
        Self { ui, name: name.to_owned(), spinners, printed: BTreeSet::new() }
    }

    pub fn show(&mut self, steps: &[Step], now: Timestamp) {
        match &mut self.spinners {
            Some(spinners) => spinners.show(steps, now),
            None => {
                for step in steps {
                    if self.printed.insert(format!("{:?} {}", step.state, step.log_key)) {
                        self.ui.info(format!("{}: {}", self.name, step.text));
                    }
                }
            }
        }
    }

    /// Prints that the connection was lost; waiting continues.
    pub fn connection_lost(&mut self, cause: &str) {
        self.note(&warning(format!("lost the connection to the cluster ({cause}); retrying")));
    }

    /// Prints a line once, above the spinners.
    pub fn note(&mut self, text: &str) {
        if self.printed.insert(text.to_owned()) {
            match &self.spinners {
                Some(spinners) => spinners.bars.suspend(|| self.ui.info(text)),
                None => self.ui.info(text),
            }
        }
    }

    /// Hides the spinners during a prompt.
    pub fn suspend<T>(&mut self, prompt: impl FnOnce() -> T) -> T {
        match &self.spinners {
            Some(spinners) => spinners.bars.suspend(prompt),
            None => prompt(),
        }
    }

    /// Leaves done and blocked steps on the screen and clears the others.
    pub fn finish(&mut self) {
        if let Some(spinners) = self.spinners.take() {
            spinners.finish();
        }
    }
}

impl Spinners {
    fn new(width: usize) -> Self {
        Self { bars: MultiProgress::new(), rows: Vec::new(), width }
    }

    fn show(&mut self, steps: &[Step], now: Timestamp) {
        self.rows.retain(|(key, bar, _)| {
            let current = steps.iter().any(|step| step.key == *key);
            if !current {
                bar.finish_and_clear();
            }
            current
        });
        for step in steps {
            let existing = self.rows.iter_mut().find(|(key, ..)| *key == step.key);
            let bar = if let Some((_, bar, state)) = existing {
                *state = step.state;
                bar.clone()
            } else {
                let bar = self.bars.add(ProgressBar::new_spinner());
                self.rows.push((step.key.clone(), bar.clone(), step.state));
                bar
            };
            let elapsed = step.since.filter(|_| step.state != StepState::Done);
            let elapsed = elapsed.map(|since| format!("  {}", format_since(since, now))).unwrap_or_default();
            let text = sanitize(&step.text).replace('\n', " ");
            bar.set_style(style(step.state));
            bar.set_message(truncate(&format!("{text}{elapsed}"), self.width.saturating_sub(SPINNER_MARGIN)));
            bar.tick();
        }
    }

    fn finish(self) {
        for (_, bar, state) in self.rows {
            match state {
                StepState::Done | StepState::Blocked => bar.abandon(),
                StepState::Running => bar.finish_and_clear(),
            }
        }
    }
}

fn style(state: StepState) -> ProgressStyle {
    let use_color = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let symbol = |color, symbol| paint(if use_color { color } else { PLAIN }, symbol);
    let template = match state {
        StepState::Done => format!("  {} {{wide_msg}}", symbol(GREEN, "✓")),
        StepState::Blocked => format!("  {} {{wide_msg}}", symbol(YELLOW, "!")),
        StepState::Running => "  {spinner} {wide_msg}".to_owned(),
    };
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
