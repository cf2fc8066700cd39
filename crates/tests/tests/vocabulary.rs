//! Keeps the vocabulary of `docs/contributing/glossary.md`: its banned words occur nowhere in code, comments, messages
//! and docs. Identifiers are split at underscores and case changes.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

const GLOSSARY: &str = "docs/contributing/glossary.md";

/// Files that name the words, or were not written by us.
const EXEMPT: &[&str] = &[GLOSSARY, "crates/tests/tests/vocabulary.rs", "Cargo.lock", "LICENSE"];

/// Occurrences that are still allowed, by crate or top-level path. Numbers may only get smaller.
const ALLOWED: &[(&str, usize)] = &[];

#[test]
fn banned_words_do_not_occur() {
    let words = banned_words(&read(GLOSSARY));
    assert!(words.len() > 20, "{GLOSSARY} lists only {words:?}");
    let mut failures = Vec::new();
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for path in tracked_files() {
        let area = area(&path);
        for (line, word) in occurrences(&read(&path), &words) {
            *counts.entry(area.clone()).or_default() += 1;
            failures.push(format!("{path}:{line}: {word}"));
        }
    }
    failures.retain(|failure| {
        let area = area(failure.split(':').next().unwrap());
        counts[&area] > allowed(&area)
    });
    assert!(failures.is_empty(), "say it as {GLOSSARY} proposes:\n{}", failures.join("\n"));
    for (area, allowed) in ALLOWED {
        let count = counts.get(*area).copied().unwrap_or(0);
        assert_eq!(count, *allowed, "{area} has fewer banned words than allowed: lower its number in ALLOWED");
    }
}

#[test]
fn words_are_found_in_identifiers_strings_and_prose() {
    let words = ["nobody".to_owned(), "put to sleep".to_owned()];
    let found = |line: &str| occurrences(line, &words).len();
    for line in ["// Nobody waits.", "fn nobody_waits()", "struct NobodyWaits;", "\"put to sleep\"", "PutToSleep"] {
        assert_eq!(found(line), 1, "{line}");
    }
    for line in ["// A nobodyness.", "input to sleeping", "NOBODYS"] {
        assert_eq!(found(line), 0, "{line}");
    }
}

fn allowed(area: &str) -> usize {
    ALLOWED.iter().find(|(name, _)| *name == area).map_or(0, |(_, count)| *count)
}

/// The first two components of a path: `crates/core`, `docs/concepts`, `README.md`.
fn area(path: &str) -> String {
    path.split('/').take(2).collect::<Vec<_>>().join("/")
}

/// The words in the first column of the table below the heading `Banned words`.
fn banned_words(glossary: &str) -> Vec<String> {
    let table = glossary.split("## Banned words").nth(1).unwrap_or_default();
    let section = table.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let first_cells = rows.filter_map(|row| row.split('|').nth(1));
    first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_lowercase).collect()
}

/// Line numbers and banned words of a text.
fn occurrences(text: &str, words: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let normalized = format!(" {} ", normalize(line));
        let matches = words.iter().filter(|word| normalized.contains(&format!(" {word} ")));
        found.extend(matches.map(|word| (index + 1, word.clone())));
    }
    found
}

/// Lower-case words separated by single spaces; identifiers are split at underscores and case changes.
fn normalize(line: &str) -> String {
    let mut words = String::with_capacity(line.len() + 16);
    let mut previous_lower = false;
    for character in line.chars() {
        if character.is_alphabetic() {
            if character.is_uppercase() && previous_lower {
                words.push(' ');
            }
            words.extend(character.to_lowercase());
        } else if character != '\'' && !words.ends_with(' ') {
            words.push(' ');
        }
        previous_lower = character.is_lowercase();
    }
    words.trim().to_owned()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(repository().join(path)).unwrap()).into_owned()
}

fn tracked_files() -> Vec<String> {
    let mut command = Command::new("git");
    command.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(repository());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let skipped = |path: &&str| {
        EXEMPT.contains(path)
            || Path::new(path).extension().is_some_and(|extension| extension == "sum" || extension == "mod")
            || path.contains("/corpus/")
    };
    listed.lines().filter(|path| !skipped(path) && repository().join(path).is_file()).map(str::to_owned).collect()
}
