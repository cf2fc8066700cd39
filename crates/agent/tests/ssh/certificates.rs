//! Who gets in by certificate: those of the right authority, for this server, in time, and as nobody else.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::server::{Plan, Running, Server, UID, keygen};

/// Keys that sign, in the server's place. `user_ca` and `control_ca` count, `foreign_ca` does not; `holder` is the key that
/// certificates are for.
pub struct Authorities(PathBuf);

impl Authorities {
    pub fn make(plan: &Plan) -> Self {
        for name in ["user_ca", "control_ca", "foreign_ca", "holder"] {
            keygen(plan.place_path(), name);
        }
        for name in ["user_ca.pub", "control_ca.pub"] {
            fs::copy(plan.path(name), plan.path("keys").join(name)).unwrap();
        }
        Self(plan.place_path().to_owned())
    }

    /// Signs with further words for `ssh-keygen`, and gives a client that has only this certificate.
    fn client(&self, server: &Server, authority: &str, principal: &str, words: &[&str]) -> Command {
        let signed = Command::new("ssh-keygen")
            .current_dir(&self.0)
            .args(["-q", "-s", authority, "-I", "test", "-n", principal])
            .args(words)
            .arg("holder.pub")
            .output()
            .unwrap();
        assert!(signed.status.success(), "{signed:?}");
        let own = format!("IdentityFile={}", server.path("id").display());
        let client = server.client("ssh");
        let words = client.get_args().filter(|word| *word != own.as_str());
        let mut command = Command::new("ssh");
        // A dangling -o would take the next word.
        let mut kept: Vec<_> = Vec::new();
        for word in words {
            if word == "-o" && kept.last().is_some_and(|last| *last == "-o") {
                continue;
            }
            kept.push(word);
        }
        command.args(kept).arg("-o").arg(format!("IdentityFile={}", server.path("holder").display()));
        command.arg("-o").arg(format!("CertificateFile={}", server.path("holder-cert.pub").display()));
        command.stdin(Stdio::null()).env_remove("SSH_AUTH_SOCK");
        command
    }

    /// One line to the control subsystem, and what it answers.
    pub fn control(&self, server: &Server, line: &str) -> String {
        let mut command = self.client(server, "control_ca", &format!("control:{UID}"), &["-V", "-1m:+5m"]);
        command.args(["-s", "odc@127.0.0.1", "odc-control"]);
        let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        client.0.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut said = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

fn shell(mut client: Command) -> Output {
    client.args(["dev@127.0.0.1", "exit 42"]).output().unwrap()
}

#[test]
fn a_certificate_lets_in_whom_it_should_and_nobody_else() {
    let plan = Plan::new();
    let authorities = Authorities::make(&plan);
    let server = plan.start();
    let (user, control) = (format!("user:{UID}"), format!("control:{UID}"));
    let now = ["-V", "-1m:+5m"];
    for (what, authority, principal, words, lets_in) in [
        ("good", "user_ca", user.as_str(), &now[..], true),
        ("for ever", "user_ca", &user, &["-V", "always:forever"], true),
        ("expired", "user_ca", &user, &["-V", "-5m:-1m"], false),
        ("not yet", "user_ca", &user, &["-V", "+5m:+9m"], false),
        ("foreign authority", "foreign_ca", &user, &now, false),
        ("for hosts", "user_ca", &user, &["-h", "-V", "-1m:+5m"], false),
        ("another server", "user_ca", "user:other", &now, false),
        ("the other principal", "user_ca", &control, &now, false),
        ("the other authority", "control_ca", &user, &now, false),
        ("forced command", "user_ca", &user, &["-O", "force-command=/bin/true", "-V", "-1m:+5m"], false),
        ("source address", "user_ca", &user, &["-O", "source-address=127.0.0.1/32", "-V", "-1m:+5m"], false),
        ("unknown critical option", "user_ca", &user, &["-O", "critical:x@example.com=1", "-V", "-1m:+5m"], false),
        ("unknown extension", "user_ca", &user, &["-O", "extension:x@example.com=1", "-V", "-1m:+5m"], true),
    ] {
        let output = shell(authorities.client(&server, authority, principal, words));
        assert_eq!(output.status.code(), Some(if lets_in { 42 } else { 255 }), "{what}: {output:?}");
    }
    server.wait_for_text("log", "Certificate is expired or not yet valid");
    server.wait_for_text("log", "certificate \"test\": it has the critical option \"x@example.com\"");
}

#[test]
fn the_operator_has_its_subsystem_and_nothing_else_and_people_have_not() {
    let plan = Plan::new();
    let authorities = Authorities::make(&plan);
    let server = plan.start();
    let operator = || authorities.client(&server, "control_ca", &format!("control:{UID}"), &["-V", "-1m:+5m"]);
    let failed = |mut client: Command, words: &[&str]| {
        let output = client.args(words).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}: {output:?}");
    };
    failed(operator(), &["dev@127.0.0.1", "echo in"]);
    failed(operator(), &["-s", "dev@127.0.0.1", "sftp"]);
    failed(operator(), &["-W", &format!("127.0.0.1:{}", server.address.port()), "dev@127.0.0.1"]);
    failed(operator(), &["-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:127.0.0.1:1", "dev@127.0.0.1"]);
    assert!(!authorities.control(&server, "{}").is_empty());

    let person = || authorities.client(&server, "user_ca", &format!("user:{UID}"), &["-V", "-1m:+5m"]);
    failed(person(), &["-s", "dev@127.0.0.1", "odc-control"]);
    let mut by_key = server.client("ssh");
    by_key.args(["-s", "dev@127.0.0.1", "odc-control"]);
    failed(by_key, &[]);
}
