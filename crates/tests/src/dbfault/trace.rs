//! The statements that clients have sent.

/// One execution of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Number of the connection, from 1.
    pub connection: u64,
    pub sql: String,
    /// Whether it ends a transaction: it is outside of one, or a COMMIT.
    pub commits: bool,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has not received it, or has not answered yet.
    Unknown,
    Succeeded,
    Failed,
}

/// Reports whether a statement begins with one of these words.
pub(super) fn starts_with(sql: &str, words: &[&str]) -> bool {
    let first = sql.trim_start().split(|character: char| !character.is_ascii_alphabetic()).next().unwrap_or_default();
    words.iter().any(|word| first.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_word_is_compared_without_case() {
        assert!(starts_with(" begin;", &["BEGIN", "START"]));
        assert!(!starts_with("SELECT 'commit'", &["COMMIT"]));
        assert!(!starts_with("", &["COMMIT"]));
    }
}
