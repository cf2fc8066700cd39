//! What is said to people beside the data: on standard error, and only as much as was asked for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use crate::args::Global;
use crate::failure::{Failure, Result};
use crate::output::table::wrap;
use crate::output::{dumb, harmless};

/// What a terminal has that does not say.
const USUAL_WIDTH: usize = 80;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Talk {
    quiet: bool,
    verbose: bool,
    trace: bool,
    yes: bool,
    no_input: bool,
    last_step: Cell<Instant>,
    /// What need not be said again.
    said: RefCell<BTreeSet<String>>,
}

impl Talk {
    /// `insists`: the person wants to be asked, whatever a variable says.
    pub fn new(global: &Global, insists: bool) -> Self {
        Self {
            quiet: global.quiet,
            verbose: global.verbose,
            trace: global.trace,
            yes: global.yes,
            no_input: global.no_input || (!insists && unasked_by_variable()),
            last_step: Cell::new(Instant::now()),
            said: RefCell::default(),
        }
    }

    /// A line, unless only data was asked for.
    pub fn say(&self, text: impl AsRef<str>) {
        if self.quiet {
            return;
        }
        let mut text = harmless(text.as_ref()).into_owned();
        let sentence = !text.contains("  ") && !text.contains('\n');
        if sentence && std::io::stderr().is_terminal() {
            text = wrap(&text, self.width()).join("\n");
        }
        // Nobody is there to be told that nobody is there.
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    /// A line that is true for the rest of the command.
    pub fn say_once(&self, text: String) {
        if self.said.borrow_mut().insert(text.clone()) {
            self.say(text);
        }
    }

    pub fn verbose(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            let _ = writeln!(anstream::stderr(), "{}", harmless(&text()));
        }
    }

    /// Says with `--trace` how long the step that ends here took.
    pub fn step(&self, what: &str) {
        let now = Instant::now();
        let took = now.duration_since(self.last_step.replace(now));
        if self.trace {
            let _ = writeln!(anstream::stderr(), "trace: {what}: {:.1} ms", took.as_secs_f64() * 1000.0);
        }
    }

    pub const fn quiet(&self) -> bool {
        self.quiet
    }

    pub const fn yes(&self) -> bool {
        self.yes
    }

    /// Whether somebody is there to be asked.
    pub fn can_ask(&self) -> bool {
        !self.no_input && is_terminal()
    }

    /// Whether lines can be drawn over on standard error.
    pub fn can_draw(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal() && !dumb()
    }

    /// How wide the terminal is that people are asked on.
    pub fn width(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        if size == 0 { USUAL_WIDTH } else { size }
    }

    /// A question whose answer is yes or no. With `--yes` it is yes; with nobody to ask it is an error that names the
    /// flag.
    pub fn confirm(&self, question: &str, flag: &str) -> Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !self.can_ask() {
            return Err(Failure::usage(format!("{question} Nobody is there to answer"))
                .advise(format!("Say {flag} to mean it.")));
        }
        let answer = inquire::Confirm::new(question).with_default(false).prompt();
        answer.map_err(|error| unanswered(&error))
    }
}

/// Not clap's business: a flag that contradicts a variable would be an error there, and here it wins.
fn unasked_by_variable() -> bool {
    let value = std::env::var("DEVCTL_NO_INPUT").unwrap_or_default().to_lowercase();
    !matches!(value.as_str(), "" | "0" | "n" | "no" | "f" | "false" | "off")
}

/// Questions need somebody who can read and answer them.
fn is_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !dumb()
}

/// A question that was not answered.
pub fn unanswered(error: &inquire::InquireError) -> Failure {
    use inquire::InquireError::{OperationCanceled, OperationInterrupted};
    match error {
        OperationCanceled | OperationInterrupted => Failure::interrupted("nothing was done"),
        error => Failure::failed(format!("the terminal cannot be asked: {error}"))
            .advise("Say everything with flags, and --no-input."),
    }
}
