//! The environment of a session: the container's, what SSH adds, and the few things a client may say. Pure.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::Path;

use crate::serve::account::Account;

/// Where our own commands are.
pub const TOOLS: &str = "/odc/bin";

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What clients may set: how to show text, and where they come from. Nothing that changes what programs do.
const ACCEPTED: [&str; 7] =
    ["LANG", "LANGUAGE", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "NO_COLOR", "FORCE_COLOR"];

const MOST: usize = 64;
const MOST_BYTES: usize = 32 << 10;

/// What the client said.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    variables: Vec<(String, String)>,
    bytes: usize,
}

impl Asked {
    /// Whether it was taken.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let known = ACCEPTED.contains(&name) || name.strip_prefix("LC_").is_some_and(is_plain);
        let bytes = self.bytes + name.len() + value.len();
        if !known || value.contains('\0') || self.variables.len() >= MOST || bytes > MOST_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.variables.push((name.to_owned(), value.to_owned()));
        true
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What is known about a session.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub account: &'a Account,
    pub shell: Option<&'a Path>,
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Its kind, as the client calls it, and its file.
    pub terminal: Option<(&'a str, &'a OsStr)>,
    pub agent: Option<&'a Path>,
    pub asked: &'a Asked,
}

/// Later ones count.
pub fn environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    facts: &Facts<'_>,
) -> Vec<(OsString, OsString)> {
    let Facts { account, shell, client, server, terminal, agent, asked } = facts;
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    let mut path = OsString::from(DEFAULT_PATH);
    for (name, value) in inherited {
        match name.to_str() {
            Some("PATH") => path = value,
            // Somebody else's session, if this server was itself started from one.
            Some("SSH_AUTH_SOCK" | "SSH_TTY" | "TERM" | "OLDPWD" | "PWD") => {}
            _ => all.push((name, value)),
        }
    }
    let mut add = |name: &str, value: OsString| all.push((name.into(), value));
    add("PATH", with_tools(path));
    add("HOME", account.home.clone().into());
    add("USER", account.name.clone());
    add("LOGNAME", account.name.clone());
    if let Some(shell) = shell {
        add("SHELL", shell.into());
    }
    let (from, to) = (client.ip().to_canonical(), server.ip().to_canonical());
    add("SSH_CLIENT", format!("{from} {} {}", client.port(), server.port()).into());
    add("SSH_CONNECTION", format!("{from} {} {to} {}", client.port(), server.port()).into());
    if let Some((kind, file)) = terminal {
        if !kind.is_empty() && !kind.contains('\0') {
            add("TERM", kind.into());
        }
        add("SSH_TTY", file.into());
    }
    if let Some(agent) = agent {
        add("SSH_AUTH_SOCK", agent.into());
    }
    for (name, value) in &asked.variables {
        add(name, value.into());
    }
    all
}

fn with_tools(mut path: OsString) -> OsString {
    if std::env::split_paths(&path).any(|directory| directory == Path::new(TOOLS)) {
        return path;
    }
    if !path.is_empty() {
        path.push(":");
    }
    path.push(TOOLS);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn session(inherited: &[(&str, &str)], terminal: Option<(&str, &OsStr)>, asked: &Asked) -> HashMap<String, String> {
        let account = Account { name: "ada".into(), home: "/home/ada".into(), shell: None };
        let facts = Facts {
            account: &account,
            shell: Some(Path::new("/bin/bash")),
            client: "[::ffff:10.0.0.7]:5555".parse().unwrap(),
            server: "10.0.0.1:2222".parse().unwrap(),
            terminal,
            agent: None,
            asked,
        };
        let inherited = inherited.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let text = |text: OsString| text.into_string().unwrap();
        environment(inherited, &facts).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn the_container_and_the_connection_are_known() {
        let inherited = [("RANK", "0"), ("HOME", "/"), ("PATH", "/opt/conda/bin:/bin"), ("SSH_TTY", "/dev/pts/9")];
        let all = session(&inherited, None, &Asked::default());
        for (name, value) in [
            ("RANK", "0"),
            ("HOME", "/home/ada"),
            ("USER", "ada"),
            ("SHELL", "/bin/bash"),
            ("PATH", "/opt/conda/bin:/bin:/odc/bin"),
            ("SSH_CLIENT", "10.0.0.7 5555 2222"),
            ("SSH_CONNECTION", "10.0.0.7 5555 10.0.0.1 2222"),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!all.contains_key("SSH_TTY") && !all.contains_key("TERM"));
    }

    #[test]
    fn without_a_path_there_is_the_usual_one_and_ours_is_added_once() {
        let path = |given: &[(&str, &str)]| session(given, None, &Asked::default())["PATH"].clone();
        assert_eq!(path(&[]), format!("{DEFAULT_PATH}:/odc/bin"));
        assert_eq!(path(&[("PATH", "/odc/bin:/bin")]), "/odc/bin:/bin");
    }

    #[test]
    fn a_terminal_is_named() {
        let all = session(&[("TERM", "dumb")], Some(("xterm-256color", OsStr::new("/dev/pts/3"))), &Asked::default());
        assert_eq!((all["TERM"].as_str(), all["SSH_TTY"].as_str()), ("xterm-256color", "/dev/pts/3"));
    }

    #[test]
    fn clients_say_little_and_not_much_of_it() {
        let mut asked = Asked::default();
        assert!(asked.set("LANG", "de_DE.UTF-8") && asked.set("LC_ALL", "C"));
        for name in ["LD_PRELOAD", "PATH", "LC_", "LC_X=Y", "GIT_DIR", "", "lang"] {
            assert!(!asked.set(name, "x"), "{name}");
        }
        assert!(!asked.set("LANG", "a\0b"));
        assert!(!asked.set("LANG", &"x".repeat(MOST_BYTES)));
        assert_eq!((0..100).filter(|_| asked.set("LC_TIME", "C")).count(), MOST - 2);
        assert_eq!(session(&[("LANG", "C")], None, &asked)["LANG"], "de_DE.UTF-8");
    }
}
