//! What the documentation says about the code, compared with the code.

#![expect(clippy::unwrap_used, reason = "a page that cannot be read fails the test")]

use std::path::Path;

use odc_api::v1alpha1::Phase;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_page_about_servers_shows_the_phases_as_they_are() {
    let page = page("docs/devserver.md");
    for phase in Phase::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| {phase} |")));
        let row = row.unwrap_or_else(|| panic!("{phase} is not in the table"));
        let next: Vec<&str> = phase.successors().iter().map(|phase| phase.as_str()).collect();
        let next = if next.is_empty() { "nothing".to_owned() } else { next.join(", ") };
        assert!(row.ends_with(&format!("| {next} |")), "after {phase} comes {next}, not as in: {row}");
    }
}

#[test]
fn the_diagram_is_the_one_of_the_code() {
    let page = page("docs/devserver.md");
    let source = page_of_phase();
    let drawn: Vec<&str> = page.lines().filter(|line| line.contains("─►")).collect();
    let meant: Vec<&str> =
        source.lines().filter_map(|line| line.strip_prefix("//! ")).filter(|line| line.contains("─►")).collect();
    assert_eq!(drawn, meant);
    let known = |word: &str| Phase::ALL.iter().any(|phase| phase.as_str() == word);
    let words = drawn.iter().flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphabetic()));
    let strangers: Vec<&str> = words.filter(|word| !word.is_empty() && !known(word)).collect();
    assert!(strangers.is_empty(), "{strangers:?} are no phases");
}

fn page_of_phase() -> String {
    page("crates/api/src/v1alpha1/phase.rs")
}

#[test]
fn the_examples_of_scheduling_are_scripts_that_are_tested() {
    let scheduling = page("docs/scheduling.md");
    for name in ["backfill", "borrowing", "bookings"] {
        let script = page(&format!("crates/core/tests/scheduler/scripts/{name}.txt"));
        assert!(scheduling.contains(script.trim_end()), "docs/scheduling.md does not show {name}.txt as it is");
    }
}
