//! Something that is shown again and again: drawn over where the cursor can be moved, elsewhere only what is new.

use std::collections::BTreeSet;
use std::io::Write as _;

use unicode_width::UnicodeWidthChar as _;

use super::{Output, harmless, unwritten};
use crate::failure::Result;

/// What is on the screen now.
#[derive(Debug, Default)]
pub struct Live {
    shown: String,
}

impl Live {
    /// Puts this in the place of what was shown before. The same text twice is drawn once.
    ///
    /// Colour and the cursor are two matters: whoever wants no colour still has a cursor that moves.
    pub fn show(&mut self, out: &Output, text: &str) -> Result<()> {
        if !out.repaints() {
            return self.tell(out, text);
        }
        let text = fitting(&harmless(text), out.height(), out.width());
        if text == self.shown {
            return Ok(());
        }
        let up = self.shown.lines().count();
        let go_up = if up > 0 { format!("\x1b[{up}A") } else { String::new() };
        let drawn = if out.coloured() { text.clone() } else { anstream::adapter::strip_str(&text).to_string() };
        // From there to the end of the screen.
        let frame = format!("{go_up}\r\x1b[J{drawn}");
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))?;
        self.shown = text;
        Ok(())
    }

    /// Lines cannot be taken back here, so only those are printed that were not there before.
    fn tell(&mut self, out: &Output, text: &str) -> Result<()> {
        let new = news(&self.shown, text);
        text.clone_into(&mut self.shown);
        if new.is_empty() { Ok(()) } else { out.print(&new) }
    }
}

/// The lines of a text that an earlier one had not. That a column became wider is no news.
fn news(before: &str, after: &str) -> String {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let known: BTreeSet<Vec<String>> = before.lines().map(words).collect();
    after.lines().filter(|line| !known.contains(&words(line))).map(|line| format!("{line}\n")).collect()
}

/// As many lines as the screen has, each on one of them, so that going up again finds the first.
fn fitting(text: &str, height: Option<usize>, width: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = height.unwrap_or(usize::MAX).saturating_sub(1).max(2);
    let shown = |lines: &[&str]| -> String {
        lines.iter().map(|line| format!("{}\n", clipped(line, width.unwrap_or(usize::MAX)))).collect()
    };
    if lines.len() <= room {
        return shown(&lines);
    }
    let kept = room - 1;
    format!("{}… and {} more\n", shown(&lines[..kept]), lines.len() - kept)
}

/// The beginning of a line that takes up at most so many cells. Marks of colour take none, and those that stand behind
/// the cut still end what was begun.
fn clipped(line: &str, width: usize) -> String {
    let (mut kept, mut cells, mut in_mark) = (String::new(), 0, false);
    for letter in line.chars() {
        if letter == '\x1b' || in_mark {
            in_mark = letter != 'm';
            kept.push(letter);
            continue;
        }
        cells += letter.width().unwrap_or(0);
        if cells <= width {
            kept.push(letter);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::{GREEN, painted};

    #[test]
    fn what_does_not_fit_the_screen_is_counted() {
        assert_eq!(fitting("a\nb\nc\nd\n", Some(4), None), "a\nb\n… and 2 more\n");
        assert_eq!(fitting("a\nb\n", Some(4), None), "a\nb\n");
        assert_eq!(fitting("a\nb\n", None, None), "a\nb\n");
    }

    #[test]
    fn a_line_never_takes_two() {
        assert_eq!(fitting("abcdef\nab\n", None, Some(4)), "abcd\nab\n");
        // A letter of two cells does not fit into one.
        assert_eq!(clipped("ab実験", 3), "ab");
        let coloured = format!("{} tail", painted(GREEN, "green"));
        let cut = clipped(&coloured, 3);
        assert_eq!(anstream::adapter::strip_str(&cut).to_string(), "gre");
        assert!(cut.ends_with(&format!("{GREEN:#}")), "the colour ends: {cut:?}");
    }

    #[test]
    fn where_nothing_is_drawn_over_only_news_are_told() {
        let before = "NAME  PHASE\nbox   Running\nnotes Queued\n";
        let after = "NAME    PHASE\nbox     Running\nnotes   Starting\n";
        assert_eq!(news(before, after), "notes   Starting\n");
        assert_eq!(news("", "a\nb\n"), "a\nb\n");
    }
}
