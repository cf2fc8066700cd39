//! The entries of a listing: those of the first level, then the largest ones.

use std::cmp::Reverse;

use odc_control::ListingEntry;

use super::super::entry_name::escape;

/// Entries that are kept. More would not fit into a compressed listing.
const MAX_ENTRIES: usize = 4000;

/// Keeps the first entries in the order of their rank. A directory has a higher rank than its content, because it is at
/// least as large.
#[derive(Default)]
pub(super) struct Ranking {
    entries: Vec<Entry>,
    omitted: u64,
}

struct Entry {
    depth: usize,
    listed: ListingEntry,
}

impl Entry {
    fn rank(&self) -> (bool, Reverse<u64>, usize, &str) {
        (self.depth > 1, Reverse(self.listed.bytes), self.depth, &self.listed.path)
    }
}

impl Ranking {
    pub(super) fn add(&mut self, path: &[u8], is_directory: bool, depth: usize, bytes: u64, files: u64) {
        let path = escape(path) + if is_directory { "/" } else { "" };
        self.entries.push(Entry { depth, listed: ListingEntry { path, bytes, files } });
        if self.entries.len() >= 2 * MAX_ENTRIES {
            self.drop_last();
        }
    }

    fn drop_last(&mut self) {
        self.entries.sort_unstable_by(|one, other| one.rank().cmp(&other.rank()));
        let dropped = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.omitted = self.omitted.saturating_add(u64::try_from(dropped).unwrap_or(u64::MAX));
        self.entries.truncate(MAX_ENTRIES);
    }

    /// Returns the entries in the order of their rank, and the number of the others.
    pub(super) fn into_entries(mut self) -> (Vec<ListingEntry>, u64) {
        self.drop_last();
        (self.entries.into_iter().map(|entry| entry.listed).collect(), self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_level_and_largest_entries_are_kept() {
        let mut ranking = Ranking::default();
        ranking.add(b"small", false, 1, 0, 1);
        for number in 0..3 * MAX_ENTRIES as u64 {
            ranking.add(format!("dir/{number}").as_bytes(), false, 2, number, 1);
        }
        ranking.add(b"dir", true, 1, u64::MAX, 1);
        let (entries, omitted) = ranking.into_entries();
        assert_eq!(entries.len(), MAX_ENTRIES);
        assert_eq!(omitted, 2 * MAX_ENTRIES as u64 + 2);
        let paths: Vec<&str> = entries.iter().take(3).map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["dir/", "small", "dir/11999"]);
    }

    #[test]
    fn directory_precedes_content_of_the_same_size() {
        let mut ranking = Ranking::default();
        ranking.add(b"a/b/c", false, 3, 0, 1);
        ranking.add(b"a/b", true, 2, 0, 1);
        ranking.add(b"a", true, 1, 0, 1);
        let paths: Vec<String> = ranking.into_entries().0.into_iter().map(|entry| entry.path).collect();
        assert_eq!(paths, ["a/", "a/b/", "a/b/c"]);
    }
}
