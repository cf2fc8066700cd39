//! Data for standard output: one value, shown the way that was asked for.

mod harmless;
pub mod live;
pub mod style;
pub mod table;
pub mod time;

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

pub use harmless::harmless;
pub use table::{Cell, Column, Table};

use crate::args::Format;
use crate::failure::{Failure, Kind, Result};

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

    /// Whether a program reads it.
    pub fn structured(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml | Format::Name)
    }

    /// Whether people look at it.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether the cursor can be moved, so that lines can be drawn over.
    pub fn repaints(&self) -> bool {
        self.terminal && !dumb()
    }

    /// Whether marks of colour are understood and wanted.
    pub fn coloured(&self) -> bool {
        anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
    }

    /// One value: as a table made of it, or as it is, or its name.
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
        let text = text.map_err(|error| Failure::failed(format!("this cannot be written as JSON: {error}")))?;
        self.write(format!("{}\n", harmless::in_json(&text)).as_bytes())
    }

    pub fn yaml<T: Serialize>(&self, value: &T) -> Result<()> {
        let text = serde_saphyr::to_string(value)
            .map_err(|error| Failure::failed(format!("this cannot be written as YAML: {error}")))?;
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.print(&format!("{text}{end}"))
    }

    /// One value of a row that never ends, for a program: a document of its own.
    pub fn one_of_many<T: Serialize>(&self, value: &T) -> Result<()> {
        if self.format == Format::Yaml {
            self.print("---\n")?;
            return self.yaml(value);
        }
        self.json(value)
    }

    pub fn table(&self, table: &Table) -> Result<()> {
        self.print(&self.rendered(table))
    }

    pub fn rendered(&self, table: &Table) -> String {
        table.render(self.wide(), self.headers, self.width())
    }

    /// How wide the terminal is; what goes elsewhere is never cut.
    pub fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|width| *width > 0)
    }

    /// How many lines the terminal has.
    pub fn height(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().filter(|_| self.terminal)?;
        Some(usize::from(size.ws_row)).filter(|height| *height > 0)
    }

    pub fn lines(&self, lines: Vec<String>) -> Result<()> {
        self.print(&lines.into_iter().map(|line| line + "\n").collect::<String>())
    }

    /// Words for people, whoever wrote them. Marks of colour are taken out where they would not be understood.
    pub fn print(&self, text: &str) -> Result<()> {
        let mut out = anstream::stdout().lock();
        out.write_all(harmless(text).as_bytes()).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }
}

impl Output {
    /// Bytes as they are, such as what a container printed.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }
}

/// A terminal that says of itself that it can do nothing but print.
pub fn dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whoever read our output has seen enough: that is no failure.
pub fn unwritten(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure::new(Kind::ClosedPipe, "");
    }
    Failure::failed(format!("standard output cannot be written: {error}")).advise("Is the disk full?")
}
