//! `odc local logs`: shows the log of a component with `tail`.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use crate::error::Error;
use crate::layout::Layout;

const TAIL_LINES: &str = "200";

/// Replaces this process by `tail`.
pub fn logs(layout: &Layout, name: Option<&str>, follow: bool) -> anyhow::Result<()> {
    let known = component_names(&layout.logs(), "");
    let Some(name) = name.filter(|name| known.contains(*name)) else {
        if known.is_empty() {
            return Err(Error::NotRunning { directory: layout.root().into() }.into());
        }
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Error::NoSuchComponent { name: name.unwrap_or_default().into(), known }.into());
    };
    let mut tail = std::process::Command::new("tail");
    tail.args(["-n", TAIL_LINES]);
    if follow {
        tail.arg("-F");
    }
    Err(tail.arg(layout.component_log(name)).exec().into())
}

/// Returns the names of components that have a log. Those of a node are in a subdirectory.
fn component_names(directory: &Path, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        match file.strip_suffix(".log") {
            Some(name) => drop(names.insert(format!("{prefix}{name}"))),
            None if entry.path().is_dir() => names.extend(component_names(&entry.path(), &format!("{file}/"))),
            None => {}
        }
    }
    names
}
