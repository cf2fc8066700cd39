//! Phases, condition types and reasons, from the documentation of their enums.

use odc_api::v1alpha1::condition::{Reason, Type};
use odc_api::v1alpha1::{DiskOperationPhase, DiskPhase, Phase};

use super::markdown::{code, start, table, wrap};

pub(super) fn page() -> String {
    let introduction = "Conditions describe the current state of an object. `kubectl wait` and programs should rely on \
        condition types and reasons; the phase of an object is a summary for people. A newer operator may store a type \
        or reason that is not listed here, so clients must accept unknown values.\n\n[Troubleshoot a \
        server](../guides/troubleshoot-a-server.md) lists what to do about each reason that keeps a server waiting.";
    let mut page = start("Phases, conditions and reasons", "crates/api", introduction);
    page.push_str("\n## Phases of a DevServer\n");
    table(&mut page, &["phase", "meaning", "may be followed by"], Phase::ALL.iter().map(|phase| phase_row(*phase)));
    page.push_str("\n## Phases of a Disk\n");
    let disk = DiskPhase::ALL.iter().map(|phase| vec![phase.as_str().into(), phase.description().into()]);
    table(&mut page, &["phase", "meaning"], disk);
    page.push_str("\n## Phases of a DiskOperation\n");
    let operation = DiskOperationPhase::ALL.iter().map(|phase| vec![phase.as_str().into(), phase.description().into()]);
    table(&mut page, &["phase", "meaning"], operation);
    page.push_str("\n## Condition types\n\n");
    page.push_str(&wrap(
        "A DevServer has those from `Accepted` to `Expiring`; a Disk has `Ready`, `InUse`, `PointsAvailable` \
         and `Resized`; a DiskOperation has `Complete`; the other kinds have `Ready`.",
    ));
    let types = Type::ALL.iter().map(|kind| vec![code(kind.as_str()), kind.description().into()]);
    table(&mut page, &["type", "true when"], types);
    page.push_str(
        "\n## Reasons\n\nConditions, `status.admission` and `status.lastFailure` share one set of reasons.\n",
    );
    let reasons = Reason::ALL.iter().map(|reason| vec![code(reason.as_str()), reason.description().into()]);
    table(&mut page, &["reason", "meaning"], reasons);
    page
}

fn phase_row(phase: Phase) -> Vec<String> {
    let next: Vec<&str> = phase.successors().iter().map(|phase| phase.as_str()).collect();
    let next = if next.is_empty() { "none (final)".to_owned() } else { next.join(", ") };
    vec![phase.as_str().into(), phase.description().into(), next]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_type_and_reason_is_described() {
        let phases = Phase::ALL.iter().map(|phase| (phase.as_str(), phase.description()));
        let types = Type::ALL.iter().map(|kind| (kind.as_str(), kind.description()));
        let reasons = Reason::ALL.iter().map(|reason| (reason.as_str(), reason.description()));
        for (name, description) in phases.chain(types).chain(reasons) {
            assert!(!description.is_empty(), "{name} has no doc comment");
        }
    }
}
