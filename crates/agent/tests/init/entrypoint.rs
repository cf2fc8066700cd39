//! The entrypoint: start, signals, exit.

use odc_agent::init_state::Phase;
use odc_control::Outcome;

use crate::harness::{ServerBuilder, wait_until, wait_with_traps};

#[test]
fn orphans_are_reaped_and_the_exit_code_is_reported() {
    let flood = "i=0; while [ $i -lt 300 ]; do (sh -c : &); i=$((i + 1)); done; exit 42";
    let mut server = ServerBuilder::new().shell(flood).start();
    assert_eq!(server.wait_entrypoint(), Outcome::Code(42));
    wait_until("all children are reaped", || server.children().is_empty().then_some(()));
    assert_eq!(server.probe(), (Some(0), "ready; entrypoint exited with code 42".to_owned()));
    assert_eq!(server.stop(), 0);
}

#[test]
fn running_orphan_is_not_killed() {
    let mut server = ServerBuilder::new().shell("(sleep 1000 &); exit 0").start();
    assert_eq!(server.wait_entrypoint(), Outcome::Code(0));
    assert!(!matches!(server.children()[..], [] | ['Z', ..]));
    assert_eq!(server.stop(), 0);
}

#[test]
fn internal_signals_reach_the_entrypoint() {
    let signals = ["HUP", "INT", "QUIT", "USR1", "USR2", "WINCH"];
    let traps: String = signals.iter().map(|signal| format!("trap 'echo {signal} >>$HOME/got' {signal}; ")).collect();
    let text = wait_with_traps(&traps);
    let mut server = ServerBuilder::new().shell(&text).start();
    server.wait_for_file("ready");
    for signal in signals {
        server.signal_internally(signal);
        server.wait_for_text("got", &format!("{signal}\n"));
    }
    assert_eq!(server.text("got"), signals.map(|signal| format!("{signal}\n")).concat());
    assert_eq!(server.state().unwrap().phase, Phase::Running);
    assert_eq!(server.stop(), 0);
}

#[test]
fn entrypoint_exit_keeps_the_server_by_default() {
    for (words, outcome) in [
        (&["/bin/sh", "-c", "exit 3"][..], Outcome::Code(3)),
        (&["/bin/sh", "-c", "kill -KILL $$"], Outcome::Signal(9)),
        (&["no-such-program"], Outcome::failed_to_start("no-such-program", &std::io::Error::from_raw_os_error(2))),
        (&["/dev/null"], Outcome::failed_to_start("/dev/null", &std::io::Error::from_raw_os_error(13))),
    ] {
        let mut server = ServerBuilder::new().entrypoint(words).start();
        assert_eq!(server.wait_entrypoint(), outcome);
        assert_eq!(server.state().unwrap().phase, Phase::Running);
        assert_eq!(server.probe(), (Some(0), format!("ready; entrypoint {outcome}")));
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn entrypoint_exit_stops_the_server_with_its_code_on_request() {
    for (words, code) in [
        (&["/bin/sh", "-c", "exit 0"][..], 0),
        (&["/bin/sh", "-c", "exit 7"], 7),
        (&["/bin/sh", "-c", "kill -KILL $$"], 137),
        (&["no-such-program"], 127),
        (&["/dev/null"], 126),
    ] {
        let mut server = ServerBuilder::new().flag("--entrypoint-exit=stop").entrypoint(words).start();
        assert_eq!(server.wait_code(), code, "{words:?}");
        assert_eq!(server.state().unwrap().phase, Phase::Stopping);
    }
}

#[test]
fn remaining_processes_are_terminated_without_pre_stop() {
    let background = wait_with_traps("trap 'touch $HOME/ended; exit' TERM;");
    let entrypoint = format!("({background}) & until [ -e $HOME/ready ]; do sleep 0.01; done; exit 5");
    let builder = ServerBuilder::new().flag("--entrypoint-exit=stop").pre_stop("touch $HOME/pre-stop-ran");
    let mut server = builder.shell(&entrypoint).start();
    assert_eq!(server.wait_code(), 5);
    assert!(server.path("ended").exists());
    assert!(!server.path("pre-stop-ran").exists());
    assert_eq!(server.state().unwrap().pre_stop, None);
}

#[test]
fn entrypoint_inherits_environment_directory_and_output() {
    let mut server = ServerBuilder::new().shell("echo $R; pwd; echo oops >&2; exec ps -o pid=,pgid= -p $$").start();
    assert_eq!(server.wait_entrypoint(), Outcome::Code(0));
    let (home, current_dir) = (server.home.path().to_str().unwrap(), std::env::current_dir().unwrap());
    let stdout = server.text("stdout");
    let [environment, directory, group]: [&str; 3] = stdout.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((environment, directory), (home, current_dir.to_str().unwrap()));
    let [pid, process_group]: [&str; 2] = group.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(pid, process_group, "it is the leader of its process group");
    assert!(server.text("stderr").contains("oops\n"));
    assert_eq!(server.stop(), 0);
}
