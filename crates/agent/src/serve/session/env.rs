//! The environment of a session: that of the container, the variables of SSH, and those accepted from the client. No
//! I/O.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::Path;

use crate::serve::session::account::Account;

/// Directory of `odc-status` and `odc-keep-alive`.
pub const TOOLS_DIR: &str = "/odc/bin";

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables accepted from clients, as `AcceptEnv` in `sshd_config(5)`, besides `LC_*`. None of them changes which code
/// programs run.
const ACCEPTED_VARIABLES: [&str; 7] =
    ["LANG", "LANGUAGE", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "NO_COLOR", "FORCE_COLOR"];

const MAX_VARIABLES: usize = 64;
const MAX_BYTES: usize = 32 << 10;

/// Variables accepted from the client.
#[derive(Clone, Debug, Default)]
pub struct ClientEnv {
    variables: Vec<(String, String)>,
    bytes: usize,
}

impl ClientEnv {
    /// Reports whether the variable was accepted.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let accepted = ACCEPTED_VARIABLES.contains(&name) || name.strip_prefix("LC_").is_some_and(is_portable_name);
        let bytes = self.bytes + name.len() + value.len();
        if !accepted || value.contains('\0') || self.variables.len() >= MAX_VARIABLES || bytes > MAX_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.variables.push((name.to_owned(), value.to_owned()));
        true
    }
}

fn is_portable_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[derive(Clone, Debug)]
pub struct EnvInputs<'a> {
    pub account: &'a Account,
    pub shell: Option<&'a Path>,
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Value of `TERM` and path of the terminal.
    pub pty: Option<(&'a str, &'a OsStr)>,
    /// Socket of the forwarded SSH agent.
    pub agent_socket: Option<&'a Path>,
    pub client_env: &'a ClientEnv,
}

/// Returns the variables; the last one of a name counts.
pub fn session_env(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    inputs: &EnvInputs<'_>,
) -> Vec<(OsString, OsString)> {
    let EnvInputs { account, shell, client, server, pty, agent_socket, client_env } = inputs;
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    let mut path = OsString::from(DEFAULT_PATH);
    for (name, value) in inherited {
        match name.to_str() {
            Some("PATH") => path = value,
            // Set if `serve` itself was started from a session.
            Some("SSH_AUTH_SOCK" | "SSH_TTY" | "TERM" | "OLDPWD" | "PWD") => {}
            _ => env.push((name, value)),
        }
    }
    let mut add = |name: &str, value: OsString| env.push((name.into(), value));
    add("PATH", with_tools_dir(path));
    add("HOME", account.home.clone().into());
    add("USER", account.name.clone());
    add("LOGNAME", account.name.clone());
    if let Some(shell) = shell {
        add("SHELL", shell.into());
    }
    let (from, to) = (client.ip().to_canonical(), server.ip().to_canonical());
    add("SSH_CLIENT", format!("{from} {} {}", client.port(), server.port()).into());
    add("SSH_CONNECTION", format!("{from} {} {to} {}", client.port(), server.port()).into());
    if let Some((term, path)) = pty {
        if !term.is_empty() && !term.contains('\0') {
            add("TERM", term.into());
        }
        add("SSH_TTY", path.into());
    }
    if let Some(socket) = agent_socket {
        add("SSH_AUTH_SOCK", socket.into());
    }
    for (name, value) in &client_env.variables {
        add(name, value.into());
    }
    env
}

fn with_tools_dir(mut path: OsString) -> OsString {
    if std::env::split_paths(&path).any(|directory| directory == Path::new(TOOLS_DIR)) {
        return path;
    }
    if !path.is_empty() {
        path.push(":");
    }
    path.push(TOOLS_DIR);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn env(inherited: &[(&str, &str)], pty: Option<(&str, &OsStr)>, client_env: &ClientEnv) -> HashMap<String, String> {
        let account = Account { name: "ada".into(), home: "/home/ada".into(), shell: None };
        let inputs = EnvInputs {
            account: &account,
            shell: Some(Path::new("/bin/bash")),
            client: "[::ffff:10.0.0.7]:5555".parse().unwrap(),
            server: "10.0.0.1:2222".parse().unwrap(),
            pty,
            agent_socket: None,
            client_env,
        };
        let inherited = inherited.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let text = |text: OsString| text.into_string().unwrap();
        session_env(inherited, &inputs).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn container_and_connection_variables_are_set() {
        let inherited = [("RANK", "0"), ("HOME", "/"), ("PATH", "/opt/conda/bin:/bin"), ("SSH_TTY", "/dev/pts/9")];
        let env = env(&inherited, None, &ClientEnv::default());
        for (name, value) in [
            ("RANK", "0"),
            ("HOME", "/home/ada"),
            ("USER", "ada"),
            ("SHELL", "/bin/bash"),
            ("PATH", "/opt/conda/bin:/bin:/odc/bin"),
            ("SSH_CLIENT", "10.0.0.7 5555 2222"),
            ("SSH_CONNECTION", "10.0.0.7 5555 10.0.0.1 2222"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!env.contains_key("SSH_TTY") && !env.contains_key("TERM"));
    }

    #[test]
    fn tools_directory_is_appended_to_path_once() {
        let path = |given: &[(&str, &str)]| env(given, None, &ClientEnv::default())["PATH"].clone();
        assert_eq!(path(&[]), format!("{DEFAULT_PATH}:/odc/bin"));
        assert_eq!(path(&[("PATH", "/odc/bin:/bin")]), "/odc/bin:/bin");
    }

    #[test]
    fn terminal_variables_are_set() {
        let env = env(&[("TERM", "dumb")], Some(("xterm-256color", OsStr::new("/dev/pts/3"))), &ClientEnv::default());
        assert_eq!((env["TERM"].as_str(), env["SSH_TTY"].as_str()), ("xterm-256color", "/dev/pts/3"));
    }

    #[test]
    fn client_variables_are_filtered_and_limited() {
        let mut client_env = ClientEnv::default();
        assert!(client_env.set("LANG", "de_DE.UTF-8") && client_env.set("LC_ALL", "C"));
        for name in ["LD_PRELOAD", "PATH", "LC_", "LC_X=Y", "GIT_DIR", "", "lang"] {
            assert!(!client_env.set(name, "x"), "{name}");
        }
        assert!(!client_env.set("LANG", "a\0b"));
        assert!(!client_env.set("LANG", &"x".repeat(MAX_BYTES)));
        assert_eq!((0..100).filter(|_| client_env.set("LC_TIME", "C")).count(), MAX_VARIABLES - 2);
        assert_eq!(env(&[("LANG", "C")], None, &client_env)["LANG"], "de_DE.UTF-8");
    }
}
