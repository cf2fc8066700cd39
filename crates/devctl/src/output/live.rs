//! Something that is shown again and again: drawn over on a terminal.

use std::io::Write as _;

use super::{Output, unwritten};
use crate::failure::Result;

/// What is on the screen now.
#[derive(Debug, Default)]
pub struct Live {
    shown: String,
}

impl Live {
    /// Puts this in the place of what was shown before. The same text twice is drawn once.
    pub fn show(&mut self, out: &Output, text: &str) -> Result<()> {
        let text = fitting(text, out.height());
        if text == self.shown {
            return Ok(());
        }
        let up = self.shown.lines().count();
        let mut frame = String::new();
        if up > 0 {
            frame.push_str(&format!("\x1b[{up}A"));
        }
        // From here to the end of the screen.
        frame.push_str("\r\x1b[J");
        frame.push_str(&text);
        let mut stdout = anstream::stdout().lock();
        stdout.write_all(frame.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))?;
        self.shown = text;
        Ok(())
    }
}

/// As many lines as the screen has, so that going up again finds the first of them.
fn fitting(text: &str, height: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = height.unwrap_or(usize::MAX).saturating_sub(1).max(2);
    if lines.len() <= room {
        return text.to_owned();
    }
    let kept = room - 1;
    let mut cut = lines[..kept].join("\n");
    cut.push_str(&format!("\n… and {} more\n", lines.len() - kept));
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_the_screen_is_counted() {
        assert_eq!(fitting("a\nb\nc\nd\n", Some(4)), "a\nb\n… and 2 more\n");
        assert_eq!(fitting("a\nb\n", Some(4)), "a\nb\n");
        assert_eq!(fitting("a\nb\n", None), "a\nb\n");
    }
}
