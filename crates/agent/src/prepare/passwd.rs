//! The image's `/etc/passwd` with the user in it. Works on bytes, because nobody promised text.
//!
//! Lines are kept as they are, malformed ones too. Only the user's own may change, and only where leaving it would make
//! the server useless to them.

use std::collections::HashSet;

use crate::shell;

/// Who will use the server.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    pub uid: u32,
    pub gid: u32,
    /// Used if the image has no entry for the uid.
    pub name: &'a str,
    pub full_name: Option<&'a str>,
    /// Where the home disk is, if it is known better than by the image.
    pub home: Option<&'a str>,
    /// The best shell of the image.
    pub shell: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Accounts {
    pub text: Vec<u8>,
    /// What the user is called in it.
    pub name: Vec<u8>,
}

/// `runs` tells whether a program of the image can be executed.
pub fn merge(image: &[u8], user: &User, runs: impl Fn(&str) -> bool) -> Accounts {
    let mut text = Vec::with_capacity(image.len() + 128);
    let mut known = None;
    for line in lines(image) {
        match Entry::parse(line).filter(|entry| known.is_none() && entry.uid == user.uid) {
            Some(entry) => {
                known = Some(entry.name.to_vec());
                text.extend(entry.line_for(user, &runs));
            }
            None => text.extend(line),
        }
        text.push(b'\n');
    }
    let name = known.unwrap_or_else(|| {
        let wanted = if user.uid == 0 { "root" } else { user.name };
        let name = free_name(image, wanted);
        text.extend(new_line(&name, user));
        name.into_bytes()
    });
    Accounts { text, name }
}

/// The password is `*` and not `x`: that would send PAM to `/etc/shadow`, where the user is not, and lock them out of sudo.
fn new_line(name: &str, user: &User) -> Vec<u8> {
    let User { uid, gid, full_name, home, shell, .. } = user;
    let full_name = full_name.filter(|name| !name.is_empty()).unwrap_or(name);
    let home = home.map_or_else(|| format!("/home/{name}"), str::to_owned);
    let shell = shell.unwrap_or(shell::NOLOGIN);
    format!("{name}:*:{uid}:{gid}:{full_name}:{home}:{shell}\n").into_bytes()
}

/// A well-formed line.
struct Entry<'a> {
    fields: [&'a [u8]; 7],
    name: &'a [u8],
    uid: u32,
}

impl<'a> Entry<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let fields: [&[u8]; 7] = fields.try_into().ok()?;
        let name = name_in(line)?;
        Some(Self { fields, name, uid: std::str::from_utf8(fields[2]).ok()?.parse().ok()? })
    }

    /// Home follows the disk. An empty full name would stop `git commit`. A shell that is not there, or that sends people
    /// away, would stop everything.
    fn line_for(self, user: &User, runs: impl Fn(&str) -> bool) -> Vec<u8> {
        let [name, password, uid, gid, mut full_name, mut home, mut shell] = self.fields;
        if full_name.is_empty() {
            full_name = user.full_name.map_or(full_name, str::as_bytes);
        }
        if let Some(known) = user.home {
            home = known.as_bytes();
        }
        if let Some(best) = user.shell {
            let opens = |shell: &str| runs(shell) && !shell.ends_with("/nologin") && !shell.ends_with("/false");
            // An empty field means /bin/sh.
            let own = if shell.is_empty() { Ok("/bin/sh") } else { std::str::from_utf8(shell) };
            if !own.is_ok_and(opens) {
                shell = best.as_bytes();
            }
        }
        [name, password, uid, gid, full_name, home, shell].join(&b':')
    }
}

/// The lines, whether or not the last one is ended.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// The name a line is about, unless it is a comment or refers to a directory service.
pub(super) fn name_in(line: &[u8]) -> Option<&[u8]> {
    let name = line.split(|byte| *byte == b':').next()?.trim_ascii_start();
    (!name.is_empty() && !b"#+-".contains(&name[0])).then_some(name)
}

/// `wanted`, or with a number if some line has it already, be it malformed.
pub(super) fn free_name(image: &[u8], wanted: &str) -> String {
    let taken: HashSet<&[u8]> = lines(image).filter_map(name_in).collect();
    let mut name = wanted.to_owned();
    let mut number = 1_u64;
    while taken.contains(name.as_bytes()) {
        number += 1;
        name = format!("{wanted}-{number}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: User = User { uid: 1000, gid: 100, name: "dev", full_name: None, home: None, shell: Some("/bin/bash") };

    fn check(image: impl AsRef<[u8]>, user: User, name: &str, text: impl AsRef<[u8]>) {
        let runs = |program: &str| ["/bin/bash", "/bin/sh", "/sbin/nologin"].contains(&program);
        let merged = merge(image.as_ref(), &user, runs);
        assert_eq!(String::from_utf8_lossy(&merged.text), String::from_utf8_lossy(text.as_ref()));
        assert_eq!(merged.text, text.as_ref());
        assert_eq!(merged.name, name.as_bytes());
        // What is prepared is as good as prepared twice.
        assert_eq!(merge(&merged.text, &user, runs), merged);
    }

    #[test]
    fn an_unknown_user_is_added_at_the_end() {
        let line = "dev:*:1000:100:dev:/home/dev:/bin/bash\n";
        let root = "root:x:0:0:root:/root:/bin/bash\n";
        for (image, text) in [
            ("", line.to_owned()),
            ("\n", format!("\n{line}")),
            (root, format!("{root}{line}")),
            (root.trim_end(), format!("{root}{line}")),
            ("\n\nroot:x:0:0::/:\n\n", format!("\n\nroot:x:0:0::/:\n\n{line}")),
        ] {
            check(image, DEV, "dev", text);
        }
    }

    #[test]
    fn all_that_is_known_goes_into_the_new_entry() {
        let user = User { full_name: Some("Ada Lovelace"), home: Some("/data"), shell: None, ..DEV };
        check("", user, "dev", "dev:*:1000:100:Ada Lovelace:/data:/usr/sbin/nologin\n");
    }

    #[test]
    fn root_is_called_root() {
        check("", User { uid: 0, gid: 0, home: Some("/root"), ..DEV }, "root", "root:*:0:0:root:/root:/bin/bash\n");
    }

    #[test]
    fn an_entry_for_the_uid_is_kept() {
        for line in ["ubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash\n", "ubuntu:!:1000:5:a,b,c:/x:/bin/sh\n"] {
            check(line, DEV, "ubuntu", line);
        }
        let twice = "a:x:1000:1:A:/a:/bin/sh\nb:x:1000:1:B:/b:/bin/nothing\n";
        check(twice, DEV, "a", twice);
    }

    #[test]
    fn an_entry_for_the_uid_is_mended_where_it_would_hurt() {
        let mended = "u:x:1000:1:Ada:/data:/bin/bash\n";
        let user = User { home: Some("/data"), full_name: Some("Ada"), ..DEV };
        for shell in ["/bin/zsh", "/sbin/nologin", "/bin/false", "/bin/bash", "/bin/bash\r"] {
            check(format!("u:x:1000:1::/home/u:{shell}\n"), user, "u", mended);
        }
        check("u:x:1000:1::/home/u:\n", user, "u", "u:x:1000:1:Ada:/data:\n");
        // Without a better one, the old shell is as good as any.
        let bare = User { shell: None, ..DEV };
        check("u:x:1000:1:U:/u:/bin/zsh\n", bare, "u", "u:x:1000:1:U:/u:/bin/zsh\n");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        for (taken, name) in [
            ("dev:x:1:1:::\n", "dev-2"),
            ("dev:x:1:1:::\ndev-2:x:2:2:::\n", "dev-3"),
            ("dev\n", "dev-2"),
            ("  dev:malformed\n", "dev-2"),
            ("devel:x:1:1:::\n", "dev"),
            ("#dev:x:1:1:::\n", "dev"),
        ] {
            check(taken, DEV, name, format!("{taken}{name}:*:1000:100:{name}:/home/{name}:/bin/bash\n"));
        }
    }

    #[test]
    fn malformed_lines_are_kept_and_speak_of_nobody() {
        let added = b"dev:*:1000:100:dev:/home/dev:/bin/bash\n";
        for odd in [
            &b"a:x:1000:1:::extra:field\n"[..],
            b"a:x:1000:1\n",
            b"a:x: 1000:1:::\n",
            b"a:x:4294968296:1:::\n",
            b"a:x:-1000:1:::\n",
            b":x:1000:1:::\n",
            b"+a:x:1000:1:::\n",
            b"+::::::\n",
            b"# a:x:1000:1:::\n",
            b"\xff\xfe:x:\xff:1:::\n",
            b"a\0b\n",
        ] {
            check(odd, DEV, "dev", [odd, added].concat());
        }
    }

    #[test]
    fn a_name_that_is_not_text_is_still_a_name() {
        let line = b"\xe4da:x:1000:1:\xc4:/h\xff:/bin/sh\n";
        let merged = merge(line, &DEV, |_| true);
        assert_eq!(merged, Accounts { text: line.to_vec(), name: b"\xe4da".to_vec() });
    }
}
