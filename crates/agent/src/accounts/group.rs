//! The image's `/etc/group` with a name for every group of the user: shells complain about groups without a name.

use super::passwd::{entry_name, free_name, lines};

/// `user` is the user's name, which the group of `gid` gets if it has none. Existing groups keep their members:
/// permissions depend on the group IDs of the process, not on this file.
pub fn merge(image: &[u8], gid: u32, supplementary: &[u32], user: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(image.len() + 64);
    for line in lines(image) {
        text.extend(line);
        text.push(b'\n');
    }
    let user = String::from_utf8_lossy(user);
    let mut add = |gid: u32, name: &str, member: &str| {
        if !lines(&text).any(|line| parse_gid(line) == Some(gid)) {
            let name = free_name(&text, if gid == 0 { "root" } else { name });
            text.extend(format!("{name}:*:{gid}:{member}\n").into_bytes());
        }
    };
    add(gid, &user, "");
    for gid in supplementary {
        add(*gid, &format!("group{gid}"), &user);
    }
    text
}

fn parse_gid(line: &[u8]) -> Option<u32> {
    entry_name(line)?;
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    let [_, _, gid, _] = fields[..] else { return None };
    std::str::from_utf8(gid).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(image: &str, gid: u32, supplementary: &[u32], text: &str) {
        let merged = merge(image.as_bytes(), gid, supplementary, b"dev");
        assert_eq!(String::from_utf8_lossy(&merged), text);
        assert_eq!(merge(&merged, gid, supplementary, b"dev"), merged);
    }

    #[test]
    fn every_group_of_the_user_gets_a_name() {
        for (image, gid, supplementary, text) in [
            ("", 1000, &[][..], "dev:*:1000:\n"),
            ("", 0, &[], "root:*:0:\n"),
            ("", 1000, &[1000, 7, 7, 0], "dev:*:1000:\ngroup7:*:7:dev\nroot:*:0:dev\n"),
            ("users:x:100:a,b", 100, &[], "users:x:100:a,b\n"),
            ("users:x:100:\n", 5, &[100], "users:x:100:\ndev:*:5:\n"),
        ] {
            check(image, gid, supplementary, text);
        }
    }

    #[test]
    fn taken_group_name_gets_a_number() {
        check("dev:x:1:\n", 2, &[], "dev:x:1:\ndev-2:*:2:\n");
        check("group7:x:1:\n", 1, &[7], "group7:x:1:\ngroup7-2:*:7:dev\n");
    }

    #[test]
    fn malformed_group_lines_are_kept_and_ignored() {
        for malformed in ["a:x:5\n", "a:x:5:b:c\n", "+a:x:5:\n", "#a:x:5:\n", "a:x:five:\n", ":x:5:\n"] {
            check(malformed, 5, &[], &format!("{malformed}dev:*:5:\n"));
        }
    }
}
