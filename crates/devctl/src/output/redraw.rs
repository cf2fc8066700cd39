//! Text that is printed repeatedly: redrawn in place on a terminal, elsewhere only the new lines.

use std::collections::BTreeSet;
use std::io::Write as _;

use unicode_width::UnicodeWidthChar as _;

use super::{Output, sanitize, write_error};
use crate::error::Result;

/// The lines at the end of the terminal that are redrawn.
#[derive(Debug, Default)]
pub struct LiveRegion {
    current: String,
}

impl LiveRegion {
    /// Replaces the printed text. Does nothing if it is unchanged.
    ///
    /// Redraws without colors too: `NO_COLOR` does not affect cursor movement.
    pub fn show(&mut self, out: &Output, text: &str) -> Result<()> {
        if !out.can_redraw() {
            return self.append_new_lines(out, text);
        }
        let text = fit(&sanitize(text), out.height(), out.width());
        if text == self.current {
            return Ok(());
        }
        let lines = self.current.lines().count();
        let cursor_up = if lines > 0 { format!("\x1b[{lines}A") } else { String::new() };
        let drawn = if out.use_color() { text.clone() } else { anstream::adapter::strip_str(&text).to_string() };
        // CSI J erases from the cursor to the end of the screen.
        let frame = format!("{cursor_up}\r\x1b[J{drawn}");
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| write_error(&error))?;
        self.current = text;
        Ok(())
    }

    /// Prints the lines that were not printed before, where output cannot be redrawn.
    fn append_new_lines(&mut self, out: &Output, text: &str) -> Result<()> {
        let new = diff_lines(&self.current, text);
        text.clone_into(&mut self.current);
        if new.is_empty() { Ok(()) } else { out.print(&new) }
    }
}

/// Returns the lines of `after` that `before` does not have, ignoring the amount of whitespace between columns.
fn diff_lines(before: &str, after: &str) -> String {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let printed: BTreeSet<Vec<String>> = before.lines().map(words).collect();
    after.lines().filter(|line| !printed.contains(&words(line))).map(|line| format!("{line}\n")).collect()
}

/// Cuts text to the size of the screen, so that every line takes one row and the cursor can return to the first.
fn fit(text: &str, height: Option<usize>, width: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let rows = height.unwrap_or(usize::MAX).saturating_sub(1).max(2);
    let clip_all = |lines: &[&str]| -> String {
        lines.iter().map(|line| format!("{}\n", clip(line, width.unwrap_or(usize::MAX)))).collect()
    };
    if lines.len() <= rows {
        return clip_all(&lines);
    }
    let visible = rows - 1;
    format!("{}… and {} more\n", clip_all(&lines[..visible]), lines.len() - visible)
}

/// Cuts a line to a width in cells. Keeps all SGR sequences, so that a style that was started is also ended.
fn clip(line: &str, width: usize) -> String {
    let (mut head, mut cells, mut in_sgr) = (String::new(), 0, false);
    for character in line.chars() {
        if character == '\x1b' || in_sgr {
            in_sgr = character != 'm';
            head.push(character);
            continue;
        }
        cells += character.width().unwrap_or(0);
        if cells <= width {
            head.push(character);
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::{GREEN, paint};

    #[test]
    fn lines_beyond_the_screen_are_counted() {
        assert_eq!(fit("a\nb\nc\nd\n", Some(4), None), "a\nb\n… and 2 more\n");
        assert_eq!(fit("a\nb\n", Some(4), None), "a\nb\n");
        assert_eq!(fit("a\nb\n", None, None), "a\nb\n");
    }

    #[test]
    fn long_lines_are_clipped_to_one_row() {
        assert_eq!(fit("abcdef\nab\n", None, Some(4)), "abcd\nab\n");
        // A wide character does not fit into one cell.
        assert_eq!(clip("ab実験", 3), "ab");
        let colored = format!("{} tail", paint(GREEN, "green"));
        let cut = clip(&colored, 3);
        assert_eq!(anstream::adapter::strip_str(&cut).to_string(), "gre");
        assert!(cut.ends_with(&format!("{GREEN:#}")), "the style is reset: {cut:?}");
    }

    #[test]
    fn only_new_lines_are_appended_without_redraw() {
        let before = "NAME  PHASE\nbox   Running\nnotes Queued\n";
        let after = "NAME    PHASE\nbox     Running\nnotes   Starting\n";
        assert_eq!(diff_lines(before, after), "notes   Starting\n");
        assert_eq!(diff_lines("", "a\nb\n"), "a\nb\n");
    }
}
