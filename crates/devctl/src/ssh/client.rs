//! OpenSSH, as we call it: what it is told about the way to a server, and how it runs.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Result};
use crate::ssh::config_file::setting_path;
use crate::ssh::places::Places;
use crate::ssh::quote;

/// How OpenSSH reaches servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// This program, as OpenSSH is to start it.
    pub devctl: PathBuf,
    /// The value of KUBECONFIG, where it cannot be said with a flag.
    pub kubeconfigs: Option<String>,
    /// What tells it the cluster and the namespace; whatever is current may change before OpenSSH asks.
    pub arguments: Vec<String>,
    /// Keys to offer besides those of a key agent.
    pub identities: Vec<PathBuf>,
    pub places: Places,
    pub forward_agent: bool,
}

impl Route {
    /// The settings that make it work, in the order and form of a configuration file.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        self.settings_with("ssh --stdio '%n'")
    }

    /// OpenSSH puts what was typed for the host into the place of `%n`. A shell reads it afterwards, and hosts may come
    /// from strangers, such as the address of a submodule; OpenSSH refuses quotes in them.
    fn settings_with(&self, connect: &str) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("ProxyCommand", self.proxy_command(connect)),
            ("UserKnownHostsFile", tokens(&setting_path(&self.places.known_hosts()))),
            ("StrictHostKeyChecking", "yes".into()),
            // The key is that of the server's status. One the server would like to add is not.
            ("UpdateHostKeys", "no".into()),
            ("CheckHostIP", "no".into()),
            // Below the time after which proxies on the way give up.
            ("ServerAliveInterval", "30".into()),
            ("ServerAliveCountMax", "4".into()),
            ("ForwardAgent", if self.forward_agent { "yes" } else { "no" }.into()),
        ];
        settings.extend(self.identities.iter().map(|path| ("IdentityFile", tokens(&setting_path(path)))));
        settings
    }

    /// The same as options of a command of ours, with a shared connection of its own: names mean other servers in other
    /// places. The server was awake a moment ago; one that falls asleep meanwhile is not woken behind anybody's back.
    pub fn options(&self, shared: Option<&str>) -> Vec<String> {
        let path = shared.map_or_else(|| "none".to_owned(), |name| self.control_path(name));
        let all = self.settings_with("ssh --no-wake --stdio '%n'").into_iter().chain([("ControlPath", path)]);
        all.map(|(name, value)| format!("-o{name}={value}")).collect()
    }

    fn proxy_command(&self, connect: &str) -> String {
        let devctl = self.devctl.display().to_string();
        let assigned = self.kubeconfigs.as_ref().map(|files| ["env".to_owned(), format!("KUBECONFIG={files}")]);
        let words = assigned.iter().flatten().chain([&devctl]).chain(&self.arguments);
        format!("{} {connect}", tokens(&quote::words(words.map(String::as_str))))
    }

    /// Where sessions that share a connection meet. Short, because sockets have short names.
    pub fn control_path(&self, name: &str) -> String {
        let directory = tokens(&self.places.ours().display().to_string());
        setting_path(Path::new(&format!("{directory}/{name}")))
    }
}

/// A text without anything that OpenSSH would replace.
pub fn tokens(text: &str) -> String {
    text.replace('%', "%%")
}

/// A program of OpenSSH's, or another, with our standard streams; ends as it ends.
///
/// What the terminal sends (Ctrl-C) reaches it without us, and must not end us before it; what others send to us is
/// handed on.
pub async fn run(mut command: Command) -> Result<ExitStatus> {
    // Whoever does not wait for it any more does not want it any more.
    let child = command.kill_on_drop(true).spawn().map_err(|error| not_started(&command, &error))?;
    attend(child).await
}

/// As [`run`], for one that was started already.
pub async fn attend(mut child: Child) -> Result<ExitStatus> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be watched: {error}")));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let from_terminal = std::io::stdin().is_terminal();
    loop {
        let received = tokio::select! {
            status = child.wait() => {
                return status.map_err(|error| Failure::failed(format!("the command cannot be waited for: {error}")));
            }
            _ = interrupt.recv() => (!from_terminal).then_some(Signal::INT),
            _ = quit.recv() => (!from_terminal).then_some(Signal::QUIT),
            _ = terminate.recv() => Some(Signal::TERM),
            _ = hang_up.recv() => Some(Signal::HUP),
        };
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let (Some(signal), Some(id)) = (received, id) {
            // It may have ended this very moment.
            let _ = kill_process(id, signal);
        }
    }
}

/// What a person reads when OpenSSH is not there.
pub fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let advice = match (error.kind(), program.as_str()) {
        (std::io::ErrorKind::NotFound, "ssh" | "scp") => {
            "Install OpenSSH's client (Debian: apt install openssh-client)."
        }
        (std::io::ErrorKind::NotFound, _) => "Install it, or put it on the PATH.",
        _ => "Try again.",
    };
    Failure::failed(format!("{program} cannot be started: {error}")).advise(advice)
}

/// As a shell counts it.
pub fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Quietly, with what it printed.
pub async fn output(mut command: Command) -> Result<std::process::Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.output().await.map_err(|error| not_started(&command, &error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_plain_ssh_wakes_servers() {
        let route = Route {
            devctl: "/usr/bin/devctl".into(),
            kubeconfigs: Some("/a:/b".into()),
            arguments: vec!["--namespace".into(), "dev-ada".into()],
            identities: vec![],
            places: Places::of(Path::new("/home/ada")),
            forward_agent: false,
        };
        let command =
            |connect: &str| format!("env KUBECONFIG=/a:/b /usr/bin/devctl --namespace dev-ada {connect} '%n'");
        assert_eq!(route.settings()[0], ("ProxyCommand", command("ssh --stdio")));
        assert_eq!(route.options(None)[0], format!("-oProxyCommand={}", command("ssh --no-wake --stdio")));
        assert!(route.options(Some("uid.0")).contains(&"-oControlPath=/home/ada/.ssh/odc/uid.0".to_owned()));
    }

    #[tokio::test]
    async fn whoever_is_not_waited_for_is_ended() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pid");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000"]).arg(&file);
        let begun = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = run(command) => panic!("{ended:?}"),
            () = begun => {}
        }
        let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
        let runs = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        let gone = async {
            while runs() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    }

    #[test]
    fn signals_count_as_in_a_shell() {
        let ended = |script: &str| code(std::process::Command::new("sh").args(["-c", script]).status().unwrap());
        assert_eq!((ended("exit 7"), ended("kill -TERM $$"), ended("true")), (7, 143, 0));
    }
}
