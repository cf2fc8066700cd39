//! Words as a POSIX shell reads them back.

/// One word, exactly as it is.
pub fn word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words of a command, so that the shell runs exactly these.
pub fn words<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    all.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

/// What a person typed after `--`: one word is a line for the shell, as with ssh; several are a program and its
/// arguments, each of which arrives as it was typed.
pub fn line(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        several => words(several.iter().map(String::as_str)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_stay_readable() {
        assert_eq!(words(["python3", "-c", "print('a b')", "", "x=1"]), r"python3 -c 'print('\''a b'\'')' '' x=1");
    }

    #[test]
    fn one_word_is_for_the_shell_and_several_are_exact() {
        assert_eq!(line(&["echo $HOME | wc".into()]), "echo $HOME | wc");
        assert_eq!(line(&["echo".into(), "$HOME".into()]), "echo '$HOME'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_shell_gives_every_word_back(all in prop::collection::vec("[^\0]{0,12}", 1..4)) {
            let script = format!("printf '%s\\0' {}", words(all.iter().map(String::as_str)));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let back = String::from_utf8(output.stdout).unwrap();
            prop_assert_eq!(back, all.iter().map(|word| format!("{word}\0")).collect::<String>());
        }
    }
}
