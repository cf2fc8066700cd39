//! Security contexts: the flavor's privilege in terms of the Pod Security Standards.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};
use odc_api::v1alpha1::Privilege;

/// The uid of users in a Restricted server.
pub const USER: i64 = 1000;

pub fn pod(privilege: Privilege) -> PodSecurityContext {
    let user = match privilege {
        Privilege::Restricted => USER,
        Privilege::Sudo => 0,
    };
    PodSecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(user),
        run_as_non_root: Some(privilege == Privilege::Restricted),
        fs_group: Some(USER),
        // Avoids a recursive chown of large volumes at each start.
        fs_group_change_policy: Some("OnRootMismatch".into()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

pub fn main(privilege: Privilege) -> SecurityContext {
    match privilege {
        Privilege::Restricted => restricted(),
        Privilege::Sudo => SecurityContext { privileged: Some(false), ..SecurityContext::default() },
    }
}

pub fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        ..SecurityContext::default()
    }
}

/// Returns the context of a pod that reads files of all users. Without a group for volumes, whose files keep their group.
pub fn root_without_group() -> PodSecurityContext {
    PodSecurityContext { fs_group: None, fs_group_change_policy: None, ..pod(Privilege::Sudo) }
}

/// Returns the context of a container that reads files of all users and keeps their owner and mode. The capabilities are
/// among those that the Pod Security level `baseline` allows.
pub fn file_owner() -> SecurityContext {
    let add = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"].map(str::to_owned).to_vec();
    SecurityContext {
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: Some(add) }),
        read_only_root_filesystem: Some(true),
        ..restricted()
    }
}
