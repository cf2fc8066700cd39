//! A tree of files in the home of a server, to check that a disk keeps its data.

use std::collections::BTreeSet;

/// Number and size of the files. Each directory has [`FILES_PER_DIRECTORY`].
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub directories: usize,
    pub file_bytes: usize,
}

const FILES_PER_DIRECTORY: usize = 100;
const FILE_BYTES: usize = 214_749;

/// Damages the tree in the ways of [`DAMAGED_PATHS`].
pub const DAMAGE: &str = "cd tree/d000 \
    && printf damaged | dd of=f00 bs=1 seek=1000 conv=notrunc status=none \
    && touch -r f01 time && printf damaged | dd of=f01 bs=1 seek=1000 conv=notrunc status=none && touch -r time f01 \
    && rm time && : > f02 && chmod 600 f03 && ln -sf f00 f04 && rm f05 && echo new > f0x && rm -r ../d001 && sync";

/// What [`DAMAGE`] changes, as `devctl disk diff --name-status` prints it.
pub const DAMAGED_PATHS: &[&str] = &[
    // Content; the second with the old modification time.
    "M tree/d000/f00",
    "M tree/d000/f01",
    // Size, mode and type.
    "M tree/d000/f02",
    "M tree/d000/f03",
    "M tree/d000/f04",
    "D tree/d000/f05",
    "A tree/d000/f0x",
    "D tree/d001/",
];

/// Files that [`DAMAGE`] changes or deletes.
pub const DAMAGED_FILES: [&str; 2] = ["tree/d000/f00", "tree/d001/f07"];

/// Prints one line per entry of the tree, then one per file with its hash. The change time shows whether an owner or mode was
/// set, even to the same value.
pub const MANIFEST: &str = "find tree -printf '%p %y %m %U:%G %s %T@ %C@\\n' | sort \
    && find tree -type f -print0 | sort -z | xargs -0 b2sum";

impl Tree {
    /// 10,000 files with 2 GiB.
    pub const LARGE: Self = Self { directories: 100, file_bytes: FILE_BYTES };
    /// A twentieth of [`Self::LARGE`].
    pub const SMALL: Self = Self { directories: 5, file_bytes: FILE_BYTES };

    pub fn files(self) -> usize {
        self.directories * FILES_PER_DIRECTORY
    }

    pub fn bytes(self) -> usize {
        self.files() * self.file_bytes
    }

    /// Returns a script that writes the tree to the current directory. The content is random, so that neither holes nor
    /// compression save space.
    pub fn write_script(self) -> String {
        let (last, file) = (self.directories - 1, self.file_bytes);
        format!(
            "set -e; mkdir tree; for name in $(seq -f tree/d%03g 0 {last}); do mkdir $name; \
             head -c {} /dev/urandom | split -b {file} -d -a 2 - $name/f; done; sync",
            file * FILES_PER_DIRECTORY
        )
    }
}

/// The output of [`MANIFEST`].
#[derive(Debug)]
pub struct Manifest {
    lines: BTreeSet<String>,
}

impl Manifest {
    /// Checks that all files of the tree are listed.
    pub fn parse(output: &str, tree: Tree) -> anyhow::Result<Self> {
        let lines: BTreeSet<String> = output.lines().map(str::to_owned).collect();
        // Each file has two lines, each directory one.
        let expected = tree.files() * 2 + tree.directories + 1;
        anyhow::ensure!(lines.len() == expected, "{} lines instead of {expected}", lines.len());
        Ok(Self { lines })
    }

    /// Returns the line with the hash of a file, as `b2sum` prints it.
    pub fn hash_line(&self, path: &str) -> Option<&str> {
        let suffix = format!("  {path}");
        self.lines.iter().find(|line| line.ends_with(&suffix)).map(String::as_str)
    }

    /// Fails with the first lines that differ.
    pub fn check_equal(&self, other: &Self) -> anyhow::Result<()> {
        let differences: Vec<&String> = self.lines.symmetric_difference(&other.lines).collect();
        let first = &differences[..differences.len().min(10)];
        anyhow::ensure!(differences.is_empty(), "{} lines differ: {first:#?}", differences.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn run(directory: &std::path::Path, script: &str) -> String {
        let output = Command::new("bash").args(["-c", script]).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn manifest_shows_damage() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree { directories: 2, file_bytes: 2000 };
        run(directory.path(), &tree.write_script());
        let manifest = || Manifest::parse(&run(directory.path(), MANIFEST), tree);
        let before = manifest().unwrap();
        before.check_equal(&manifest().unwrap()).unwrap();
        assert!(DAMAGED_FILES.iter().all(|path| before.hash_line(path).is_some()));
        run(directory.path(), "chmod u+r tree/d000/f50");
        let error = before.check_equal(&manifest().unwrap()).unwrap_err().to_string();
        assert!(error.contains("tree/d000/f50"), "{error}");
        run(directory.path(), DAMAGE);
        assert!(manifest().is_err());
    }
}
