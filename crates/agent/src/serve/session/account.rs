//! The Unix account of the server. Every SSH login runs as this account, with any user name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::process::getuid;

use crate::accounts::passwd::Entry;
use crate::image_programs;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: OsString,
    pub home: PathBuf,
    /// Absent if the image has none.
    pub shell: Option<PathBuf>,
}

impl Account {
    /// Reads the account for each session, because users may change their shell.
    pub fn look_up() -> Self {
        let passwd = fs::read("/etc/passwd").unwrap_or_default();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let is_executable = |program: &Path| {
            program.to_str().is_some_and(|program| image_programs::is_executable(Path::new("/"), program))
        };
        Self::new(&passwd, getuid().as_raw(), home, is_executable, image_programs::interactive_shell(Path::new("/")))
    }

    /// `home` from the container's environment overrides the passwd entry, which may not know the home volume.
    fn new(
        passwd: &[u8],
        uid: u32,
        home: Option<PathBuf>,
        is_executable: impl Fn(&Path) -> bool,
        default_shell: Option<&'static str>,
    ) -> Self {
        let entry = Entry::find(passwd, uid);
        let field = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        let name = match entry {
            Some(entry) => OsStr::from_bytes(entry.name).to_owned(),
            None if uid == 0 => "root".into(),
            None => "dev".into(),
        };
        let allows_login = |shell: &PathBuf| {
            is_executable(shell) && !["nologin", "false"].iter().any(|name| shell.file_name() == Some(OsStr::new(name)))
        };
        let home = home.filter(|home| home.is_absolute()).or_else(|| entry.map(|entry| field(entry.home())));
        let shell = entry.map(|entry| field(entry.shell())).filter(allows_login);
        Self {
            name,
            home: home.unwrap_or_else(|| PathBuf::from("/")),
            shell: shell.or_else(|| default_shell.map(PathBuf::from)),
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
        is_executable: bool,
        default_shell: Option<&'static str>,
    ) -> (OsString, PathBuf, Option<PathBuf>) {
        let Account { name, home, shell } = Account::new(
            PASSWD,
            uid,
            home.map(PathBuf::from),
            |shell| is_executable && shell.is_absolute(),
            default_shell,
        );
        (name, home, shell)
    }

    #[test]
    fn shell_of_the_account_is_used_if_it_allows_logins() {
        let zsh = ("root".into(), "/root".into(), Some("/bin/zsh".into()));
        assert_eq!(account(0, None, true, Some("/bin/sh")), zsh);
        assert_eq!(account(0, None, false, Some("/bin/sh")).2, Some("/bin/sh".into()));
        assert_eq!(account(7, None, true, Some("/bin/sh")).2, Some("/bin/sh".into()));
        assert_eq!(account(9, None, true, None).2, None);
    }

    #[test]
    fn home_of_the_environment_overrides_passwd() {
        assert_eq!(account(9, Some("/home/dev"), true, None).1, PathBuf::from("/home/dev"));
        assert_eq!(account(9, Some("relative"), true, None).1, PathBuf::from("/ada"));
    }

    #[test]
    fn user_without_passwd_entry_gets_defaults() {
        assert_eq!(account(5, None, true, None), ("dev".into(), "/".into(), None));
    }
}
