//! What the documentation says about the code, compared with the code.

#![expect(clippy::unwrap_used, reason = "a page that cannot be read fails the test")]

use std::path::Path;

use odc_api::v1alpha1::Phase;
use odc_api::v1alpha1::condition::Reason;

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
fn the_page_about_the_queue_has_every_reason_to_wait() {
    let page = page("docs/scheduling.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter_map(|line| Some(line.strip_prefix('|')?.split('|').collect())).collect();
    for reason in Reason::ALL {
        let word = format!("`{reason}`");
        let about: Vec<_> =
            rows.iter().filter(|cells| cells.first().is_some_and(|cell| cell.contains(&word))).collect();
        assert_eq!(about.is_empty(), !is_to_wait(*reason), "{reason}: {about:?}");
        // The reason, what it says, what to do.
        let whole = |cells: &&Vec<&str>| cells.len() == 4 && cells[..3].iter().all(|cell| !cell.trim().is_empty());
        assert!(about.iter().copied().all(|cells| whole(&cells)), "{about:?}");
    }
}

/// Whether a server can have this reason while it waits to start. A new reason has to be put on one side.
fn is_to_wait(reason: Reason) -> bool {
    match reason {
        Reason::UnknownFlavor
        | Reason::NoDefaultFlavor
        | Reason::SeveralDefaultFlavors
        | Reason::CountNotAllowed
        | Reason::NotATeamMember
        | Reason::PriorityTooHigh
        | Reason::Maintenance
        | Reason::NotSupported
        | Reason::NoOwner
        | Reason::Invalid
        | Reason::Building
        | Reason::BuildNotFound
        | Reason::BuildFailed
        | Reason::DiskNotFound
        | Reason::DiskPending
        | Reason::DiskInUse
        | Reason::DiskUnavailable
        | Reason::NotQueued
        | Reason::Booked
        | Reason::QuotaExceeded
        | Reason::InsufficientCapacity
        | Reason::Fragmented
        | Reason::Unsatisfiable
        | Reason::Unschedulable
        | Reason::Preempted
        | Reason::NodeLost => true,
        Reason::Valid
        | Reason::ImageAvailable
        | Reason::Bound
        | Reason::WaitingForFirstConsumer
        | Reason::Ephemeral
        | Reason::Granted
        | Reason::Running
        | Reason::Starting
        | Reason::PodGone
        | Reason::Restarting
        | Reason::HibernatedByUser
        | Reason::HibernatedByIdleness
        | Reason::HibernatedByDrain
        | Reason::Stopping
        | Reason::Active
        | Reason::NobodyThere
        | Reason::NotWatched
        | Reason::AgentUnreachable
        | Reason::TimeLeft
        | Reason::EndsSoon
        | Reason::LifetimeUsedUp
        | Reason::Ended
        | Reason::ImageNotFound
        | Reason::ImageDenied
        | Reason::DiesAtStart
        | Reason::SecretMissing
        | Reason::NameTaken
        | Reason::StartTimeout
        | Reason::OutOfMemory
        | Reason::PreStopFailed
        | Reason::NotWritten
        | Reason::Reconciled
        | Reason::NoNodes
        | Reason::Incomplete
        | Reason::NamespaceTaken
        | Reason::UnknownMember => false,
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
    for name in ["backfill", "borrowing", "bookings", "on-request"] {
        let script = page(&format!("crates/core/tests/scheduler/scripts/{name}.txt"));
        assert!(scheduling.contains(script.trim_end()), "docs/scheduling.md does not show {name}.txt as it is");
    }
}
