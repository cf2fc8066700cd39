//! Messages and prompts for the user, on standard error.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::output::style::{CYAN, YELLOW, paint};
use crate::output::table::wrap;
use crate::output::{is_dumb_terminal, sanitize};

/// Used when the terminal does not report its width.
const DEFAULT_WIDTH: usize = 80;

/// The hint of most confirmations.
pub const PASS_YES: &str = "pass `--yes` to skip the prompt";

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Ui {
    quiet: bool,
    verbose: bool,
    trace: bool,
    yes: bool,
    no_input: bool,
    last_step: Cell<Instant>,
    /// Messages of `info_once` that were printed.
    printed: RefCell<BTreeSet<String>>,
}

/// A yes-or-no question.
pub struct Confirm<'a> {
    pub question: &'a str,
    /// What would be done, as an infinitive, for the error if there is no terminal.
    pub action: &'a str,
    /// The hint of that error.
    pub hint: &'a str,
    /// The answer to Enter.
    pub default: bool,
}

impl Ui {
    /// `force_prompt` overrides `DEVCTL_NO_INPUT`.
    pub fn new(global: &Global, force_prompt: bool) -> Self {
        Self {
            quiet: global.quiet,
            verbose: global.verbose,
            trace: global.trace,
            yes: global.yes,
            no_input: global.no_input || (!force_prompt && no_input_env()),
            last_step: Cell::new(Instant::now()),
            printed: RefCell::default(),
        }
    }

    /// Prints a line, except with `--quiet`.
    pub fn info(&self, text: impl AsRef<str>) {
        if self.quiet {
            return;
        }
        let mut text = sanitize(text.as_ref()).into_owned();
        // Aligned and multi-line text is laid out already.
        let wrappable = !text.contains("  ") && !text.contains('\n');
        if wrappable && std::io::stderr().is_terminal() {
            text = wrap(&text, self.width()).join("\n");
        }
        // Ignore write errors on stderr.
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    /// Prints a line the first time only.
    pub fn info_once(&self, text: String) {
        if self.printed.borrow_mut().insert(text.clone()) {
            self.info(text);
        }
    }

    pub fn warn(&self, text: impl AsRef<str>) {
        self.info(warning(text));
    }

    pub fn note(&self, text: impl AsRef<str>) {
        self.info(note(text));
    }

    pub fn verbose(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            let _ = writeln!(anstream::stderr(), "{}", sanitize(&text()));
        }
    }

    /// With `--trace`, prints how long the step that ends here took.
    pub fn trace_step(&self, step: &str) {
        let now = Instant::now();
        let elapsed = now.duration_since(self.last_step.replace(now));
        if self.trace {
            let _ = writeln!(anstream::stderr(), "trace: {step}: {:.1} ms", elapsed.as_secs_f64() * 1000.0);
        }
    }

    pub const fn quiet(&self) -> bool {
        self.quiet
    }

    pub const fn yes(&self) -> bool {
        self.yes
    }

    /// Reports whether the user can be prompted.
    pub fn is_interactive(&self) -> bool {
        !self.no_input && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !is_dumb_terminal()
    }

    /// Reports whether lines on standard error can be redrawn.
    pub fn can_redraw(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal() && !is_dumb_terminal()
    }

    /// Returns the width of the terminal on standard error.
    pub fn width(&self) -> usize {
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        if columns == 0 { DEFAULT_WIDTH } else { columns }
    }

    /// Asks a yes-or-no question. `--yes` answers it; without a terminal it is an error.
    pub fn confirm(&self, confirm: &Confirm<'_>) -> Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !self.is_interactive() {
            return Err(
                Error::usage(format!("refusing to {} without confirmation", confirm.action)).with_hint(confirm.hint)
            );
        }
        let answer = inquire::Confirm::new(confirm.question).with_default(confirm.default).prompt();
        answer.map_err(|error| prompt_error(&error))
    }

    /// Asks for the name of an object that would be lost. `--yes` skips the question; without a terminal it is an error.
    pub fn confirm_name(&self, question: &str, action: &str, name: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        if !self.is_interactive() {
            return Err(Error::usage(format!("refusing to {action} without confirmation")).with_hint(PASS_YES));
        }
        let prompt = inquire::Text::new(question).with_help_message("type the name to confirm");
        let typed = prompt.prompt().map_err(|error| prompt_error(&error))?;
        if typed.trim() == name { Ok(()) } else { Err(Error::interrupted("aborted: the names differ")) }
    }
}

/// Formats a warning.
pub fn warning(text: impl AsRef<str>) -> String {
    format!("{} {}", paint(YELLOW, "warning:"), text.as_ref())
}

/// Formats a note.
pub fn note(text: impl AsRef<str>) -> String {
    format!("{} {}", paint(CYAN, "note:"), text.as_ref())
}

/// Reads `DEVCTL_NO_INPUT`. Clap would reject a flag that conflicts with a variable; here the flag wins.
fn no_input_env() -> bool {
    let value = std::env::var("DEVCTL_NO_INPUT").unwrap_or_default().to_lowercase();
    !matches!(value.as_str(), "" | "0" | "n" | "no" | "f" | "false" | "off")
}

/// Converts the error of a prompt.
pub fn prompt_error(error: &inquire::InquireError) -> Error {
    use inquire::InquireError::{OperationCanceled, OperationInterrupted};
    match error {
        OperationCanceled | OperationInterrupted => Error::interrupted("aborted"),
        error => Error::failed(format!("cannot prompt on this terminal: {error}"))
            .with_hint("give all values as flags and pass `--no-input`"),
    }
}
