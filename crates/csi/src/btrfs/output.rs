//! Parses the output of btrfs-progs.

use std::fmt;
use std::str::FromStr;

/// Number of a subvolume, which is also the number of its qgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubvolumeId(u64);

impl fmt::Display for SubvolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SubvolumeId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Entry of `btrfs subvolume list`.
#[derive(Debug, PartialEq, Eq)]
pub struct Subvolume {
    pub id: SubvolumeId,
    /// Subvolume that contains this one.
    pub parent: SubvolumeId,
}

/// Referenced bytes of a subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QgroupUsage {
    pub referenced: u64,
    pub limit: Option<u64>,
}

/// Parses `btrfs qgroup show --raw -rf PATH`: two header lines, then the qgroup of the path.
pub fn parse_qgroup(text: &str) -> Option<QgroupUsage> {
    let line = text.lines().find(|line| line.trim_start().starts_with("0/"))?;
    let mut fields = line.split_whitespace().skip(1);
    let referenced = fields.next()?.parse().ok()?;
    let _exclusive = fields.next()?;
    let limit = match fields.next()? {
        "none" => None,
        bytes => Some(bytes.parse().ok()?),
    };
    Some(QgroupUsage { referenced, limit })
}

/// Parses `btrfs qgroup show`: the path of a deleted subvolume is `<stale>`.
pub fn parse_stale_qgroups(text: &str) -> Vec<SubvolumeId> {
    let stale = text.lines().filter(|line| line.trim_end().ends_with(" <stale>"));
    stale.filter_map(|line| line.trim_start().strip_prefix("0/")?.split(' ').next()?.parse().ok()).collect()
}

/// Parses `btrfs subvolume list`: lines like `ID 257 gen 9 top level 5 path a/b`. Other lines are parts of names.
pub fn parse_subvolumes(text: &str) -> Vec<Subvolume> {
    text.lines().filter_map(parse_subvolume).collect()
}

fn parse_subvolume(line: &str) -> Option<Subvolume> {
    let id = line.strip_prefix("ID ")?.split(' ').next()?.parse().ok()?;
    let parent = line.split_once(" top level ")?.1.split(' ').next()?.parse().ok()?;
    Some(Subvolume { id, parent })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "Qgroupid    Referenced    Exclusive  Max referenced   Path \n\
                          --------    ----------    ---------  --------------   ---- \n";

    #[test]
    fn qgroup_has_referenced_bytes_and_limit() {
        let text = format!("{HEADER}0/256         52412416        16384        52428800   a\n");
        assert_eq!(parse_qgroup(&text), Some(QgroupUsage { referenced: 52_412_416, limit: Some(52_428_800) }));
        // btrfs-progs before 6.0 print no path and two spaces less.
        let text = "qgroupid         rfer         excl     max_rfer \n--------  --- \n0/5             16384        16384         none ";
        assert_eq!(parse_qgroup(text), Some(QgroupUsage { referenced: 16384, limit: None }));
        assert_eq!(parse_qgroup(HEADER), None);
        assert_eq!(parse_qgroup("0/256 x"), None);
    }

    #[test]
    fn stale_qgroups_have_no_path() {
        let text =
            format!("{HEADER}0/5  16384  16384  none  <toplevel>\n0/258  0  0  none   <stale>\n0/259  0  0  none  a\n");
        assert_eq!(parse_stale_qgroups(&text), ["258".parse().unwrap()]);
    }

    #[test]
    fn subvolumes_have_id_and_parent() {
        let id = |number: &str| number.parse().unwrap();
        let text = "ID 257 gen 17 top level 5 path b\nID 300 gen 18 top level 257 path b/t/n\nx\n";
        let expected = [(id("257"), id("5")), (id("300"), id("257"))];
        let parsed: Vec<_> = parse_subvolumes(text).into_iter().map(|entry| (entry.id, entry.parent)).collect();
        assert_eq!(parsed, expected);
        assert_eq!(parse_subvolumes("ID x gen 1 top level 5 path b\nID 9\n"), []);
    }
}
