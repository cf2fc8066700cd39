//! What goes on when `serve` is killed, and how soon people are let in again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Plan, Running, Server, eventually};

/// Whether it says who it is. One that is being killed may still take a connection.
fn greets(server: &Server) -> bool {
    let Ok(mut stream) = TcpStream::connect(server.address) else { return false };
    let mut greeting = [0; 12];
    stream.read_exact(&mut greeting).is_ok_and(|()| &greeting == b"SSH-2.0-ODC_")
}

#[test]
fn jobs_survive_the_end_of_serve_and_people_are_soon_back() {
    let server = Plan::new().fixed_port().start();
    let tick = server.path("tick").display().to_string();
    let line = format!("setsid nohup sh -c 'while sleep 0.05; do date +%N > {tick}; done' >/dev/null 2>&1 & ");
    server.said(&line);
    server.said("tmux -S $HOME/tmux new-session -d 'sleep 1000'");
    let mark = server.path("in").display().to_string();
    let mut client = Running::start(server.ssh(&[]).arg(format!("touch {mark}; sleep 1000")));
    eventually("the client is in", || server.path("in").exists().then_some(()));
    let killed = server.serve_pid().unwrap();
    let begun = Instant::now();
    kill_process(Pid::from_raw(killed.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    eventually("somebody answers", || greets(&server).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(client.code(), Some(255));
    assert_eq!(server.said("echo in"), "in\n");
    let before = server.text("tick");
    eventually("the job goes on", || (server.text("tick") != before).then_some(()));
    assert!(server.said("tmux -S $HOME/tmux list-sessions").starts_with("0:"));
    let state = server.state();
    assert!(state.serve.unwrap().ended.is_none());
}

#[test]
fn people_get_in_while_setup_runs_and_the_probe_waits_for_it() {
    let plan = Plan::new();
    let go = plan.path("go");
    fs::write(plan.path("setup.sh"), format!("while ! [ -e {} ]; do sleep 0.05; done\n", go.display())).unwrap();
    let setup = format!("--setup={}", plan.path("setup.sh").display());
    let server = plan.flag(setup).start();
    let probe = format!("/proc/1/exe probe --state-dir {}", server.path("state").display());
    let output = server.run(&probe);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "setup is still running\n");
    fs::write(&go, "").unwrap();
    eventually("the probe passes", || server.run(&probe).status.success().then_some(()));
}

#[test]
fn an_image_with_nothing_says_so_and_still_takes_files_and_connections() {
    let bare = "
        mkdir -p $R/proc $R/dev; touch $R/odc-agent
        mount --bind $R $R; mount --bind $AGENT $R/odc-agent; mount -t proc proc $R/proc
        for file in null random urandom; do touch $R/dev/$file; mount --bind /dev/$file $R/dev/$file; done
        exec chroot $R \"$@\"";
    let server = Plan::new().wrapper(bare).start();
    for client in [&mut server.ssh(&[]), server.ssh(&[]).arg("true")] {
        let output = client.output().unwrap();
        assert_eq!(output.status.code(), Some(127), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("this image has no shell"));
    }
    fs::write(server.path("f"), "content").unwrap();
    let from = server.path("f").display().to_string();
    let output = server.client("scp").args(["-q", &from, "dev@127.0.0.1:copy"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.text("home/copy"), "content");
    let to_itself = format!("127.0.0.1:{}", server.address.port());
    let output = server.ssh(&["-W", &to_itself]).output().unwrap();
    assert!(output.stdout.starts_with(b"SSH-2.0-ODC_"), "{output:?}");
}

#[test]
fn an_image_with_one_shell_and_a_root_nobody_can_write_is_a_server_too() {
    // The shell is Debian's package busybox-static.
    let read_only = "
        mkdir -p $R/proc $R/dev $R/bin; touch $R/odc-agent $R/bin/sh
        mount --bind $R $R; mount --bind $AGENT $R/odc-agent; mount --bind /usr/bin/busybox $R/bin/sh
        mount -t proc proc $R/proc
        for file in null random urandom; do touch $R/dev/$file; mount --bind /dev/$file $R/dev/$file; done
        for place in home state; do mount --bind $R/$place $R/$place; done
        mount -o remount,bind,ro $R
        exec chroot $R \"$@\"";
    let server = Plan::new().wrapper(read_only).start();
    assert_eq!(server.said("echo $0 $((6*7)); pwd; echo kept >file"), "sh 42\n/home\n");
    assert_eq!(server.text("home/file"), "kept\n");
    let output = server.run("echo lost >/file");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"), "{output:?}");
    assert_eq!(server.run("kill -TERM $$").status.code(), Some(143));
    let from = server.path("id.pub").display().to_string();
    let output = server.client("scp").args(["-q", &from, "dev@127.0.0.1:copy"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.text("home/copy"), server.text("id.pub"));
    let output = server.client("scp").args(["-q", &from, "dev@127.0.0.1:/copy"]).output().unwrap();
    assert!(!output.status.success());
}

/// Forty questions without an answer, and a client is gone.
const KEEPALIVE: Duration = Duration::from_millis(25);

#[test]
fn a_quiet_session_stays_and_a_client_that_is_gone_does_not() {
    let server = Plan::new().alone().flag(format!("--keepalive={}", KEEPALIVE.as_millis())).start();
    let start = |name: &str| {
        let line = format!("trap 'touch $HOME/{name}-ended' HUP EXIT; touch $HOME/{name}-in; read line; echo $line");
        let client = server.ssh(&[]).arg(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        eventually("it is in", || server.path(&format!("home/{name}-in")).exists().then_some(()));
        Running(client)
    };
    let (mut quiet, mut frozen) = (start("quiet"), start("frozen"));
    let begun = Instant::now();
    let pid = Pid::from_raw(frozen.0.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    eventually("the frozen one is given up", || server.path("home/frozen-ended").exists().then_some(()));
    // The other was as quiet for as long, but it answers.
    assert!(begun.elapsed() >= 20 * KEEPALIVE, "{:?}", begun.elapsed());
    let mut typed = quiet.0.stdin.take().unwrap();
    typed.write_all(b"still here\n").unwrap();
    let mut heard = String::new();
    quiet.0.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "still here\n");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(frozen.code(), Some(255));
}
