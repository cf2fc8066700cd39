//! What can go wrong while reading or writing, and what follows from it.

use odc_core::object::Kind;

/// One enum for all drivers: every one of them only reads, asks `odc-core` and writes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{verb} {kind} {name}", kind = kind.as_str())]
    Write { verb: &'static str, kind: Kind, name: String, source: Box<kube::Error> },
    #[error("reading {kind} {name}", kind = kind.as_str())]
    Read { kind: Kind, name: String, source: Box<kube::Error> },
    #[error("writing the status of {kind} {name}")]
    Status { kind: &'static str, name: String, source: Box<kube::Error> },
    #[error("{kind} {name} exists and is not ours", kind = kind.as_str())]
    Foreign { kind: Kind, name: String },
    #[error("asking for the entrypoint of {image}: {reason}")]
    Registry { image: String, reason: String },
    #[error("deciding panicked: {0}")]
    Panicked(String),
    #[error("this process leads no more")]
    NotLeading,
    #[error("{what} cannot be read: {reason}")]
    Malformed { what: String, reason: String },
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Wait for a change.
    Invalid,
    /// Back off and try again.
    Transient,
    /// Somebody was faster: look again at once, without a word.
    Conflict,
    /// Back off and say so: we should not have asked for this.
    Bug,
}

impl Class {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::Bug => "bug",
        }
    }
}

impl Error {
    pub fn class(&self) -> Class {
        match self {
            Self::Write { source, .. } | Self::Status { source, .. } | Self::Read { source, .. } => of(source),
            Self::Registry { .. } | Self::NotLeading | Self::Foreign { .. } => Class::Transient,
            Self::Malformed { .. } => Class::Invalid,
            Self::Panicked(_) => Class::Bug,
        }
    }
}

impl Error {
    /// Whether what was to be written may be stored all the same: no answer came, or one that does not say.
    pub fn may_have_been_stored(&self) -> bool {
        match self {
            Self::Write { source, .. } | Self::Status { source, .. } => code(source).is_none_or(|code| code >= 500),
            Self::Read { .. }
            | Self::Foreign { .. }
            | Self::Registry { .. }
            | Self::Panicked(_)
            | Self::NotLeading
            | Self::Malformed { .. } => false,
        }
    }

    /// What the API server said, if it refused a write by what is in it. It would refuse the same again, until the object or
    /// a rule of the cluster is another one. Who we are, how busy it is and who was faster is nothing of that kind.
    pub fn refusal(&self) -> Option<&str> {
        let (Self::Write { source, .. } | Self::Status { source, .. }) = self else { return None };
        match &**source {
            kube::Error::Api(status) => match status.code {
                401 | 404 | 408 | 409 | 429 => None,
                403 if is_about_us(&status.message) => None,
                400..=499 => Some(&status.message),
                _ => None,
            },
            _ => None,
        }
    }

    /// For the owner of a server, who knows nothing of our requests.
    pub fn sentence(&self) -> String {
        match self {
            Self::Write { kind, name, source, .. } | Self::Read { kind, name, source } => {
                format!("{} {name} cannot be had, and is tried again: {}", kind.as_str(), words(source))
            }
            Self::Registry { image, reason } => {
                format!("The registry of {image} cannot be asked what the image runs, and is asked again: {reason}")
            }
            other => format!("It cannot go on at the moment, and is tried again: {other}"),
        }
    }
}

/// What the API server said, without our own trimmings.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether it says that we have no right to do this, as while our rights are applied again or the API server begins anew.
/// Webhooks and quotas answer with the same code and are about what was written.
fn is_about_us(said: &str) -> bool {
    said.contains("forbidden: User \"") && said.contains(" cannot ")
}

fn of(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => Class::Conflict,
            // 403: rights that are just being given, or a rule that may change; 404: a namespace that goes or is not there yet.
            403 | 404 | 408 | 429 | 500..=599 => Class::Transient,
            _ => Class::Bug,
        },
        _ => Class::Transient,
    }
}

pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_about_what_was_written_is_a_refusal() {
        let said = |code: u16, message: &str| {
            let status = kube::core::Status { code, message: message.into(), ..kube::core::Status::default() };
            Error::Status {
                kind: "DevServer",
                name: "box".into(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            }
        };
        let answered = |code| said(code, "no");
        for code in [400, 403, 413, 422] {
            assert_eq!(answered(code).refusal(), Some("no"), "{code}");
        }
        for code in [401, 404, 408, 409, 429, 500, 503] {
            assert_eq!(answered(code).refusal(), None, "{code}");
        }
        assert_eq!(Error::NotLeading.refusal(), None);
        let this = r#"devservers.odc.dev "box" is forbidden: "#;
        for (words, refused) in [
            (
                r#"User "system:serviceaccount:odc:odc" cannot patch resource "devservers/status" in API group "odc.dev""#,
                false,
            ),
            (r#"User "system:serviceaccount:odc:odc" cannot patch resource "devservers": RBAC: role not found"#, false),
            ("ValidatingAdmissionPolicy 'hours' with binding 'hours' denied request: not at night", true),
            ("exceeded quota: servers, requested: 1, used: 4, limited: 4", true),
        ] {
            assert_eq!(said(403, &format!("{this}{words}")).refusal().is_some(), refused, "{words}");
        }
        let webhook = r#"admission webhook "hours.example.com" denied the request: User "ada" cannot have it now"#;
        assert_eq!(said(403, webhook).refusal(), Some(webhook));
    }
}
