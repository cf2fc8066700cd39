//! Aligned columns.
//!
//! Widths are those of the terminal's cells, so that names of any script line up. A table that does not fit the
//! terminal loses its least important columns first, then its longest texts their ends; what goes to a file or a
//! program is never cut. One row is always one line: people grep.

use anstyle::Style;
use unicode_width::UnicodeWidthStr as _;

use super::style::{self, BOLD, PLAIN};

/// Between columns.
const GAP: usize = 3;
/// A text that is cut to this is still fine to read; before it gets shorter, columns go.
const READABLE: usize = 16;
/// Shorter than this a cut text says nothing.
const SHORTEST: usize = 8;
const CUT: char = '…';

#[derive(Clone, Debug)]
pub struct Column {
    pub title: &'static str,
    /// Only shown when all columns are asked for.
    wide: bool,
    /// Columns with a higher number go first where there is no room; 0 never goes.
    spare: u8,
    /// Whether its texts may lose their ends.
    elastic: bool,
}

impl Column {
    pub const fn new(title: &'static str) -> Self {
        Self { title, wide: false, spare: 0, elastic: false }
    }

    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.wide = true;
        self
    }

    #[must_use]
    pub const fn spare(mut self, order: u8) -> Self {
        self.spare = order;
        self
    }

    #[must_use]
    pub const fn elastic(mut self) -> Self {
        self.elastic = true;
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
        // A line break or tab would tear the row apart.
        let text: String = text.into().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        Self { text, style }
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

    /// One cell for each column; what is missing is empty.
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

    /// The shown columns, each with its width.
    fn layout(&self, wide: bool, headers: bool, limit: Option<usize>) -> Vec<(usize, usize)> {
        let natural = |index: usize, column: &Column| {
            let title = if headers { column.title.width() } else { 0 };
            self.rows.iter().filter_map(|row| row.get(index)).map(Cell::width).fold(title, usize::max)
        };
        let shown = self.columns.iter().enumerate().filter(|(_, column)| wide || !column.wide);
        // A column in which nobody has anything tells nothing, unless everything was asked for.
        let filled = |index: usize| self.rows.iter().filter_map(|row| row.get(index)).any(|cell| !cell.text.is_empty());
        let shown = shown.filter(|(index, column)| wide || column.spare == 0 || self.rows.is_empty() || filled(*index));
        let mut layout: Vec<(usize, usize)> = shown.map(|(index, column)| (index, natural(index, column))).collect();
        // Whoever asks for all columns gets them, whatever the terminal makes of it.
        let Some(limit) = limit.filter(|_| !wide) else { return layout };
        while total(&layout) > limit {
            let most_spare = layout.iter().map(|(index, _)| self.columns[*index].spare).max().unwrap_or(0);
            if most_spare == 0 || self.least(&layout) <= limit {
                break;
            }
            let gone = layout.iter().rposition(|(index, _)| self.columns[*index].spare == most_spare);
            gone.map(|gone| layout.remove(gone));
        }
        self.squeeze(&mut layout, limit);
        layout
    }

    /// The width if all elastic columns were as short as is still fine to read.
    fn least(&self, layout: &[(usize, usize)]) -> usize {
        let shortest: Vec<(usize, usize)> = layout
            .iter()
            .map(|(index, width)| (*index, if self.columns[*index].elastic { (*width).min(READABLE) } else { *width }))
            .collect();
        total(&shortest)
    }

    /// Takes from the widest elastic column until all fits.
    fn squeeze(&self, layout: &mut [(usize, usize)], limit: usize) {
        let mut over = total(layout).saturating_sub(limit);
        while over > 0 {
            let elastic = layout.iter_mut().filter(|(index, width)| self.columns[*index].elastic && *width > SHORTEST);
            let Some((_, width)) = elastic.max_by_key(|(_, width)| *width) else { return };
            *width -= 1;
            over -= 1;
        }
    }
}

fn total(layout: &[(usize, usize)]) -> usize {
    layout.iter().map(|(_, width)| width).sum::<usize>() + GAP * layout.len().saturating_sub(1)
}

fn push_line(text: &mut String, layout: &[(usize, usize)], row: &[Cell]) {
    let mut owed = 0;
    for (index, width) in layout {
        let cell = row.get(*index);
        let shown = cell.map_or_else(String::new, |cell| cut(&cell.text, *width));
        // Spaces are owed until something follows them, so that no line ends in some.
        if !shown.is_empty() {
            text.extend(std::iter::repeat_n(' ', owed));
            owed = 0;
            text.push_str(&style::painted(cell.map_or(PLAIN, |cell| cell.style), &shown));
        }
        owed += width.saturating_sub(shown.width()) + GAP;
    }
    text.push('\n');
}

/// A text that takes up at most this many cells.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if kept.width() + 1 > width {
            kept.pop();
            break;
        }
    }
    if width > 0 {
        kept.push(CUT);
    }
    kept
}

/// A sentence in lines of at most this many cells, broken between words.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &[&[&str]]) -> Table {
        let mut table = Table::new([
            Column::new("NAME"),
            Column::new("PHASE"),
            Column::new("NODE").spare(9),
            Column::new("MESSAGE").spare(2).elastic(),
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
    fn columns_line_up_whatever_the_script() {
        let text = table(&[&["büro", "Running", "n1"], &["実験", "Queued", "n2"]]).render(false, true, None);
        assert_eq!(plain(&text), "NAME   PHASE     NODE\nbüro   Running   n1\n実験   Queued    n2\n");
    }

    #[test]
    fn the_least_important_column_goes_first_then_texts_lose_their_ends() {
        let rows: &[&[&str]] = &[&["box", "Queued", "node-with-a-name", "waits for 8 devices on one node"]];
        assert_eq!(plain(&table(rows).render(false, false, Some(40))), "box   Queued   waits for 8 devices on o…\n");
        let roomy = "box   Queued   node-with-a-name   waits for 8 devices …\n";
        assert_eq!(plain(&table(rows).render(false, false, Some(55))), roomy);
        assert_eq!(plain(&table(rows).render(false, false, Some(16))), "box   Queued\n");
        assert!(plain(&table(rows).render(false, false, None)).ends_with("on one node\n"));
    }

    #[test]
    fn empty_columns_are_left_out_unless_all_are_asked_for() {
        let rows: &[&[&str]] = &[&["box", "Running"]];
        assert_eq!(plain(&table(rows).render(false, true, None)), "NAME   PHASE\nbox    Running\n");
        assert!(plain(&table(rows).render(true, true, None)).contains("TEAM"));
    }

    #[test]
    fn a_row_stays_one_line() {
        let text = plain(&table(&[&["box", "Failed", "", "one\ntwo\tthree"]]).render(false, false, None));
        assert_eq!(text, "box   Failed   one two three\n");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
    }

    proptest! {
        #[test]
        fn a_cut_text_fits(text in "\\PC{0,40}", width in 0_usize..50) {
            let cut = cut(&text, width);
            prop_assert!(cut.width() <= width.max(text.width().min(width)));
            if text.width() <= width {
                prop_assert_eq!(cut, text);
            }
        }

        #[test]
        fn lines_fit_when_they_can(words in prop::collection::vec("[a-z]{1,30}", 4), width in 70_usize..200) {
            let row: Vec<&str> = words.iter().map(String::as_str).collect();
            let text = plain(&table(&[&row]).render(false, true, Some(width)));
            prop_assert!(text.lines().all(|line| line.width() <= width), "{}", text);
        }
    }
}
