//! The error type of all commands: an exit code, a message and a hint.

use std::fmt;
use std::process::ExitCode;

/// The class of an error; it alone decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1: the operation failed.
    Failed,
    /// 2: invalid usage.
    Usage,
    /// 3: the object does not exist.
    NotFound,
    /// 4: permission denied.
    Denied,
    /// 5: conflicts with the current state.
    Conflict,
    /// 6: timed out.
    Timeout,
    /// 130: interrupted, such as by Ctrl-C.
    Interrupted,
    /// The exit status of a command that ran in a server.
    Remote(u8),
    /// 0: the reader of standard output closed the pipe.
    ClosedPipe,
}

impl Kind {
    pub const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Denied => 4,
            Self::Conflict => 5,
            Self::Timeout => 6,
            Self::Interrupted => 130,
            Self::Remote(code) => code,
            Self::ClosedPipe => 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    /// What failed, without a full stop. Empty if the cause was already printed.
    pub message: String,
    /// What to do next: an imperative, with commands in backticks.
    pub hint: Option<String>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(Kind::Denied, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(Kind::Timeout, message)
    }

    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Kind::Interrupted, message)
    }

    /// Passes on the exit status of a command in a server, which has printed its own messages.
    pub const fn remote(code: u8) -> Self {
        Self { kind: Kind::Remote(code), message: String::new(), hint: None }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prefixes the message with the operation that failed.
    #[must_use]
    pub fn context(mut self, operation: impl fmt::Display) -> Self {
        self.message = format!("{operation}: {}", self.message);
        self
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.code())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Error {}

/// Formats an error and its sources on one line, without repetitions.
pub fn format_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_match_the_documentation() {
        let codes = [
            (Kind::Failed, 1),
            (Kind::Usage, 2),
            (Kind::NotFound, 3),
            (Kind::Denied, 4),
            (Kind::Conflict, 5),
            (Kind::Timeout, 6),
            (Kind::Interrupted, 130),
            (Kind::Remote(7), 7),
            (Kind::ClosedPipe, 0),
        ];
        for (kind, code) in codes {
            assert_eq!(kind.code(), code, "{kind:?}");
        }
    }

    #[test]
    fn hint_is_on_its_own_line() {
        let error = Error::not_found("server bix not found").with_hint("did you mean box?");
        assert_eq!(error.to_string(), "server bix not found\nhint: did you mean box?");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn format_chain_omits_repeated_sources() {
        let error =
            Layer("connect: refused", Some(Box::new(Layer("refused", Some(Box::new(Layer("os error 111", None)))))));
        assert_eq!(format_chain(&error), "connect: refused: os error 111");
    }
}
