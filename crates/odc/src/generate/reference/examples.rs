//! The scheduler's test scripts as examples: what is shown is what the tests run.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::markdown::{start, wrap};

const SCRIPTS: &str = "crates/core/tests/scheduler/scripts";

pub(super) fn page(root: &Path) -> anyhow::Result<String> {
    let introduction = "Each example is a test of the scheduler. Lines without a marker are the input: nodes, teams, \
        users and requests, and the passing of time. `plan` runs a scheduling cycle, and lines that start with `>` are \
        its result: which servers start on which node, which wait and why, which are preempted. Times are relative to \
        the beginning. [Scheduling](../concepts/scheduling.md) explains the rules.";
    let mut page = start("Scheduling examples", SCRIPTS, introduction);
    for (name, script) in scripts(root)? {
        let (comment, rest) = split_comment(&script);
        let title = capitalize(&name.replace('-', " "));
        let _ = write!(page, "\n## {title}\n\n{}\n```text\n{}\n```\n", wrap(&comment), rest.trim_end());
    }
    Ok(page)
}

/// Returns name and content of the scripts, sorted by name.
fn scripts(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let directory = root.join(SCRIPTS);
    let context = || format!("reading {}", directory.display());
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.extension() != Some("txt".as_ref()) {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scripts.push((name, text));
    }
    scripts.sort();
    Ok(scripts)
}

/// Splits the leading comment off a script.
fn split_comment(script: &str) -> (String, String) {
    let is_comment = |line: &&str| line.starts_with('#');
    let comment = script.lines().take_while(is_comment).map(|line| line.trim_start_matches(['#', ' ']));
    let rest: Vec<&str> = script.lines().skip_while(is_comment).collect();
    (comment.collect::<Vec<_>>().join(" "), rest.join("\n"))
}

fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_comment_is_split_off() {
        let (comment, rest) = split_comment("# One.\n# Two.\nnode n1 8\n# Three.\n");
        assert_eq!((comment.as_str(), rest.as_str()), ("One. Two.", "node n1 8\n# Three."));
    }
}
