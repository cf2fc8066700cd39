//! The errors of controllers and their classes.

use odc_core::manifest::Kind;

/// One enum for all controllers: each of them only reads, calls `odc-core` and writes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{verb} {kind} {name}", kind = kind.as_str())]
    Write { verb: &'static str, kind: Kind, name: String, source: Box<kube::Error> },
    #[error("reading {kind} {name}")]
    Read { kind: &'static str, name: String, source: Box<kube::Error> },
    #[error("writing the status of {kind} {name}")]
    Status { kind: &'static str, name: String, source: Box<kube::Error> },
    #[error("{kind} {name} already exists and is not owned by this object", kind = kind.as_str())]
    Foreign { kind: Kind, name: String },
    #[error("reading the entrypoint of image {image}: {reason}")]
    Registry { image: String, reason: String },
    #[error("reconciliation panicked: {0}")]
    Panicked(String),
    #[error("this process is no longer leader")]
    NotLeader,
    #[error("internal error: {0}")]
    Internal(String),
    #[error("invalid {subject}: {reason}")]
    Malformed { subject: String, reason: String },
}

/// How an error is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Wait for a change.
    Invalid,
    /// Retry with backoff.
    Transient,
    /// The object was modified concurrently: retry at once, without logging.
    Conflict,
    /// A fault of the operator: retry with backoff and log an error.
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
            Self::Write { source, .. } | Self::Status { source, .. } | Self::Read { source, .. } => classify(source),
            Self::Registry { .. } | Self::NotLeader | Self::Foreign { .. } => Class::Transient,
            Self::Malformed { .. } => Class::Invalid,
            Self::Panicked(_) | Self::Internal(_) => Class::Bug,
        }
    }

    /// Reports whether the write may have been stored although it failed: there was no response, or an ambiguous one.
    pub fn may_have_been_stored(&self) -> bool {
        match self {
            Self::Write { source, .. } | Self::Status { source, .. } => code(source).is_none_or(|code| code >= 500),
            Self::Read { .. }
            | Self::Foreign { .. }
            | Self::Registry { .. }
            | Self::Panicked(_)
            | Self::Internal(_)
            | Self::NotLeader
            | Self::Malformed { .. } => false,
        }
    }

    /// Returns the message of the API server if it rejected a write because of its content. The same write fails again
    /// until the object or an admission rule changes. Errors about authorization, load and conflicts are not
    /// rejections.
    pub fn rejection(&self) -> Option<&str> {
        let (Self::Write { source, .. } | Self::Status { source, .. }) = self else { return None };
        match &**source {
            kube::Error::Api(status) => match status.code {
                401 | 404 | 408 | 409 | 429 => None,
                403 if is_authorization_error(&status.message) => None,
                400..=499 => Some(&status.message),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a message for the owner of a server.
    pub fn user_message(&self) -> String {
        match self {
            Self::Write { source, .. } | Self::Read { source, .. } => {
                format!("{} failed, retrying: {}", capitalize(&self.to_string()), api_message(source))
            }
            Self::Registry { image, reason } => {
                format!("Failed to read the entrypoint of image {image} from its registry, retrying: {reason}")
            }
            other => format!("Reconciliation failed, retrying: {other}"),
        }
    }
}

/// Returns the error with its causes, because log lines of structured loggers contain only the error itself.
pub fn format_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Returns the message of the API server without kube's prefix.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Reports whether a 403 is from RBAC, as while roles are being applied or the API server starts. Webhooks and quotas
/// use the same code for the content of a request.
fn is_authorization_error(message: &str) -> bool {
    message.contains("forbidden: User \"") && message.contains(" cannot ")
}

fn classify(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => Class::Conflict,
            // 403: roles or rules that may change; 404: a namespace that is terminating or not created yet.
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
    fn user_message_names_the_failed_request() {
        let status = kube::core::Status { code: 403, message: "no".into(), ..kube::core::Status::default() };
        let source = || Box::new(kube::Error::Api(Box::new(status.clone())));
        let write = Error::Write { verb: "deleting", kind: Kind::Pod, name: "a-0".into(), source: source() };
        assert_eq!(write.user_message(), "Deleting Pod a-0 failed, retrying: no");
        let read = Error::Read { kind: "DevServerUser", name: "ada".into(), source: source() };
        assert_eq!(read.user_message(), "Reading DevServerUser ada failed, retrying: no");
    }

    #[test]
    fn only_errors_about_the_content_are_rejections() {
        let status_error = |code: u16, message: &str| {
            let status = kube::core::Status { code, message: message.into(), ..kube::core::Status::default() };
            Error::Status {
                kind: "DevServer",
                name: "box".into(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            }
        };
        let error = |code| status_error(code, "no");
        for code in [400, 403, 413, 422] {
            assert_eq!(error(code).rejection(), Some("no"), "{code}");
        }
        for code in [401, 404, 408, 409, 429, 500, 503] {
            assert_eq!(error(code).rejection(), None, "{code}");
        }
        assert_eq!(Error::NotLeader.rejection(), None);
        let prefix = r#"devservers.odc.dev "box" is forbidden: "#;
        for (message, rejected) in [
            (
                r#"User "system:serviceaccount:odc:odc" cannot patch resource "devservers/status" in API group "odc.dev""#,
                false,
            ),
            (r#"User "system:serviceaccount:odc:odc" cannot patch resource "devservers": RBAC: role not found"#, false),
            ("ValidatingAdmissionPolicy 'hours' with binding 'hours' denied request: not at night", true),
            ("exceeded quota: servers, requested: 1, used: 4, limited: 4", true),
        ] {
            let error = status_error(403, &format!("{prefix}{message}"));
            assert_eq!(error.rejection().is_some(), rejected, "{message}");
        }
        let webhook = r#"admission webhook "hours.example.com" denied the request: User "ada" cannot have it now"#;
        assert_eq!(status_error(403, webhook).rejection(), Some(webhook));
    }
}
