//! What a home directory holds, for the day when somebody wonders what was in it: the first three levels, with sizes.
//!
//! Nothing outside is looked at: links are not followed, and other file systems are only named. It ends in time however
//! large the home is; what was not counted by then is marked.

pub mod render;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const DEPTH: usize = 3;

/// Of one directory; more are only counted.
const MOST_SHOWN: usize = 200;
/// Of all directories.
const MOST_NODES: usize = 50_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: OsString,
    pub kind: Kind,
    /// Of a directory, what is in it and not shown below it.
    size: u64,
    /// Everything in it was counted.
    counted: bool,
    pub children: Vec<Node>,
    /// Entries that are not shown.
    pub more: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Link,
    /// A directory on another file system, which is not looked into.
    Mount,
    /// A socket, a pipe, a device.
    Special,
}

impl Node {
    fn new(name: &OsStr, kind: Kind, size: u64) -> Self {
        Self { name: name.to_owned(), kind, size, counted: true, children: Vec::new(), more: 0 }
    }

    pub fn size(&self) -> u64 {
        self.children.iter().fold(self.size, |sum, child| sum.saturating_add(child.size()))
    }

    /// Whether the size is that of everything.
    pub fn is_counted(&self) -> bool {
        self.counted && self.children.iter().all(Self::is_counted)
    }
}

/// An error, if the home itself cannot be read.
pub fn read(home: &Path, until: Instant) -> io::Result<Node> {
    let metadata = fs::metadata(home)?;
    let mut walk = Walk { device: metadata.dev(), until, nodes: 0, deep: Vec::new() };
    let mut root = Node::new(OsStr::new("."), Kind::Directory, 0);
    fs::read_dir(home)?;
    // First all that is shown, then what lies below it: names are worth more than sizes.
    walk.names(home, &mut root, &mut Vec::new(), DEPTH);
    for (place, path) in std::mem::take(&mut walk.deep) {
        let (size, counted) = walk.measure(path);
        if let Some(node) = descend(&mut root, &place) {
            node.size = node.size.saturating_add(size);
            node.counted &= counted;
        }
    }
    Ok(root)
}

fn descend<'a>(root: &'a mut Node, place: &[usize]) -> Option<&'a mut Node> {
    place.iter().try_fold(root, |node, index| node.children.get_mut(*index))
}

struct Walk {
    device: u64,
    until: Instant,
    nodes: usize,
    /// Directories below what is shown, each with the place of the node it counts for.
    deep: Vec<(Vec<usize>, PathBuf)>,
}

impl Walk {
    fn names(&mut self, path: &Path, node: &mut Node, place: &mut Vec<usize>, depth: usize) {
        let Some(mut entries) = self.entries(path) else {
            node.counted = false;
            return;
        };
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let Ok(metadata) = entry.metadata() else {
                node.counted = false;
                continue;
            };
            let kind = self.kind(&metadata);
            let size = if kind == Kind::File { metadata.len() } else { 0 };
            if node.children.len() >= MOST_SHOWN || self.nodes >= MOST_NODES {
                node.more += 1;
                node.size = node.size.saturating_add(size);
                if kind == Kind::Directory {
                    self.deep.push((place.clone(), entry.path()));
                }
                continue;
            }
            self.nodes += 1;
            let mut child = Node::new(&entry.file_name(), kind, size);
            if kind == Kind::Directory {
                place.push(node.children.len());
                if depth > 1 {
                    self.names(&entry.path(), &mut child, place, depth - 1);
                } else {
                    self.deep.push((place.clone(), entry.path()));
                }
                place.pop();
            }
            node.children.push(child);
        }
    }

    /// Everything below a directory that is not shown.
    fn measure(&self, path: PathBuf) -> (u64, bool) {
        let mut waiting = vec![path];
        let (mut size, mut counted) = (0_u64, true);
        while let Some(path) = waiting.pop() {
            let Some(entries) = self.entries(&path) else {
                counted = false;
                continue;
            };
            for metadata in entries.iter().map(|entry| (entry, entry.metadata())) {
                let (entry, Ok(metadata)) = metadata else {
                    counted = false;
                    continue;
                };
                match self.kind(&metadata) {
                    Kind::File => size = size.saturating_add(metadata.len()),
                    Kind::Directory => waiting.push(entry.path()),
                    Kind::Link | Kind::Mount | Kind::Special => {}
                }
            }
        }
        (size, counted)
    }

    /// Absent if it cannot be read or there is no time left.
    fn entries(&self, path: &Path) -> Option<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).ok()? {
            if Instant::now() >= self.until {
                return None;
            }
            entries.push(entry.ok()?);
        }
        Some(entries)
    }

    fn kind(&self, metadata: &Metadata) -> Kind {
        let kind = metadata.file_type();
        if kind.is_symlink() {
            Kind::Link
        } else if kind.is_dir() {
            if metadata.dev() == self.device { Kind::Directory } else { Kind::Mount }
        } else if kind.is_file() {
            Kind::File
        } else {
            Kind::Special
        }
    }
}

#[cfg(test)]
mod tests;
