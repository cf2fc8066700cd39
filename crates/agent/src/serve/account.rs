//! The one account of a server: whoever logs in, by whatever name, is this user.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::process::getuid;

use crate::shell;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: OsString,
    pub home: PathBuf,
    /// Absent if the image has none.
    pub shell: Option<PathBuf>,
}

impl Account {
    /// Looked up anew for each session, because people may change their shell.
    pub fn look_up() -> Self {
        let passwd = fs::read("/etc/passwd").unwrap_or_default();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let runs = |program: &Path| program.to_str().is_some_and(|program| shell::runs(Path::new("/"), program));
        Self::new(&passwd, getuid().as_raw(), home, runs, shell::for_people(Path::new("/")))
    }

    /// What the container says of its home counts more than the image's own file, which may not know of the disk.
    fn new(
        passwd: &[u8],
        uid: u32,
        home: Option<PathBuf>,
        runs: impl Fn(&Path) -> bool,
        best: Option<&'static str>,
    ) -> Self {
        let entry = passwd.split(|byte| *byte == b'\n').find_map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
            let fields: [&[u8]; 7] = fields.try_into().ok()?;
            let own = std::str::from_utf8(fields[2]).ok()?.parse::<u32>().ok()? == uid;
            own.then(|| fields.map(|field| OsStr::from_bytes(field).to_owned()))
        });
        let (name, own_home, own_shell) = match entry {
            Some([name, _, _, _, _, home, shell]) => (name, Some(PathBuf::from(home)), Some(PathBuf::from(shell))),
            None => (if uid == 0 { "root".into() } else { "dev".into() }, None, None),
        };
        let opens = |shell: &PathBuf| {
            runs(shell) && !["nologin", "false"].iter().any(|name| shell.file_name() == Some(OsStr::new(name)))
        };
        Self {
            name,
            home: home.filter(|home| home.is_absolute()).or(own_home).unwrap_or_else(|| PathBuf::from("/")),
            shell: own_shell.filter(opens).or_else(|| best.map(PathBuf::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0::/root:/bin/zsh\nbad\n\xff:x:7:7::/\xff:/sbin/nologin\nada:x:9:9::/ada:\n";

    fn account(
        uid: u32,
        home: Option<&str>,
        runs: bool,
        best: Option<&'static str>,
    ) -> (OsString, PathBuf, Option<PathBuf>) {
        let Account { name, home, shell } =
            Account::new(PASSWD, uid, home.map(PathBuf::from), |shell| runs && shell.is_absolute(), best);
        (name, home, shell)
    }

    #[test]
    fn the_accounts_own_shell_is_used_if_it_lets_people_in() {
        let zsh = ("root".into(), "/root".into(), Some("/bin/zsh".into()));
        assert_eq!(account(0, None, true, Some("/bin/sh")), zsh);
        assert_eq!(account(0, None, false, Some("/bin/sh")).2, Some("/bin/sh".into()));
        assert_eq!(account(7, None, true, Some("/bin/sh")).2, Some("/bin/sh".into()));
        assert_eq!(account(9, None, true, None).2, None);
    }

    #[test]
    fn the_containers_word_about_the_home_counts_more() {
        assert_eq!(account(9, Some("/home/dev"), true, None).1, PathBuf::from("/home/dev"));
        assert_eq!(account(9, Some("relative"), true, None).1, PathBuf::from("/ada"));
    }

    #[test]
    fn a_user_nobody_knows_is_one_too() {
        assert_eq!(account(5, None, true, None), ("dev".into(), "/".into(), None));
    }
}
