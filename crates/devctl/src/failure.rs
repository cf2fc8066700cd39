//! How a command fails: with a code that scripts can tell apart, a sentence, and what to do next.

use std::fmt;
use std::process::ExitCode;

/// What kind of failure it is; this alone decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1: it did not work.
    Failed,
    /// 2: it cannot be meant that way.
    Usage,
    /// 3: there is no such thing.
    NotFound,
    /// 4: not you.
    Denied,
    /// 5: not as things are.
    Conflict,
    /// 6: not in time.
    Timeout,
    /// 130: somebody pressed Ctrl-C.
    Interrupted,
    /// What a command in a server ended with.
    Remote(u8),
    /// 0: whoever read the output has seen enough.
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
pub struct Failure {
    pub kind: Kind,
    /// What happened, without a full stop. Empty: everything was said already.
    pub message: String,
    /// What to do next.
    pub advice: Option<String>,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), advice: None }
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

    /// A command in a server ended; it has said itself what there was to say.
    pub const fn remote(code: u8) -> Self {
        Self { kind: Kind::Remote(code), message: String::new(), advice: None }
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// What was being done, before what went wrong.
    #[must_use]
    pub fn while_doing(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "\n{advice}"))
    }
}

impl std::error::Error for Failure {}

/// An error with all its causes in one line, each said once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
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
    fn advice_stands_on_its_own_line() {
        let failure = Failure::not_found("there is no server bix").advise("Did you mean box?");
        assert_eq!(failure.to_string(), "there is no server bix\nDid you mean box?");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn a_chain_says_each_cause_once() {
        let error =
            Layer("asking: refused", Some(Box::new(Layer("refused", Some(Box::new(Layer("os error 111", None)))))));
        assert_eq!(chain(&error), "asking: refused: os error 111");
    }
}
