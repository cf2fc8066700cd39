//! Restarts of `serve`, servers during setup, minimal images, and keepalives.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Running, Server, ServerBuilder, wait_until};

/// Reports whether the server sends its version string. A process that is being killed may still accept connections.
fn sends_version(server: &Server) -> bool {
    let Ok(mut stream) = TcpStream::connect(server.address) else { return false };
    let mut version = [0; 12];
    stream.read_exact(&mut version).is_ok_and(|()| &version == b"SSH-2.0-ODC_")
}

#[test]
fn jobs_survive_a_restart_of_serve_and_logins_resume() {
    let server = ServerBuilder::new().fixed_port().start();
    let tick = server.path("tick").display().to_string();
    let line = format!("setsid nohup sh -c 'while sleep 0.05; do date +%N > {tick}; done' >/dev/null 2>&1 & ");
    server.stdout(&line);
    server.stdout("tmux -S $HOME/tmux new-session -d 'sleep 1000'");
    let mark = server.path("in").display().to_string();
    let mut client = Running::start(server.ssh(&[]).arg(format!("touch {mark}; sleep 1000")));
    wait_until("the session has started", || server.path("in").exists().then_some(()));
    let killed = server.serve_pid().unwrap();
    kill_process(Pid::from_raw(killed.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("serve is restarted", || sends_version(&server).then_some(()));
    assert_eq!(client.code(), Some(255));
    assert_eq!(server.stdout("echo in"), "in\n");
    let before = server.text("tick");
    wait_until("the job continues", || (server.text("tick") != before).then_some(()));
    assert!(server.stdout("tmux -S $HOME/tmux list-sessions").starts_with("0:"));
    let state = server.state();
    assert!(state.serve.unwrap().ended.is_none());
}

#[test]
fn logins_work_during_setup_and_the_probe_fails() {
    let builder = ServerBuilder::new();
    let go = builder.path("go");
    fs::write(builder.path("setup.sh"), format!("while ! [ -e {} ]; do sleep 0.05; done\n", go.display())).unwrap();
    let setup = format!("--setup={}", builder.path("setup.sh").display());
    let server = builder.flag(setup).start();
    let probe = format!("/proc/1/exe probe --state-dir {}", server.path("state").display());
    let output = server.run(&probe);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "setup is running\n");
    fs::write(&go, "").unwrap();
    wait_until("the probe passes", || server.run(&probe).status.success().then_some(()));
}

#[test]
fn image_without_shell_supports_files_and_forwarding() {
    let minimal = "
        mkdir -p $R/proc $R/dev; touch $R/odc-agent
        mount --bind $R $R; mount --bind $AGENT $R/odc-agent; mount -t proc proc $R/proc
        for file in null random urandom; do touch $R/dev/$file; mount --bind /dev/$file $R/dev/$file; done
        exec chroot $R \"$@\"";
    let server = ServerBuilder::new().wrapper(minimal).start();
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
fn read_only_image_with_busybox_is_supported() {
    // Needs Debian's package busybox-static.
    let read_only = "
        mkdir -p $R/proc $R/dev $R/bin; touch $R/odc-agent $R/bin/sh
        mount --bind $R $R; mount --bind $AGENT $R/odc-agent; mount --bind /usr/bin/busybox $R/bin/sh
        mount -t proc proc $R/proc
        for file in null random urandom; do touch $R/dev/$file; mount --bind /dev/$file $R/dev/$file; done
        for dir in home state; do mount --bind $R/$dir $R/$dir; done
        mount -o remount,bind,ro $R
        exec chroot $R \"$@\"";
    let server = ServerBuilder::new().wrapper(read_only).start();
    assert_eq!(server.stdout("echo $0 $((6*7)); pwd; echo kept >file"), "sh 42\n/home\n");
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

/// A client is disconnected after 40 unanswered keepalives.
const KEEPALIVE: Duration = Duration::from_millis(100);

#[test]
fn idle_client_stays_connected_and_frozen_client_does_not() {
    let server = ServerBuilder::new().serve_only().flag(format!("--keepalive={}", KEEPALIVE.as_millis())).start();
    let start = |name: &str| {
        let line = format!("trap 'touch $HOME/{name}-ended' HUP EXIT; touch $HOME/{name}-in; read line; echo $line");
        let client = server.ssh(&[]).arg(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        wait_until("the session has started", || server.path(&format!("home/{name}-in")).exists().then_some(()));
        Running(client)
    };
    let (mut quiet, mut frozen) = (start("quiet"), start("frozen"));
    let started = Instant::now();
    let pid = Pid::from_raw(frozen.0.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    wait_until("the frozen client is disconnected", || server.path("home/frozen-ended").exists().then_some(()));
    // The other client was idle as long, but answers keepalives.
    assert!(started.elapsed() >= 20 * KEEPALIVE, "{:?}", started.elapsed());
    let mut stdin = quiet.0.stdin.take().unwrap();
    stdin.write_all(b"still here\n").unwrap();
    let mut echoed = String::new();
    quiet.0.stdout.take().unwrap().read_to_string(&mut echoed).unwrap();
    assert_eq!(echoed, "still here\n");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(frozen.code(), Some(255));
}
