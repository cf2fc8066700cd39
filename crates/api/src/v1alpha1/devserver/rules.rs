//! Rules of a server that no single field can hold.

use kube::core::{Reason, Rule};

use crate::name::{LETTER_LABEL, ServerName};
use crate::rule;

/// [`crate::v1alpha1::Phase::terminal`], for the API server.
const HAD_ENDED: &str = "has(oldSelf.status) && has(oldSelf.status.phase) \
                         && oldSelf.status.phase in ['Expired', 'Cancelled', 'Failed']";

pub(super) fn name() -> Rule {
    rule::name(
        LETTER_LABEL,
        ServerName::LONGEST,
        "a server's name is part of host names: use at most 46 small letters, digits and '-', \
         begin with a letter, and do not end with '-'",
    )
}

/// Together with [`ended_phase`]: of an extension and an expiry at the same instant one wins, and nothing revives a
/// server that has ended.
pub(super) fn ended_spec() -> Rule {
    Rule::new(format!("!({HAD_ENDED}) || self.spec == oldSelf.spec"))
        .message(
            "this server has ended and can no longer change; create a new one \
             (devctl create replaces an ended one of the same name)",
        )
        .field_path(".spec")
        .reason(Reason::FieldValueForbidden)
}

pub(super) fn ended_phase() -> Rule {
    let same = "has(self.status) && has(self.status.phase) && self.status.phase == oldSelf.status.phase";
    Rule::new(format!("!({HAD_ENDED}) || ({same})"))
        .message("this server has ended; its phase is final")
        .field_path(".status.phase")
        .reason(Reason::FieldValueForbidden)
}

/// The other half of "one winner": whoever extends a server before its stop began keeps it, whoever comes later is told.
pub(super) fn stopping_lifetime() -> Rule {
    let stopping = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Stopping'";
    Rule::new(format!("!({stopping}) || duration(self.spec.lifetime) == duration(oldSelf.spec.lifetime)"))
        .message("this server is being stopped and can no longer be extended; create a new one")
        .field_path(".spec.lifetime")
        .reason(Reason::FieldValueForbidden)
}

/// Ending is final from the word, not only from the deed: a stop under way is never turned round.
pub(super) fn ending() -> Rule {
    Rule::new("oldSelf.desired != 'Ended' || self.desired == 'Ended'")
        .message("this server was told to end and cannot be called back; create a new one")
        .field_path(".desired")
        .reason(Reason::FieldValueForbidden)
}

pub(super) fn ephemeral_does_not_hibernate_when_idle() -> Rule {
    Rule::new("!has(self.home.ephemeral) || self.idle.action != 'Hibernate'")
        .message(
            "an ephemeral home is gone with its pod, so this server cannot hibernate: \
             set idle.action to End or None, or give it a home.disk",
        )
        .field_path(".idle.action")
}

pub(super) fn ephemeral_does_not_hibernate_when_told() -> Rule {
    Rule::new("!has(self.home.ephemeral) || self.desired != 'Hibernated'")
        .message(
            "an ephemeral home is gone with its pod, so this server cannot hibernate: \
             set desired to Running or Ended, or give it a home.disk",
        )
        .field_path(".desired")
}

pub(super) fn shared_with_a_team() -> Rule {
    let private = "!has(self.access.ports) || self.access.ports.all(port, port.share != 'Team')";
    Rule::new(format!("has(self.team) || {private}"))
        .message(
            "a port can be shared with the Team only on a server that has one: \
             set team, or share it as Private or Public",
        )
        .field_path(".access.ports")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1alpha1::Phase;

    #[test]
    fn the_terminal_phases_are_all_there() {
        let terminal = Phase::ALL.iter().filter(|phase| phase.terminal()).map(|phase| format!("'{phase}'"));
        assert!(HAD_ENDED.ends_with(&format!("[{}]", terminal.collect::<Vec<_>>().join(", "))));
    }
}
