//! Checks the documentation against the code, and its form: links, languages of code blocks, line lengths.

#![expect(clippy::unwrap_used, reason = "a page that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use odc_api::v1alpha1::Phase;
use odc_api::v1alpha1::condition::Reason;
use regex::Regex;

const MAX_PROSE_WIDTH: usize = 120;

/// The command reference that `devctl` generates; its form is tested in its own crate.
const COMMAND_REFERENCE: &[&str] = &["docs/reference/cli.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every page of the repository, relative to its root.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(PathBuf::from).into();
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else if path.extension() == Some("md".as_ref()) {
                pages.push(path);
            }
        }
    }
    pages.sort();
    assert!(pages.len() > 50, "{pages:?}");
    pages
}

fn is_command_reference(page: &Path) -> bool {
    COMMAND_REFERENCE.iter().any(|name| page == Path::new(name))
}

/// A line of a page, with its number and whether it is inside a code block. Fences are not included.
fn lines(page: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut in_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        Some((index + 1, line, in_code))
    })
}

/// Returns the targets of the relative links of a page: path and fragment.
fn relative_links(page: &Path) -> Vec<(String, Option<String>)> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let text = read(page);
    let prose = lines(&text).filter(|(_, _, in_code)| !in_code).map(|(_, line, _)| line);
    let targets = prose.flat_map(|line| link.captures_iter(line).map(|found| found[1].to_owned()).collect::<Vec<_>>());
    let relative = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    let split = |target: String| match target.split_once('#') {
        Some((path, fragment)) => (path.to_owned(), Some(fragment.to_owned())),
        None => (target, None),
    };
    relative.map(split).collect()
}

/// Resolves `..` and `.` without the file system.
fn resolve(page: &Path, link: &str) -> PathBuf {
    if link.is_empty() {
        return page.to_owned();
    }
    let mut resolved = PathBuf::new();
    for component in page.parent().unwrap().join(link).components() {
        match component {
            Component::ParentDir => assert!(resolved.pop(), "{link} in {} leaves the repository", page.display()),
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved
}

/// Returns the anchors of the headings, as GitHub derives them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = read(page);
    let headings = lines(&text).filter(|(_, line, in_code)| !in_code && line.starts_with('#'));
    headings.map(|(_, line, _)| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn relative_links_resolve() {
    for page in pages() {
        for (link, fragment) in relative_links(&page) {
            let target = resolve(&page, &link);
            assert!(root().join(&target).exists(), "{} links {link}, which does not exist", page.display());
            if let Some(fragment) = fragment.filter(|_| target.extension() == Some("md".as_ref())) {
                let known = anchors(&target);
                assert!(known.contains(&fragment), "{} links {link}#{fragment}; there are {known:?}", page.display());
            }
        }
    }
}

#[test]
fn index_links_every_page() {
    let indices = ["docs/README.md", "docs/decisions/README.md"].map(Path::new);
    let linked: BTreeSet<PathBuf> = indices
        .iter()
        .flat_map(|index| relative_links(index).into_iter().map(|(link, _)| resolve(index, &link)).collect::<Vec<_>>())
        .collect();
    for page in pages().into_iter().filter(|page| page.starts_with("docs")) {
        assert!(page == indices[0] || linked.contains(&page), "docs/README.md does not link {}", page.display());
    }
}

#[test]
fn code_blocks_name_their_language() {
    let known = ["console", "sh", "yaml", "json", "text", "mermaid", "rust", "sql", "toml"];
    for page in pages().iter().filter(|page| !is_command_reference(page)) {
        let mut in_code = false;
        for (index, line) in read(page).lines().enumerate() {
            let Some(language) = line.trim_start().strip_prefix("```") else { continue };
            in_code = !in_code;
            let named = if in_code { known.contains(&language) } else { language.is_empty() };
            assert!(named, "{}:{}: {line:?}; name one of {known:?}", page.display(), index + 1);
        }
        assert!(!in_code, "{}: a code block is not closed", page.display());
    }
}

#[test]
fn prose_lines_are_short() {
    for page in pages().iter().filter(|page| !is_command_reference(page)) {
        let text = read(page);
        for (number, line, in_code) in lines(&text) {
            let is_prose = !in_code && !line.starts_with('|') && !line.starts_with("<!--");
            let width = line.chars().count();
            assert!(!is_prose || width <= MAX_PROSE_WIDTH, "{}:{number}: {width} characters", page.display());
        }
    }
}

const LIFECYCLE: &str = "docs/concepts/dev-server-lifecycle.md";

#[test]
fn phase_table_lists_every_transition() {
    let page = read(LIFECYCLE);
    for phase in Phase::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| {phase} |")));
        let row = row.unwrap_or_else(|| panic!("{phase} is not in the table of {LIFECYCLE}"));
        let next: Vec<&str> = phase.successors().iter().map(|phase| phase.as_str()).collect();
        let next = if next.is_empty() { "nothing".to_owned() } else { next.join(", ") };
        assert!(row.ends_with(&format!("| {next} |")), "{phase} may be followed by {next}: {row}");
    }
}

/// Transitions that the diagram leaves out, grouped as in the text below it.
const NOT_DRAWN: &[(Phase, Phase)] = &[
    // A server without an image build.
    (Phase::Pending, Phase::Queued),
    // A server without pods is cancelled without Stopping.
    (Phase::Pending, Phase::Cancelled),
    (Phase::Building, Phase::Cancelled),
    (Phase::Queued, Phase::Cancelled),
    (Phase::Hibernated, Phase::Cancelled),
    // A server that lost its node, pod or admission, or was woken while it hibernated.
    (Phase::Starting, Phase::Queued),
    (Phase::Running, Phase::Queued),
    (Phase::Running, Phase::Starting),
    (Phase::Hibernating, Phase::Queued),
    // Hibernation before the start.
    (Phase::Pending, Phase::Hibernated),
    (Phase::Building, Phase::Hibernated),
    (Phase::Queued, Phase::Hibernated),
    // Stop or hibernation at any time.
    (Phase::Starting, Phase::Hibernating),
    (Phase::Starting, Phase::Stopping),
    (Phase::Hibernating, Phase::Stopping),
    (Phase::Hibernated, Phase::Stopping),
    // A failure while stopping.
    (Phase::Stopping, Phase::Failed),
];

#[test]
fn phase_diagram_draws_every_phase_and_only_valid_transitions() {
    let drawn = mermaid_transitions(&read(LIFECYCLE));
    let is_drawn = |phase: &Phase| drawn.iter().any(|(from, to)| from == phase || to == phase);
    let missing: Vec<&Phase> = Phase::ALL.iter().filter(|phase| !is_drawn(phase)).collect();
    assert!(missing.is_empty(), "{missing:?} are not drawn");
    let all = Phase::ALL.iter().flat_map(|from| from.successors().iter().map(|to| (*from, *to)));
    let mut all: Vec<(Phase, Phase)> = all.collect();
    let mut documented: Vec<(Phase, Phase)> = drawn.iter().chain(NOT_DRAWN).copied().collect();
    let order = |(from, to): &(Phase, Phase)| (from.as_str(), to.as_str());
    all.sort_by_key(order);
    documented.sort_by_key(order);
    assert_eq!(documented, all);
}

#[test]
fn phase_diagram_marks_initial_and_final_phases() {
    let page = read(LIFECYCLE);
    assert!(page.contains("    [*] --> Pending\n"));
    for phase in Phase::ALL {
        assert_eq!(page.contains(&format!("    {phase} --> [*]\n")), phase.successors().is_empty(), "{phase}");
    }
}

/// Returns the transitions of a Mermaid state diagram, without those from the start and to the end.
fn mermaid_transitions(page: &str) -> Vec<(Phase, Phase)> {
    let arrows = page.lines().filter_map(|line| line.trim().split_once(" --> "));
    arrows.filter(|(from, to)| *from != "[*]" && *to != "[*]").map(|(from, to)| (phase(from), phase(to))).collect()
}

fn phase(name: &str) -> Phase {
    *Phase::ALL.iter().find(|phase| phase.as_str() == name).unwrap_or_else(|| panic!("{name:?} is not a phase"))
}

#[test]
fn diagram_of_the_source_is_the_diagram_of_the_page() {
    let source = read("crates/api/src/v1alpha1/phase.rs");
    let diagram = source.lines().filter_map(|line| line.strip_prefix("//! "));
    let diagram: Vec<Vec<char>> =
        diagram.skip_while(|line| !line.contains('►')).take(3).map(|line| line.chars().collect()).collect();
    let order = |(from, to): &(Phase, Phase)| (from.as_str(), to.as_str());
    let mut in_source = ascii_transitions(&diagram);
    let mut on_page = mermaid_transitions(&read(LIFECYCLE));
    in_source.sort_by_key(order);
    on_page.sort_by_key(order);
    assert_eq!(in_source, on_page);
}

/// Returns source and target of every arrow of a diagram that is drawn with box characters.
fn ascii_transitions(lines: &[Vec<char>]) -> Vec<(Phase, Phase)> {
    let mut transitions = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        for (column, _) in line.iter().enumerate().filter(|(_, letter)| **letter == '►') {
            let rest: String = line[column + 1..].iter().take_while(|letter| **letter != '─').collect();
            let targets = rest.split('|').map(|name| phase(name.trim_matches([' ', '…'])));
            let mut sources = Vec::new();
            trace_back(lines, row, column - 1, &mut sources);
            for to in targets {
                transitions.extend(sources.iter().map(|from| (*from, to)));
            }
        }
    }
    transitions
}

/// Follows a line back to the names at which it begins: lines go right and down.
fn trace_back(lines: &[Vec<char>], row: usize, column: usize, sources: &mut Vec<Phase>) {
    let letter = lines[row][column];
    if "─┬┴".contains(letter) {
        trace_back(lines, row, column - 1, sources);
    }
    if "│├┴└".contains(letter) {
        trace_back(lines, row - 1, column, sources);
    }
    if letter == ' ' {
        sources.push(name_at(&lines[row], column - 1));
    } else if letter.is_ascii_alphabetic() {
        sources.push(name_at(&lines[row], column));
    }
}

fn name_at(line: &[char], column: usize) -> Phase {
    let is_letter = |at: &usize| line.get(*at).is_some_and(char::is_ascii_alphabetic);
    let start = (0..=column).rev().take_while(is_letter).last().unwrap();
    phase(&(start..line.len()).take_while(is_letter).map(|at| line[at]).collect::<String>())
}

const TROUBLESHOOTING: &str = "docs/guides/troubleshoot-a-server.md";

#[test]
fn troubleshooting_page_covers_every_reason_of_a_pending_server() {
    let page = read(TROUBLESHOOTING);
    let rows: Vec<Vec<&str>> =
        page.lines().filter_map(|line| Some(line.strip_prefix('|')?.split('|').collect())).collect();
    for reason in Reason::ALL {
        let name = format!("`{reason}`");
        let mut documented = rows.iter().filter(|cells| cells.first().is_some_and(|cell| cell.contains(&name)));
        let row = documented.next();
        assert_eq!(row.is_some(), is_pending_reason(*reason), "{reason}: {row:?}");
        let Some(cells) = row else { continue };
        assert_eq!(cells.len(), 4, "{cells:?}");
        let is_complete = cells[..2].iter().all(|cell| !cell.trim().is_empty());
        assert!(is_complete && (is_reserved(*reason) || !cells[2].trim().is_empty()), "{cells:?}");
        assert!(documented.next().is_none(), "{reason} has several rows");
    }
}

/// Reports whether no part of ODC sets the reason yet.
fn is_reserved(reason: Reason) -> bool {
    matches!(reason, Reason::Building | Reason::BuildNotFound | Reason::BuildFailed)
}

/// Reports whether a server that waits to start can have this reason. A new reason has to be put on one side.
fn is_pending_reason(reason: Reason) -> bool {
    match reason {
        Reason::FlavorNotFound
        | Reason::NoDefaultFlavor
        | Reason::MultipleDefaultFlavors
        | Reason::InvalidCount
        | Reason::NotTeamMember
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
        | Reason::Reserved
        | Reason::Fragmented
        | Reason::Unsatisfiable
        | Reason::Unschedulable
        | Reason::Preempted
        | Reason::PodTerminationBlocked
        | Reason::WriteFailed
        | Reason::NodeLost => true,
        Reason::Valid
        | Reason::ImageAvailable
        | Reason::Bound
        | Reason::WaitingForFirstConsumer
        | Reason::Ephemeral
        | Reason::Admitted
        | Reason::Running
        | Reason::Starting
        | Reason::PodEvicted
        | Reason::Restarting
        | Reason::HibernatedByUser
        | Reason::HibernatedByIdleness
        | Reason::HibernatedByDrain
        | Reason::Stopping
        | Reason::Active
        | Reason::Idle
        | Reason::IdleDetectionDisabled
        | Reason::AgentUnreachable
        | Reason::LifetimeRemaining
        | Reason::ExpiringSoon
        | Reason::LifetimeExceeded
        | Reason::Ended
        | Reason::QueueTimeout
        | Reason::ImageNotFound
        | Reason::ImageDenied
        | Reason::CrashLoop
        | Reason::SecretMissing
        | Reason::NameConflict
        | Reason::StartTimeout
        | Reason::OutOfMemory
        | Reason::PreStopFailed
        | Reason::DataNotSynced
        | Reason::Reconciled
        | Reason::NoNodes
        | Reason::NamespaceConflict
        | Reason::Incomplete
        | Reason::MemberNotFound
        | Reason::NotProvisioned
        | Reason::Provisioning
        | Reason::Deleted
        | Reason::Deleting
        | Reason::SourceUnavailable
        | Reason::SizeTooSmall
        | Reason::Resized
        | Reason::Resizing
        | Reason::ExpansionUnsupported
        | Reason::ClaimAmbiguous
        | Reason::Held
        | Reason::Releasing
        | Reason::Released
        | Reason::HolderStuck
        | Reason::Available
        | Reason::SnapshotsUnsupported
        | Reason::SnapshotFailed
        | Reason::OperationPending
        | Reason::OperationRunning
        | Reason::Succeeded
        | Reason::PointUnavailable
        | Reason::TooManyPoints
        | Reason::TooManyRollbacks
        | Reason::TooManyBrowseOperations
        | Reason::PodFailed
        | Reason::OperationTimeout => false,
    }
}

/// Words in the first column of the glossary's table of banned words are code spans, one per row: a test reads them.
#[test]
fn banned_words_have_a_replacement_each() {
    let page = read("docs/contributing/glossary.md");
    let section = page.split("\n## Banned words\n").nth(1).unwrap();
    let row = Regex::new(r"^\| `([a-z ]+)` \| [^|]+ \|$").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() > 20, "{rows:?}");
    let malformed: Vec<&&str> = rows.iter().filter(|line| !row.is_match(line)).collect();
    assert!(malformed.is_empty(), "{malformed:?}");
    let words: BTreeSet<String> = rows.iter().map(|line| row.captures(line).unwrap()[1].to_owned()).collect();
    assert_eq!(words.len(), rows.len(), "a word is listed twice");
}
