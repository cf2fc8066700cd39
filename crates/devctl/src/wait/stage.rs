//! Shows a story: drawn over on a terminal, a line for each new step elsewhere.

use std::collections::BTreeSet;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::Goal;
use super::story::{Mark, Step};
use crate::app::App;
use crate::output::harmless;
use crate::output::style::{GREEN, PLAIN, YELLOW, painted};
use crate::output::table::cut;
use crate::output::time::since;
use crate::talk::Talk;

pub struct Stage<'a> {
    talk: &'a Talk,
    name: String,
    board: Option<Board>,
    /// Where lines cannot be taken back: what was said already.
    said: BTreeSet<String>,
}

struct Board {
    all: MultiProgress,
    rows: Vec<(String, ProgressBar, Mark)>,
    width: usize,
}

impl<'a> Stage<'a> {
    pub fn new(app: &'a App, name: &str, goal: Goal) -> Self {
        let board = app.talk.can_draw().then(|| Board::new(app.talk.width()));
        let stage = Self { talk: &app.talk, name: name.to_owned(), board, said: BTreeSet::new() };
        if stage.board.is_some() && goal == Goal::Ready && app.talk.can_ask() {
            stage.talk.say(format!("Waiting for {name}. Ctrl-\\ leaves it running and returns, Ctrl-C stops."));
        }
        stage
    }

    pub fn show(&mut self, steps: &[Step], now: Timestamp) {
        match &mut self.board {
            Some(board) => board.show(steps, now),
            None => {
                for step in steps {
                    if self.said.insert(format!("{:?} {}", step.mark, step.news)) {
                        self.talk.say(format!("{}: {}", self.name, step.text));
                    }
                }
            }
        }
    }

    /// The connection broke; waiting goes on.
    pub fn trouble(&mut self, why: &str) {
        self.remark(&format!("{}: the cluster does not answer ({why}); trying again", self.name));
    }

    /// Something that is said once, beside what is shown.
    pub fn remark(&mut self, text: &str) {
        if self.said.insert(text.to_owned()) {
            match &self.board {
                Some(board) => board.all.suspend(|| self.talk.say(text)),
                None => self.talk.say(text),
            }
        }
    }

    /// Clears the way for a question, then goes on.
    pub fn pause<T>(&mut self, ask: impl FnOnce() -> T) -> T {
        match &self.board {
            Some(board) => board.all.suspend(ask),
            None => ask(),
        }
    }

    /// What is done or stuck stays on the screen, what was going on is taken away.
    pub fn end(&mut self) {
        if let Some(board) = self.board.take() {
            board.end();
        }
    }
}

impl Board {
    fn new(width: usize) -> Self {
        Self { all: MultiProgress::new(), rows: Vec::new(), width }
    }

    fn show(&mut self, steps: &[Step], now: Timestamp) {
        // A step that is no longer told has ended, one way or another.
        let told: BTreeSet<&str> = steps.iter().map(|step| step.key.as_str()).collect();
        self.rows.retain(|(key, row, _)| {
            let stays = told.contains(key.as_str());
            if !stays {
                row.finish_and_clear();
            }
            stays
        });
        for step in steps {
            let known = self.rows.iter_mut().find(|(key, ..)| *key == step.key);
            let row = if let Some((_, row, mark)) = known {
                *mark = step.mark;
                row.clone()
            } else {
                let row = self.all.add(ProgressBar::new_spinner());
                self.rows.push((step.key.clone(), row.clone(), step.mark));
                row
            };
            let elapsed =
                step.since.filter(|_| step.mark != Mark::Done).map(|begun| format!("  {}", since(begun, now)));
            // Two for the mark, and one so that the terminal does not break the line.
            let words = harmless(&step.text).replace('\n', " ");
            let text = cut(&format!("{words}{}", elapsed.unwrap_or_default()), self.width.saturating_sub(5));
            row.set_style(style(step.mark));
            row.set_message(text);
            row.tick();
        }
    }

    fn end(self) {
        for (_, row, mark) in self.rows {
            match mark {
                Mark::Done | Mark::Stuck => row.abandon(),
                Mark::Doing => row.finish_and_clear(),
            }
        }
    }
}

fn style(mark: Mark) -> ProgressStyle {
    let coloured = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let sign = |colour, sign| painted(if coloured { colour } else { PLAIN }, sign);
    let template = match mark {
        Mark::Done => format!("  {} {{wide_msg}}", sign(GREEN, "✓")),
        Mark::Stuck => format!("  {} {{wide_msg}}", sign(YELLOW, "!")),
        Mark::Doing => "  {spinner} {wide_msg}".to_owned(),
    };
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
