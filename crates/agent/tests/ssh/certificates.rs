//! Certificate authentication.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::server::{Running, Server, ServerBuilder, UID, keygen};

/// CA keys in the directory of the server. `user_ca` and `control_ca` are trusted, `foreign_ca` is not. `holder` is the
/// key that is certified.
pub struct Authorities(PathBuf);

impl Authorities {
    pub fn create(builder: &ServerBuilder) -> Self {
        for name in ["user_ca", "control_ca", "foreign_ca", "holder"] {
            keygen(builder.dir_path(), name);
        }
        for name in ["user_ca.pub", "control_ca.pub"] {
            fs::copy(builder.path(name), builder.path("keys").join(name)).unwrap();
        }
        Self(builder.dir_path().to_owned())
    }

    /// Signs a certificate with additional arguments for `ssh-keygen`, and returns a client that has only this
    /// certificate.
    fn client(&self, server: &Server, authority: &str, principal: &str, args: &[&str]) -> Command {
        let signed = Command::new("ssh-keygen")
            .current_dir(&self.0)
            .args(["-q", "-s", authority, "-I", "test", "-n", principal])
            .args(args)
            .arg("holder.pub")
            .output()
            .unwrap();
        assert!(signed.status.success(), "{signed:?}");
        let default_identity = format!("IdentityFile={}", server.path("id").display());
        let client = server.client("ssh");
        let args = client.get_args().filter(|arg| *arg != default_identity.as_str());
        let mut command = Command::new("ssh");
        // Drops the `-o` of the removed option.
        let mut remaining: Vec<_> = Vec::new();
        for arg in args {
            if arg == "-o" && remaining.last().is_some_and(|last| *last == "-o") {
                continue;
            }
            remaining.push(arg);
        }
        command.args(remaining).arg("-o").arg(format!("IdentityFile={}", server.path("holder").display()));
        command.arg("-o").arg(format!("CertificateFile={}", server.path("holder-cert.pub").display()));
        command.stdin(Stdio::null()).env_remove("SSH_AUTH_SOCK");
        command
    }

    /// Sends one line to the control subsystem and returns its reply.
    pub fn control(&self, server: &Server, line: &str) -> String {
        let mut command = self.client(server, "control_ca", &format!("control:{UID}"), &["-V", "-1m:+5m"]);
        command.args(["-s", "odc@127.0.0.1", "odc-control"]);
        let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        client.0.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut reply = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut reply).unwrap();
        reply
    }
}

fn shell(mut client: Command) -> Output {
    client.args(["dev@127.0.0.1", "exit 42"]).output().unwrap()
}

#[test]
fn only_valid_user_certificates_are_accepted() {
    let builder = ServerBuilder::new();
    let authorities = Authorities::create(&builder);
    let server = builder.start();
    let (user, control) = (format!("user:{UID}"), format!("control:{UID}"));
    let now = ["-V", "-1m:+5m"];
    for (description, authority, principal, args, accepted) in [
        ("good", "user_ca", user.as_str(), &now[..], true),
        ("unlimited", "user_ca", &user, &["-V", "always:forever"], true),
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
        let output = shell(authorities.client(&server, authority, principal, args));
        assert_eq!(output.status.code(), Some(if accepted { 42 } else { 255 }), "{description}: {output:?}");
    }
    server.wait_for_text("log", "Certificate is expired or not yet valid");
    server.wait_for_text("log", "certificate \"test\": unsupported critical option \"x@example.com\"");
}

#[test]
fn control_subsystem_is_reserved_for_the_operator() {
    let builder = ServerBuilder::new();
    let authorities = Authorities::create(&builder);
    let server = builder.start();
    let operator = || authorities.client(&server, "control_ca", &format!("control:{UID}"), &["-V", "-1m:+5m"]);
    let assert_fails = |mut client: Command, args: &[&str]| {
        let output = client.args(args).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {output:?}");
    };
    assert_fails(operator(), &["dev@127.0.0.1", "echo in"]);
    assert_fails(operator(), &["-s", "dev@127.0.0.1", "sftp"]);
    assert_fails(operator(), &["-W", &format!("127.0.0.1:{}", server.address.port()), "dev@127.0.0.1"]);
    assert_fails(operator(), &["-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:127.0.0.1:1", "dev@127.0.0.1"]);
    assert!(!authorities.control(&server, "{}").is_empty());

    let user = || authorities.client(&server, "user_ca", &format!("user:{UID}"), &["-V", "-1m:+5m"]);
    assert_fails(user(), &["-s", "dev@127.0.0.1", "odc-control"]);
    let mut by_key = server.client("ssh");
    by_key.args(["-s", "dev@127.0.0.1", "odc-control"]);
    assert_fails(by_key, &[]);
}
