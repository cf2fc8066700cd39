//! What a change does to a file, as people read it.

/// Lines that go and lines that come, with two that stay on either side. Our changes are in one place, so what differs
/// is what is left when the same beginning and the same end are taken away.
pub fn diff(name: &str, before: &[u8], after: Option<&[u8]>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (old, new) = (text(before), after.map(text));
    let old: Vec<&str> = old.lines().collect();
    let gone = new.is_none();
    let new = new.unwrap_or_default();
    let new: Vec<&str> = new.lines().collect();
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(old, new)| old == new).count();
    let from = if before.is_empty() { "/dev/null" } else { name };
    let mut out = format!("--- {from}\n+++ {}\n", if gone { "/dev/null" } else { name });
    let mut say = |mark: char, lines: &[&str]| {
        for line in lines {
            out += format!("{mark}{line}").trim_end();
            out.push('\n');
        }
    };
    say(' ', &old[start.saturating_sub(2)..start]);
    say('-', &old[start..old.len() - end]);
    say('+', &new[start..new.len() - end]);
    say(' ', &old[old.len() - end..(old.len() - end + 2).min(old.len())]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_comes_is_shown_with_its_neighbours() {
        let before = b"a\nb\nc\nd\n";
        let text = diff("config", before, Some(b"a\nb\nc\nnew\nd\n"));
        assert_eq!(text, "--- config\n+++ config\n b\n c\n+new\n d\n");
        assert_eq!(diff("config", b"", Some(b"x\n")), "--- /dev/null\n+++ config\n+x\n");
        assert_eq!(diff("config", b"x\n", None), "--- config\n+++ /dev/null\n-x\n");
        assert_eq!(diff("config", b"a\na\n", Some(b"a\na\na\n")), "--- config\n+++ config\n a\n a\n+a\n");
    }
}
