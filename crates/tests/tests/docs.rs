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
        | Reason::PodHeld
        | Reason::Incomplete
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
        | Reason::QueuedTooLong
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

/// Steps that would make the drawing unreadable, by what the words below it say of them.
const NOT_DRAWN: &[(Phase, Phase)] = &[
    // An image that needs no build.
    (Phase::Pending, Phase::Queued),
    // What has no pod ends without Stopping.
    (Phase::Pending, Phase::Cancelled),
    (Phase::Building, Phase::Cancelled),
    (Phase::Queued, Phase::Cancelled),
    (Phase::Hibernated, Phase::Cancelled),
    // It lost its node, its pod or its place, or was woken while it fell asleep.
    (Phase::Starting, Phase::Queued),
    (Phase::Running, Phase::Queued),
    (Phase::Running, Phase::Starting),
    (Phase::Hibernating, Phase::Queued),
    // Hibernation before the start.
    (Phase::Pending, Phase::Hibernated),
    (Phase::Building, Phase::Hibernated),
    (Phase::Queued, Phase::Hibernated),
    // Stopped or put to sleep on the way.
    (Phase::Starting, Phase::Hibernating),
    (Phase::Starting, Phase::Stopping),
    (Phase::Hibernating, Phase::Stopping),
    (Phase::Hibernated, Phase::Stopping),
    // Something went wrong while it stopped.
    (Phase::Stopping, Phase::Failed),
];

#[test]
fn the_diagram_draws_every_phase_and_only_steps_there_are() {
    let page = page("docs/devserver.md");
    let lines: Vec<Vec<char>> =
        page.lines().skip_while(|line| !line.contains("─►")).take(3).map(|line| line.chars().collect()).collect();
    let drawn = drawn_steps(&lines);
    let shown = |phase: &Phase| drawn.iter().any(|(from, to)| from == phase || to == phase);
    let missing: Vec<&Phase> = Phase::ALL.iter().filter(|phase| !shown(phase)).collect();
    assert!(missing.is_empty(), "{missing:?} are not drawn");
    let all = Phase::ALL.iter().flat_map(|from| from.successors().iter().map(|to| (*from, *to)));
    let mut all: Vec<(Phase, Phase)> = all.collect();
    let mut told: Vec<(Phase, Phase)> = drawn.iter().chain(NOT_DRAWN).copied().collect();
    let order = |(from, to): &(Phase, Phase)| (from.as_str(), to.as_str());
    all.sort_by_key(order);
    told.sort_by_key(order);
    assert_eq!(told, all);
}

/// From whom each arrow comes and to whom it goes.
fn drawn_steps(lines: &[Vec<char>]) -> Vec<(Phase, Phase)> {
    let mut steps = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        for (column, _) in line.iter().enumerate().filter(|(_, letter)| **letter == '►') {
            let rest: String = line[column + 1..].iter().take_while(|letter| **letter != '─').collect();
            let targets = rest.split('|').map(|word| phase(word.trim_matches([' ', '…'])));
            let mut sources = Vec::new();
            trace(lines, row, column - 1, &mut sources);
            for to in targets {
                steps.extend(sources.iter().map(|from| (*from, to)));
            }
        }
    }
    steps
}

/// Follows a line back to the words it begins at: lines go to the right and down.
fn trace(lines: &[Vec<char>], row: usize, column: usize, sources: &mut Vec<Phase>) {
    let letter = lines[row][column];
    if "─┬┴".contains(letter) {
        trace(lines, row, column - 1, sources);
    }
    if "│├┴└".contains(letter) {
        trace(lines, row - 1, column, sources);
    }
    if letter == ' ' {
        sources.push(word_at(&lines[row], column - 1));
    } else if letter.is_ascii_alphabetic() {
        sources.push(word_at(&lines[row], column));
    }
}

fn word_at(line: &[char], column: usize) -> Phase {
    let is_letter = |at: &usize| line.get(*at).is_some_and(char::is_ascii_alphabetic);
    let start = (0..=column).rev().take_while(is_letter).last().unwrap();
    phase(&(start..line.len()).take_while(is_letter).map(|at| line[at]).collect::<String>())
}

fn phase(word: &str) -> Phase {
    *Phase::ALL.iter().find(|phase| phase.as_str() == word).unwrap_or_else(|| panic!("{word:?} is no phase"))
}

#[test]
fn the_page_for_administrators_has_every_setting() {
    let page = page("docs/operate.md");
    let config = self::page("crates/operator/src/config.rs");
    let named: Vec<&str> = config.split("env = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(named.len() > 15, "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/operate.md does not tell of {missing:?}");
}

fn page_of_phase() -> String {
    page("crates/api/src/v1alpha1/phase.rs")
}

#[test]
fn the_examples_of_scheduling_are_scripts_that_are_tested() {
    let scheduling = page("docs/scheduling.md");
    for name in ["backfill", "borrowing", "bookings", "on-request"] {
        let script = page(&format!("crates/core/tests/sim/{name}.txt"));
        assert!(scheduling.contains(script.trim_end()), "docs/scheduling.md does not show {name}.txt as it is");
    }
}
