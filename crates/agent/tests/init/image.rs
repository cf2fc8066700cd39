//! Minimal images: without shell, accounts or writable directories.

use std::fs;

use odc_agent::init_state::Phase;
use odc_control::Outcome;

use crate::harness::{ServerBuilder, has_exited, outcome, wait_until};

/// Makes the home the root of an image with the agent and empty directories. The agent is bind-mounted instead of
/// copied: a copy may still be open for writing in a process that another test forks, and execve(2) would fail with
/// ETXTBSY.
const MINIMAL_ROOT: &str = "
    mkdir -p $R/proc $R/dev/shm; touch $R/odc-agent
    mount --bind $R $R; mount --bind $AGENT $R/odc-agent";

const READ_ONLY: &str = "mount -t proc proc $R/proc; mount -o remount,bind,ro $R";

/// Returns a server whose root directory is the home.
pub fn minimal(then: &str) -> ServerBuilder {
    ServerBuilder::new().no_flags().wrapper(&format!("{MINIMAL_ROOT}\n{then}\nexec chroot $R \"$@\""))
}

#[test]
fn server_runs_without_shell_accounts_and_proc() {
    let builder = minimal("");
    fs::write(builder.home().join("script"), "echo hi\n").unwrap();
    let builder = builder.flag("--state-dir=/state").flag("--setup=/script").flag("--pre-stop=/script");
    let mut server = builder.entrypoint(&["/odc-agent", "install", "--to", "/copy"]).start();

    let state = server.wait_for("the entrypoint exits", |state| has_exited(state.entrypoint.as_ref()));
    let no_shell = outcome(state.setup);
    assert!(no_shell.to_string().contains("this image has no shell"), "{no_shell}");
    server.wait_for_text("stderr", "this image has no shell");
    // Fails because it needs /proc to locate itself, but it was executed.
    assert_eq!(outcome(state.entrypoint), Outcome::Code(1));
    let probe = server.run_inside(&["/odc-agent", "probe", "--state-dir=/state"]);
    assert!(probe.status.success(), "{probe:?}");
    assert_eq!(server.stop(), 0);
    assert_eq!(outcome(server.state().unwrap().pre_stop), no_shell);
}

#[test]
fn read_only_root_uses_the_state_directory_in_dev_shm() {
    let mut server = minimal(&format!("{READ_ONLY}; mount -t tmpfs tmpfs $R/dev/shm")).start();
    let probe = || server.run_inside(&["/odc-agent", "probe"]);
    let ready = wait_until("the probe passes", || Some(probe()).filter(|probe| probe.status.success()));
    assert_eq!(ready.stdout, b"ready\n");
    assert_eq!(server.stop(), 0);
}

#[test]
fn server_without_writable_state_directory_runs_and_probes_fail() {
    let mut server = minimal(READ_ONLY).start();
    server.wait_for_text("stderr", "cannot write the state; readiness probes will fail");
    let probe = server.run_inside(&["/odc-agent", "probe"]);
    assert_eq!(probe.status.code(), Some(1));
    let output = String::from_utf8(probe.stdout).unwrap();
    assert!(output.contains("/run/odc or /dev/shm/odc or /tmp/odc"), "{output}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn user_without_passwd_entry_is_supported() {
    let setup = "id -u; id -un 2>/dev/null || echo unknown";
    let mut server = ServerBuilder::new().user(54321).setup(setup).pre_stop("id -u").shell("exec sleep 1000").start();
    let state = server.wait_running();
    assert_eq!(outcome(state.setup), Outcome::Code(0));
    server.wait_for_text("state/setup.log", "unknown\n");
    assert!(server.text("state/setup.log").starts_with("54321\n"));
    assert_eq!(server.stop(), 0);
    assert_eq!(server.text("state/pre-stop.log"), "54321\n");
    assert_eq!(server.state().unwrap().phase, Phase::Stopping);
}

#[test]
fn scripts_without_home_run_in_the_initial_directory() {
    let mut server = ServerBuilder::new().setup("pwd").wrapper("unset HOME; cd /; shift; exec $AGENT \"$@\"").start();
    server.wait_running();
    server.wait_for_text("state/setup.log", "/\n");
    assert_eq!(server.stop(), 0);
}
