//! The image's `/etc/group` with a name for every group the user is in: a shell that starts complains about those without.

use super::passwd::{free_name, lines, name_in};

/// `user` is the user's name, which the group of `gid` gets if it has none. The existing groups keep their members: what
/// the user may do is decided by the numbers of the process, not by this file.
pub fn merge(image: &[u8], gid: u32, further: &[u32], user: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(image.len() + 64);
    for line in lines(image) {
        text.extend(line);
        text.push(b'\n');
    }
    let user = String::from_utf8_lossy(user);
    let mut add = |gid: u32, name: &str, member: &str| {
        if !lines(&text).any(|line| gid_in(line) == Some(gid)) {
            let name = free_name(&text, if gid == 0 { "root" } else { name });
            text.extend(format!("{name}:*:{gid}:{member}\n").into_bytes());
        }
    };
    add(gid, &user, "");
    for gid in further {
        add(*gid, &format!("group{gid}"), &user);
    }
    text
}

fn gid_in(line: &[u8]) -> Option<u32> {
    name_in(line)?;
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    let [_, _, gid, _] = fields[..] else { return None };
    std::str::from_utf8(gid).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(image: &str, gid: u32, further: &[u32], text: &str) {
        let merged = merge(image.as_bytes(), gid, further, b"dev");
        assert_eq!(String::from_utf8_lossy(&merged), text);
        assert_eq!(merge(&merged, gid, further, b"dev"), merged);
    }

    #[test]
    fn every_group_of_the_user_has_a_name() {
        for (image, gid, further, text) in [
            ("", 1000, &[][..], "dev:*:1000:\n"),
            ("", 0, &[], "root:*:0:\n"),
            ("", 1000, &[1000, 7, 7, 0], "dev:*:1000:\ngroup7:*:7:dev\nroot:*:0:dev\n"),
            ("users:x:100:a,b", 100, &[], "users:x:100:a,b\n"),
            ("users:x:100:\n", 5, &[100], "users:x:100:\ndev:*:5:\n"),
        ] {
            check(image, gid, further, text);
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        check("dev:x:1:\n", 2, &[], "dev:x:1:\ndev-2:*:2:\n");
        check("group7:x:1:\n", 1, &[7], "group7:x:1:\ngroup7-2:*:7:dev\n");
    }

    #[test]
    fn malformed_lines_are_kept_and_speak_of_no_group() {
        for odd in ["a:x:5\n", "a:x:5:b:c\n", "+a:x:5:\n", "#a:x:5:\n", "a:x:five:\n", ":x:5:\n"] {
            check(odd, 5, &[], &format!("{odd}dev:*:5:\n"));
        }
    }
}
