//! The image's `/etc/passwd` with an entry for the user. Works on bytes, because the file need not be UTF-8.
//!
//! Lines are kept unchanged, including malformed ones. Only the user's own entry may change, and only where the
//! original would make the server unusable.

use std::collections::HashSet;

use crate::image_programs;

#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    pub uid: u32,
    pub gid: u32,
    /// Used if the image has no entry for the uid.
    pub name: &'a str,
    pub full_name: Option<&'a str>,
    /// Mount point of the home volume; overrides the image's entry.
    pub home: Option<&'a str>,
    /// The best interactive shell of the image.
    pub shell: Option<&'a str>,
}

/// A passwd file that contains the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Passwd {
    pub content: Vec<u8>,
    pub user_name: Vec<u8>,
}

/// `is_executable` reports whether a program of the image can be executed.
pub fn merge(image: &[u8], user: &User, is_executable: impl Fn(&str) -> bool) -> Passwd {
    let mut content = Vec::with_capacity(image.len() + 128);
    let mut existing = None;
    for line in lines(image) {
        match Entry::parse(line).filter(|entry| existing.is_none() && entry.uid == user.uid) {
            Some(entry) => {
                existing = Some(entry.name.to_vec());
                content.extend(entry.updated_line(user, &is_executable));
            }
            None => content.extend(line),
        }
        content.push(b'\n');
    }
    let user_name = existing.unwrap_or_else(|| {
        let preferred = if user.uid == 0 { "root" } else { user.name };
        let name = free_name(image, preferred);
        content.extend(new_line(&name, user));
        name.into_bytes()
    });
    Passwd { content, user_name }
}

/// The password is `*`, not `x`: `x` makes PAM look in `/etc/shadow`, where the user has no entry, and sudo would fail.
fn new_line(name: &str, user: &User) -> Vec<u8> {
    let User { uid, gid, full_name, home, shell, .. } = user;
    let full_name = full_name.filter(|name| !name.is_empty()).unwrap_or(name);
    let home = home.map_or_else(|| format!("/home/{name}"), str::to_owned);
    let shell = shell.unwrap_or(image_programs::NOLOGIN);
    format!("{name}:*:{uid}:{gid}:{full_name}:{home}:{shell}\n").into_bytes()
}

/// A well-formed line of a passwd file.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    fields: [&'a [u8]; 7],
    pub name: &'a [u8],
    pub uid: u32,
}

impl<'a> Entry<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let fields: [&[u8]; 7] = fields.try_into().ok()?;
        let name = entry_name(line)?;
        Some(Self { fields, name, uid: std::str::from_utf8(fields[2]).ok()?.parse().ok()? })
    }

    /// Returns the first entry with this uid.
    pub fn find(passwd: &'a [u8], uid: u32) -> Option<Self> {
        lines(passwd).filter_map(Self::parse).find(|entry| entry.uid == uid)
    }

    pub fn home(&self) -> &'a [u8] {
        self.fields[5]
    }

    pub fn shell(&self) -> &'a [u8] {
        self.fields[6]
    }

    /// Sets the home to the home volume, fills in an empty full name, which would make `git commit` fail, and replaces
    /// a shell that is missing or denies logins.
    fn updated_line(self, user: &User, is_executable: impl Fn(&str) -> bool) -> Vec<u8> {
        let [name, password, uid, gid, mut full_name, mut home, mut shell] = self.fields;
        if full_name.is_empty() {
            full_name = user.full_name.map_or(full_name, str::as_bytes);
        }
        if let Some(volume) = user.home {
            home = volume.as_bytes();
        }
        if let Some(best) = user.shell {
            let allows_login =
                |shell: &str| is_executable(shell) && !shell.ends_with("/nologin") && !shell.ends_with("/false");
            // An empty field means /bin/sh, see passwd(5).
            let current = if shell.is_empty() { Ok("/bin/sh") } else { std::str::from_utf8(shell) };
            if !current.is_ok_and(allows_login) {
                shell = best.as_bytes();
            }
        }
        [name, password, uid, gid, full_name, home, shell].join(&b':')
    }
}

/// Returns the lines; the last one need not be terminated.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// Returns the name in a line, unless the line is a comment or refers to a directory service.
pub(super) fn entry_name(line: &[u8]) -> Option<&[u8]> {
    let name = line.split(|byte| *byte == b':').next()?.trim_ascii_start();
    (!name.is_empty() && !b"#+-".contains(&name[0])).then_some(name)
}

/// Returns `preferred`, with a number appended if a line, even a malformed one, already has that name.
pub(super) fn free_name(image: &[u8], preferred: &str) -> String {
    let taken: HashSet<&[u8]> = lines(image).filter_map(entry_name).collect();
    let mut name = preferred.to_owned();
    let mut number = 1_u64;
    while taken.contains(name.as_bytes()) {
        number += 1;
        name = format!("{preferred}-{number}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: User = User { uid: 1000, gid: 100, name: "dev", full_name: None, home: None, shell: Some("/bin/bash") };

    fn check(image: impl AsRef<[u8]>, user: User, name: &str, text: impl AsRef<[u8]>) {
        let is_executable = |program: &str| ["/bin/bash", "/bin/sh", "/sbin/nologin"].contains(&program);
        let merged = merge(image.as_ref(), &user, is_executable);
        assert_eq!(String::from_utf8_lossy(&merged.content), String::from_utf8_lossy(text.as_ref()));
        assert_eq!(merged.content, text.as_ref());
        assert_eq!(merged.user_name, name.as_bytes());
        // Merging is idempotent.
        assert_eq!(merge(&merged.content, &user, is_executable), merged);
    }

    #[test]
    fn missing_user_is_appended() {
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
    fn new_entry_has_full_name_and_home() {
        let user = User { full_name: Some("Ada Lovelace"), home: Some("/data"), shell: None, ..DEV };
        check("", user, "dev", "dev:*:1000:100:Ada Lovelace:/data:/usr/sbin/nologin\n");
    }

    #[test]
    fn uid_zero_is_named_root() {
        check("", User { uid: 0, gid: 0, home: Some("/root"), ..DEV }, "root", "root:*:0:0:root:/root:/bin/bash\n");
    }

    #[test]
    fn existing_entry_is_kept() {
        for line in ["ubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash\n", "ubuntu:!:1000:5:a,b,c:/x:/bin/sh\n"] {
            check(line, DEV, "ubuntu", line);
        }
        let twice = "a:x:1000:1:A:/a:/bin/sh\nb:x:1000:1:B:/b:/bin/nothing\n";
        check(twice, DEV, "a", twice);
    }

    #[test]
    fn existing_entry_is_updated_where_unusable() {
        let updated = "u:x:1000:1:Ada:/data:/bin/bash\n";
        let user = User { home: Some("/data"), full_name: Some("Ada"), ..DEV };
        for shell in ["/bin/zsh", "/sbin/nologin", "/bin/false", "/bin/bash", "/bin/bash\r"] {
            check(format!("u:x:1000:1::/home/u:{shell}\n"), user, "u", updated);
        }
        check("u:x:1000:1::/home/u:\n", user, "u", "u:x:1000:1:Ada:/data:\n");
        // Without a usable shell in the image, the entry keeps its own.
        let without_shell = User { shell: None, ..DEV };
        check("u:x:1000:1:U:/u:/bin/zsh\n", without_shell, "u", "u:x:1000:1:U:/u:/bin/zsh\n");
    }

    #[test]
    fn taken_user_name_gets_a_number() {
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
    fn malformed_passwd_lines_are_kept_and_ignored() {
        let added = b"dev:*:1000:100:dev:/home/dev:/bin/bash\n";
        for malformed in [
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
            check(malformed, DEV, "dev", [malformed, added].concat());
        }
    }

    #[test]
    fn non_utf8_name_is_kept() {
        let line = b"\xe4da:x:1000:1:\xc4:/h\xff:/bin/sh\n";
        let merged = merge(line, &DEV, |_| true);
        assert_eq!(merged, Passwd { content: line.to_vec(), user_name: b"\xe4da".to_vec() });
    }
}
