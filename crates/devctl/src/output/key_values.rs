//! The layout of `show`: aligned keys and values.

use std::collections::VecDeque;

use super::style::{DIM, paint};
use super::table::wrap;

/// Spaces between keys and values.
const GAP: usize = 2;

/// Aligned keys and values.
#[derive(Default)]
pub struct KeyValues(Vec<(String, String)>);

impl KeyValues {
    /// Adds a row, unless the value is empty.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.0.push((key.to_owned(), value));
        }
    }

    pub fn render(&self, indent: &str, width: Option<usize>) -> String {
        let key_width = self.0.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
        let value_width = width.map_or(usize::MAX, |width| width.saturating_sub(indent.len() + key_width + GAP));
        let row = |(key, value): &(String, String)| {
            let mut lines: VecDeque<String> = value.lines().flat_map(|line| wrap_value(line, value_width)).collect();
            let first = lines.pop_front().unwrap_or_default();
            let others: String = lines.iter().map(|line| format!("{indent}{:key_width$}  {line}\n", "")).collect();
            format!("{indent}{}  {first}\n{others}", paint(DIM, &format!("{key:key_width$}")))
        };
        self.0.iter().map(row).collect()
    }
}

/// Wraps prose. URLs, keys and aligned or styled text stay on one line.
fn wrap_value(line: &str, width: usize) -> Vec<String> {
    let verbatim = line.contains("://") || line.contains("  ") || line.contains('\x1b') || line.starts_with("ssh-");
    if verbatim || line.chars().count() <= width { vec![line.to_owned()] } else { wrap(line, width) }
}
