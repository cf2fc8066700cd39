//! Rules of a server that involve several fields.

use kube::core::{Reason, Rule};

use crate::name::{LETTER_LABEL, ServerName};
use crate::rule;

/// [`crate::v1alpha1::Phase::is_terminal`], for the API server.
const HAS_ENDED: &str = "has(oldSelf.status) && has(oldSelf.status.phase) \
                         && oldSelf.status.phase in ['Expired', 'Cancelled', 'Failed']";

pub(super) fn name() -> Rule {
    rule::name(
        LETTER_LABEL,
        ServerName::MAX_LENGTH,
        "the name of a server must be a DNS label: at most 46 lower case letters, digits and '-', \
         starting with a letter and ending with a letter or digit",
    )
}

/// Makes the spec of an ended server immutable. With [`ended_phase`], exactly one of a concurrent extension and expiry is
/// stored, and an ended server cannot be restarted.
pub(super) fn ended_spec() -> Rule {
    Rule::new(format!("!({HAS_ENDED}) || self.spec == oldSelf.spec"))
        .message(
            "the server has ended and is immutable; create a new one \
             (devctl create replaces an ended server of the same name)",
        )
        .field_path(".spec")
        .reason(Reason::FieldValueForbidden)
}

pub(super) fn ended_phase() -> Rule {
    let same = "has(self.status) && has(self.status.phase) && self.status.phase == oldSelf.status.phase";
    Rule::new(format!("!({HAS_ENDED}) || ({same})"))
        .message("the server has ended; its phase is final")
        .field_path(".status.phase")
        .reason(Reason::FieldValueForbidden)
}

/// Accepts an extension until the stop has started and rejects it afterwards.
pub(super) fn stopping_lifetime() -> Rule {
    let stopping = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Stopping'";
    Rule::new(format!("!({stopping}) || duration(self.spec.lifetime) == duration(oldSelf.spec.lifetime)"))
        .message("the server is being stopped and cannot be extended; create a new one")
        .field_path(".spec.lifetime")
        .reason(Reason::FieldValueForbidden)
}

/// Makes `desired: Ended` final, so that a stop is never reverted.
pub(super) fn ending() -> Rule {
    Rule::new("oldSelf.desired != 'Ended' || self.desired == 'Ended'")
        .message("desired: Ended is final; create a new server")
        .field_path(".desired")
        .reason(Reason::FieldValueForbidden)
}

pub(super) fn ephemeral_is_not_hibernated_when_idle() -> Rule {
    Rule::new("!has(self.home.ephemeral) || self.idle.action != 'Hibernate'")
        .message(
            "a server with an ephemeral home cannot be hibernated; \
             set idle.action to End or None, or use home.claim",
        )
        .field_path(".idle.action")
}

pub(super) fn ephemeral_is_not_hibernated() -> Rule {
    Rule::new("!has(self.home.ephemeral) || self.desired != 'Hibernated'")
        .message(
            "a server with an ephemeral home cannot be hibernated; \
             set desired to Running or Ended, or use home.claim",
        )
        .field_path(".desired")
}

pub(super) fn team_port_requires_team() -> Rule {
    let private = "!has(self.access.ports) || self.access.ports.all(port, port.share != 'Team')";
    Rule::new(format!("has(self.team) || {private}"))
        .message(
            "share: Team requires spec.team; \
             set team, or share the port as Private or Public",
        )
        .field_path(".access.ports")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1alpha1::Phase;

    #[test]
    fn rule_lists_all_terminal_phases() {
        let terminal = Phase::ALL.iter().filter(|phase| phase.is_terminal()).map(|phase| format!("'{phase}'"));
        assert!(HAS_ENDED.ends_with(&format!("[{}]", terminal.collect::<Vec<_>>().join(", "))));
    }
}
