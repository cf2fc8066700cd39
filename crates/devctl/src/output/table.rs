//! Tables with aligned columns.
//!
//! Widths are in terminal cells, so that wide characters line up. A table that does not fit the terminal first drops
//! columns by priority, then truncates the longest texts; output to a file or pipe is never cut. A row is always one line,
//! so that it can be searched with grep.

use anstyle::Style;
use unicode_width::UnicodeWidthStr as _;

use super::sanitize::single_line;
use super::style::{self, BOLD, PLAIN};

/// Spaces between columns.
const GAP: usize = 3;
/// The width to which texts are truncated before columns are dropped.
const MIN_READABLE_WIDTH: usize = 16;
/// Texts are never truncated below this width.
const MIN_WIDTH: usize = 8;
const ELLIPSIS: char = '…';

#[derive(Clone, Debug)]
pub struct Column {
    pub title: &'static str,
    /// Shown only with `-o wide`.
    wide: bool,
    /// Columns with a higher number are dropped first; 0 is never dropped.
    drop_priority: u8,
    /// Whether texts may be truncated.
    truncate: bool,
}

impl Column {
    pub const fn new(title: &'static str) -> Self {
        Self { title, wide: false, drop_priority: 0, truncate: false }
    }

    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.wide = true;
        self
    }

    #[must_use]
    pub const fn drop_priority(mut self, priority: u8) -> Self {
        self.drop_priority = priority;
        self
    }

    #[must_use]
    pub const fn truncate(mut self) -> Self {
        self.truncate = true;
        self
    }
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: single_line(&text.into()), style }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, PLAIN)
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn render(&self, wide: bool, headers: bool, width: Option<usize>) -> String {
        let layout = self.layout(wide, headers, width);
        let mut text = String::new();
        if headers {
            let titles: Vec<Cell> = self.columns.iter().map(|column| Cell::styled(column.title, BOLD)).collect();
            push_line(&mut text, &layout, &titles);
        }
        for row in &self.rows {
            push_line(&mut text, &layout, row);
        }
        text
    }

    /// Returns the visible columns and their widths.
    fn layout(&self, wide: bool, headers: bool, max_width: Option<usize>) -> Vec<(usize, usize)> {
        let natural = |index: usize, column: &Column| {
            let title = if headers { column.title.width() } else { 0 };
            self.rows.iter().filter_map(|row| row.get(index)).map(Cell::width).fold(title, usize::max)
        };
        let visible = self.columns.iter().enumerate().filter(|(_, column)| wide || !column.wide);
        // Hide empty columns, except with `-o wide`.
        let filled = |index: usize| self.rows.iter().filter_map(|row| row.get(index)).any(|cell| !cell.text.is_empty());
        let visible = visible
            .filter(|(index, column)| wide || column.drop_priority == 0 || self.rows.is_empty() || filled(*index));
        let mut layout: Vec<(usize, usize)> = visible.map(|(index, column)| (index, natural(index, column))).collect();
        // `-o wide` shows all columns even if they do not fit.
        let Some(max_width) = max_width.filter(|_| !wide) else { return layout };
        while total_width(&layout) > max_width {
            let highest = layout.iter().map(|(index, _)| self.columns[*index].drop_priority).max().unwrap_or(0);
            if highest == 0 || self.min_width(&layout) <= max_width {
                break;
            }
            let dropped = layout.iter().rposition(|(index, _)| self.columns[*index].drop_priority == highest);
            dropped.map(|dropped| layout.remove(dropped));
        }
        self.shrink(&mut layout, max_width);
        layout
    }

    /// Returns the width with all truncatable columns at the readable minimum.
    fn min_width(&self, layout: &[(usize, usize)]) -> usize {
        let shortest: Vec<(usize, usize)> = layout
            .iter()
            .map(|(index, width)| {
                (*index, if self.columns[*index].truncate { (*width).min(MIN_READABLE_WIDTH) } else { *width })
            })
            .collect();
        total_width(&shortest)
    }

    /// Shrinks the widest truncatable columns until the table fits.
    fn shrink(&self, layout: &mut [(usize, usize)], max_width: usize) {
        let mut over = total_width(layout).saturating_sub(max_width);
        while over > 0 {
            let truncatable =
                layout.iter_mut().filter(|(index, width)| self.columns[*index].truncate && *width > MIN_WIDTH);
            let Some((_, width)) = truncatable.max_by_key(|(_, width)| *width) else { return };
            *width -= 1;
            over -= 1;
        }
    }
}

fn total_width(layout: &[(usize, usize)]) -> usize {
    layout.iter().map(|(_, width)| width).sum::<usize>() + GAP * layout.len().saturating_sub(1)
}

fn push_line(text: &mut String, layout: &[(usize, usize)], row: &[Cell]) {
    let mut pending_spaces = 0;
    for (index, width) in layout {
        let cell = row.get(*index);
        let text_of_cell = cell.map_or_else(String::new, |cell| truncate(&cell.text, *width));
        // Spaces are printed only before further text, so that lines have no trailing spaces.
        if !text_of_cell.is_empty() {
            text.extend(std::iter::repeat_n(' ', pending_spaces));
            pending_spaces = 0;
            text.push_str(&style::paint(cell.map_or(PLAIN, |cell| cell.style), &text_of_cell));
        }
        pending_spaces += width.saturating_sub(text_of_cell.width()) + GAP;
    }
    text.push('\n');
}

/// Truncates text to a width in cells.
pub fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut head = String::new();
    for character in text.chars() {
        head.push(character);
        if head.width() + 1 > width {
            head.pop();
            break;
        }
    }
    if width > 0 {
        head.push(ELLIPSIS);
    }
    head
}

/// Wraps text at spaces. Words longer than the width, such as commands and URLs, stay whole.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width)
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &[&[&str]]) -> Table {
        let mut table = Table::new([
            Column::new("NAME"),
            Column::new("PHASE"),
            Column::new("NODE").drop_priority(9),
            Column::new("MESSAGE").drop_priority(2).truncate(),
            Column::new("TEAM").wide(),
        ]);
        for row in rows {
            table.row(row.iter().map(|text| Cell::from(*text)).collect::<Vec<_>>());
        }
        table
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_align_wide_characters() {
        let text = table(&[&["büro", "Running", "n1"], &["実験", "Queued", "n2"]]).render(false, true, None);
        assert_eq!(plain(&text), "NAME   PHASE     NODE\nbüro   Running   n1\n実験   Queued    n2\n");
    }

    #[test]
    fn columns_are_dropped_by_priority_before_truncation() {
        let rows: &[&[&str]] = &[&["box", "Queued", "node-with-a-name", "waits for 8 devices on one node"]];
        assert_eq!(plain(&table(rows).render(false, false, Some(40))), "box   Queued   waits for 8 devices on o…\n");
        let roomy = "box   Queued   node-with-a-name   waits for 8 devices …\n";
        assert_eq!(plain(&table(rows).render(false, false, Some(55))), roomy);
        assert_eq!(plain(&table(rows).render(false, false, Some(16))), "box   Queued\n");
        assert!(plain(&table(rows).render(false, false, None)).ends_with("on one node\n"));
    }

    #[test]
    fn empty_columns_are_hidden_except_in_wide_output() {
        let rows: &[&[&str]] = &[&["box", "Running"]];
        assert_eq!(plain(&table(rows).render(false, true, None)), "NAME   PHASE\nbox    Running\n");
        assert!(plain(&table(rows).render(true, true, None)).contains("TEAM"));
    }

    #[test]
    fn row_with_newline_stays_one_line() {
        let text = plain(&table(&[&["box", "Failed", "", "one\ntwo\tthree"]]).render(false, false, None));
        assert_eq!(text, "box   Failed   one two three\n");
    }

    #[test]
    fn wrap_breaks_at_spaces_only() {
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
    }

    proptest! {
        #[test]
        fn truncated_text_fits(text in "\\PC{0,40}", width in 0_usize..50) {
            let truncated = truncate(&text, width);
            prop_assert!(truncated.width() <= width.max(text.width().min(width)));
            if text.width() <= width {
                prop_assert_eq!(truncated, text);
            }
        }

        #[test]
        fn lines_fit_the_terminal(words in prop::collection::vec("[a-z]{1,30}", 4), width in 70_usize..200) {
            let row: Vec<&str> = words.iter().map(String::as_str).collect();
            let text = plain(&table(&[&row]).render(false, true, Some(width)));
            prop_assert!(text.lines().all(|line| line.width() <= width), "{}", text);
        }
    }
}
