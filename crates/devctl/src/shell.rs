//! Command lines for a POSIX shell.

use std::borrow::Cow;

/// Quotes one word. A NUL byte, which no argument can contain, is dropped.
pub fn quote(word: &str) -> Cow<'_, str> {
    shlex::try_quote(word).unwrap_or_else(|_| {
        let without_nul = word.replace('\0', "");
        shlex::try_quote(&without_nul).map(|quoted| Cow::Owned(quoted.into_owned())).unwrap_or_default()
    })
}

/// Joins words into a command line from which the shell reads exactly these words.
pub fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Returns the command line for the arguments after `--`: a single argument is a shell command line, as with ssh;
/// several are a program and its arguments, which are passed on unchanged.
pub fn command_line(arguments: &[String]) -> String {
    match arguments {
        [line] => line.clone(),
        words => join(words.iter().map(String::as_str)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_are_not_quoted() {
        assert_eq!(join(["python3", "-c", "print(1 + 2)", "", "x=1"]), "python3 -c 'print(1 + 2)' '' 'x=1'");
    }

    #[test]
    fn single_argument_is_a_command_line_and_several_are_quoted() {
        assert_eq!(command_line(&["echo $HOME | wc".into()]), "echo $HOME | wc");
        assert_eq!(command_line(&["echo".into(), "$HOME".into()]), "echo '$HOME'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn shell_reads_joined_words_back(words in prop::collection::vec("[^\0]{0,12}", 1..4)) {
            let script = format!("printf '%s\\0' {}", join(words.iter().map(String::as_str)));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let actual = String::from_utf8(output.stdout).unwrap();
            prop_assert_eq!(actual, words.iter().map(|word| format!("{word}\0")).collect::<String>());
        }
    }
}
