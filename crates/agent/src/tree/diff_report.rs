//! The result of a comparison, bounded in size.

use odc_control::TreeDiff;

use super::entry_name::escape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Removed,
    Modified,
}

#[derive(Debug, Default)]
pub(super) struct DiffReport {
    diff: TreeDiff,
    bytes: usize,
}

impl DiffReport {
    /// Counts a path without listing it.
    pub(super) fn count(&mut self, change: Change) {
        let count = match change {
            Change::Added => &mut self.diff.added,
            Change::Removed => &mut self.diff.removed,
            Change::Modified => &mut self.diff.modified,
        };
        *count = count.saturating_add(1);
    }

    /// Counts a path and lists it if there is space. A directory ends with a slash.
    pub(super) fn add(&mut self, change: Change, path: &[u8], is_directory: bool) {
        self.count(change);
        let letter = match change {
            Change::Added => 'A',
            Change::Removed => 'D',
            Change::Modified => 'M',
        };
        let line = format!("{letter} {}{}", escape(path), if is_directory { "/" } else { "" });
        let total = self.bytes.saturating_add(line.len());
        let is_full = total > TreeDiff::MAX_PATH_BYTES || self.diff.paths.len() >= TreeDiff::MAX_PATHS;
        if self.diff.truncated || is_full {
            self.diff.truncated = true;
            return;
        }
        self.bytes = total;
        self.diff.paths.push(line);
    }

    pub(super) fn into_diff(self) -> TreeDiff {
        self.diff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_lists_the_first_paths_and_counts_all() {
        let mut report = DiffReport::default();
        let long = "x".repeat(100);
        for number in 0..10_000 {
            report.add(Change::Modified, format!("{long}\\\"\u{1b}/{number}").as_bytes(), false);
        }
        let diff = report.into_diff();
        assert_eq!((diff.modified, diff.truncated), (10_000, true));
        assert_eq!(diff.paths[0], format!("M {long}\\\\\"\\u{{1b}}/0"));
        let bytes: usize = diff.paths.iter().map(String::len).sum();
        assert!(bytes <= TreeDiff::MAX_PATH_BYTES && bytes > TreeDiff::MAX_PATH_BYTES - 150, "{bytes}");
    }

    #[test]
    fn path_that_is_too_long_truncates_the_list() {
        let mut report = DiffReport::default();
        report.add(Change::Added, &vec![b'x'; 40_000], true);
        let diff = report.into_diff();
        assert_eq!((diff.added, diff.paths.len(), diff.truncated), (1, 0, true));
    }

    #[test]
    fn number_of_paths_is_bounded() {
        let mut report = DiffReport::default();
        for _ in 0..=TreeDiff::MAX_PATHS {
            report.add(Change::Added, b"a", false);
        }
        let diff = report.into_diff();
        assert_eq!((diff.paths.len(), diff.truncated), (TreeDiff::MAX_PATHS, true));
    }
}
