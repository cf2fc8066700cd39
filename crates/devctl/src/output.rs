//! Data on standard output, in the format the user selected.

pub mod duration;
pub mod json;
pub mod key_values;
pub mod redraw;
mod sanitize;
pub mod size;
pub mod style;
pub mod table;

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

pub use sanitize::sanitize;
pub use table::{Cell, Column, Table};

use crate::cli::Format;
use crate::error::{Error, Kind, Result};

#[derive(Clone, Debug)]
pub struct Output {
    pub format: Format,
    headers: bool,
    quiet: bool,
    terminal: bool,
}

impl Output {
    pub fn new(format: Format, headers: bool, quiet: bool) -> Self {
        Self { format, headers, quiet, terminal: std::io::stdout().is_terminal() }
    }

    #[must_use]
    pub fn without_headers(&self) -> Self {
        Self { headers: false, ..self.clone() }
    }

    pub fn wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// Reports whether the format is for programs.
    pub fn structured(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml | Format::Name)
    }

    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Reports whether lines can be redrawn.
    pub fn can_redraw(&self) -> bool {
        self.terminal && !is_dumb_terminal()
    }

    /// Reports whether colors are supported and not disabled.
    pub fn use_color(&self) -> bool {
        anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
    }

    /// Prints a value in the selected format.
    pub fn show<T: Serialize>(
        &self,
        value: &T,
        names: impl FnOnce() -> Vec<String>,
        table: impl FnOnce() -> Table,
    ) -> Result<()> {
        match self.format {
            Format::Json => self.json(value),
            Format::Yaml => self.yaml(value),
            Format::Name => self.lines(names()),
            Format::Table | Format::Wide if self.quiet => self.lines(names()),
            Format::Table | Format::Wide => self.table(&table()),
        }
    }

    pub fn json<T: Serialize>(&self, value: &T) -> Result<()> {
        let text = if self.terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        let text = text.map_err(|error| Error::failed(format!("could not serialize to JSON: {error}")))?;
        self.write(format!("{}\n", sanitize::sanitize_json(&text)).as_bytes())
    }

    pub fn yaml<T: Serialize>(&self, value: &T) -> Result<()> {
        let text = serde_saphyr::to_string(value)
            .map_err(|error| Error::failed(format!("could not serialize to YAML: {error}")))?;
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        self.print(&format!("{text}{newline}"))
    }

    /// Prints one value of a stream: a JSON line or a YAML document.
    pub fn document<T: Serialize>(&self, value: &T) -> Result<()> {
        if self.format == Format::Yaml {
            self.print("---\n")?;
            return self.yaml(value);
        }
        self.json(value)
    }

    pub fn table(&self, table: &Table) -> Result<()> {
        self.print(&self.render(table))
    }

    pub fn render(&self, table: &Table) -> String {
        table.render(self.wide(), self.headers, self.width())
    }

    /// Returns the width of the terminal; `None` for files and pipes, which are never cut.
    pub fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|width| *width > 0)
    }

    /// Returns the number of lines of the terminal.
    pub fn height(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().filter(|_| self.terminal)?;
        Some(usize::from(size.ws_row)).filter(|height| *height > 0)
    }

    pub fn lines(&self, lines: Vec<String>) -> Result<()> {
        self.print(&lines.into_iter().map(|line| line + "\n").collect::<String>())
    }

    /// Prints sanitized text, without colors where they are not supported.
    pub fn print(&self, text: &str) -> Result<()> {
        let mut out = anstream::stdout().lock();
        out.write_all(sanitize(text).as_bytes()).and_then(|()| out.flush()).map_err(|error| write_error(&error))
    }

    /// Writes bytes unchanged, such as the log of a container.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| write_error(&error))
    }
}

/// Reports whether `TERM=dumb`: the terminal cannot move the cursor.
pub fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Converts a write error on standard output. A closed pipe is not an error for the user.
pub fn write_error(error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Error::new(Kind::ClosedPipe, "");
    }
    Error::failed(format!("could not write to standard output: {error}")).with_hint("check for a full disk")
}
