//! The result of a comparison, bounded by the size of a termination message.

use odc_control::TreeDiff;

use super::entry_name::escape;

/// Bytes for everything but the paths.
const HEADER_BYTES: usize = 160;

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
        // With quotes and a comma.
        let bytes = serde_json::to_string(&line).map_or(usize::MAX, |text| text.len().saturating_add(1));
        let total = self.bytes.saturating_add(bytes);
        if self.diff.truncated || total.saturating_add(HEADER_BYTES) > TreeDiff::MAX_BYTES {
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
    fn report_fits_into_a_termination_message() {
        let mut report = DiffReport::default();
        for number in 0..10_000 {
            report.add(Change::Modified, format!("dir\\\"\u{1b}/{number}").as_bytes(), false);
        }
        let diff = report.into_diff();
        assert_eq!((diff.modified, diff.truncated), (10_000, true));
        let longest = TreeDiff { added: u64::MAX, removed: u64::MAX, modified: u64::MAX, ..diff };
        let text = serde_json::to_string(&longest).unwrap();
        assert!(text.len() <= TreeDiff::MAX_BYTES && text.len() > 3500, "{}", text.len());
    }

    #[test]
    fn path_that_is_too_long_truncates_the_list() {
        let mut report = DiffReport::default();
        report.add(Change::Added, &[b'x'; 5000], true);
        let diff = report.into_diff();
        assert_eq!((diff.added, diff.paths.len(), diff.truncated), (1, 0, true));
    }
}
