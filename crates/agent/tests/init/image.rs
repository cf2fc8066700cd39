//! Images that have nothing: no shell, no account, no place to write.

use std::fs;

use odc_agent::state::Phase;
use odc_control::Outcome;

use crate::server::{Plan, ended, eventually, outcome};

/// The home becomes the root of an image that holds the agent and empty directories. The agent is mounted and not copied:
/// a file that was just written may still be open in a process that another test is starting, and cannot be executed then.
const BARE: &str = "
    mkdir -p $R/proc $R/dev/shm; touch $R/odc-agent
    mount --bind $R $R; mount --bind $AGENT $R/odc-agent";

const READ_ONLY: &str = "mount -t proc proc $R/proc; mount -o remount,bind,ro $R";

fn bare(then: &str) -> Plan {
    Plan::new().no_flags().wrapper(&format!("{BARE}\n{then}\nexec chroot $R \"$@\""))
}

#[test]
fn without_shell_accounts_and_even_proc_the_server_runs_what_it_can() {
    let plan = bare("");
    fs::write(plan.home().join("script"), "echo hi\n").unwrap();
    let plan = plan.flag("--state-dir=/state").flag("--setup=/script").flag("--pre-stop=/script");
    let mut server = plan.entrypoint(&["/odc-agent", "install", "--to", "/copy"]).start();

    let state = server.wait_for("the entrypoint ends", |state| ended(state.entrypoint.as_ref()));
    let no_shell = outcome(state.setup);
    assert!(no_shell.to_string().contains("this image has no shell"), "{no_shell}");
    server.wait_for_text("stderr", "this image has no shell");
    // It needs /proc to find itself, so it fails, but it ran.
    assert_eq!(outcome(state.entrypoint), Outcome::Code(1));
    let probe = server.run_inside(&["/odc-agent", "probe", "--state-dir=/state"]);
    assert!(probe.status.success(), "{probe:?}");
    assert_eq!(server.stop().0, 0);
    assert_eq!(outcome(server.state().unwrap().pre_stop), no_shell);
}

#[test]
fn on_a_read_only_root_the_state_is_kept_in_memory_and_the_probe_finds_it() {
    let mut server = bare(&format!("{READ_ONLY}; mount -t tmpfs tmpfs $R/dev/shm")).start();
    let probe = || server.run_inside(&["/odc-agent", "probe"]);
    let ready = eventually("the probe passes", || Some(probe()).filter(|probe| probe.status.success()));
    assert_eq!(ready.stdout, b"ready\n");
    assert_eq!(server.stop().0, 0);
}

#[test]
fn with_no_place_for_its_state_the_server_runs_and_says_why_no_probe_passes() {
    let mut server = bare(READ_ONLY).start();
    server.wait_for_text("stderr", "no state can be written");
    let probe = server.run_inside(&["/odc-agent", "probe"]);
    assert_eq!(probe.status.code(), Some(1));
    let said = String::from_utf8(probe.stdout).unwrap();
    assert!(said.contains("/run/odc or /dev/shm/odc or /tmp/odc"), "{said}");
    assert_eq!(server.stop().0, 0);
}

#[test]
fn a_user_nobody_knows_has_a_server_like_any_other() {
    let setup = "id -u; id -un 2>/dev/null || echo nobody knows";
    let mut server = Plan::new().user(54321).setup(setup).pre_stop("id -u").shell("exec sleep 1000").start();
    let state = server.wait_running();
    assert_eq!(outcome(state.setup), Outcome::Code(0));
    server.wait_for_text("state/setup.log", "nobody knows\n");
    assert!(server.text("state/setup.log").starts_with("54321\n"));
    assert_eq!(server.stop().0, 0);
    assert_eq!(server.text("state/pre-stop.log"), "54321\n");
    assert_eq!(server.state().unwrap().phase, Phase::Stopping);
}

#[test]
fn without_a_home_scripts_run_where_the_container_starts() {
    let mut server = Plan::new().setup("pwd").wrapper("unset HOME; cd /; shift; exec $AGENT \"$@\"").start();
    server.wait_running();
    server.wait_for_text("state/setup.log", "/\n");
    assert_eq!(server.stop().0, 0);
}
