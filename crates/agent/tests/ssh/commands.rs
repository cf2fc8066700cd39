//! Commands without a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::thread;

use crate::server::{Running, Server, ServerBuilder, random_bytes};

const LARGE_BYTES: usize = 64 << 20;

#[test]
fn exit_codes_and_signals_are_reported() {
    let server = Server::start();
    for (line, code) in
        [("exit 42", 42), ("true", 0), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("/no/such", 127)]
    {
        assert_eq!(server.run(line).status.code(), Some(code), "{line}");
    }
}

#[test]
fn stdout_and_stderr_are_separate() {
    let server = Server::start();
    let output = server.run("echo out; echo err >&2");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
}

#[test]
fn large_data_round_trips() {
    let server = Server::start();
    let data = random_bytes(LARGE_BYTES);
    let mut client = Running::start(server.ssh(&[]).arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut stdin = client.0.stdin.take().unwrap();
    let sent = data.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut back = Vec::new();
    client.0.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(client.code(), Some(0));
    assert!(back == data, "received {} of {} bytes", back.len(), data.len());
}

#[test]
fn command_with_more_output_than_input_does_not_deadlock() {
    let server = Server::start();
    let mut client = Running::start(
        server
            .ssh(&[])
            .arg("od -An -v -tx1 | tr -d ' \\n' | wc -c; cat >/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    );
    client.0.stdin.take().unwrap().write_all(&random_bytes(4 << 20)).unwrap();
    let mut text = String::new();
    client.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text.trim(), (8 << 20).to_string());

    // Output flows while more input is sent.
    let mut client = Running::start(server.ssh(&[]).arg("od -An -v -tx1").stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut stdin = client.0.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(&random_bytes(16 << 20)).unwrap());
    let mut back = Vec::new();
    client.0.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(back.iter().filter(|byte| byte.is_ascii_hexdigit()).count(), 32 << 20);
}

#[test]
fn unread_input_is_not_buffered_without_limit() {
    let server = Server::start();
    let zeros = File::open("/dev/zero").unwrap();
    let line = "sleep 1; grep -h ^VmRSS: $(grep -l odc-agent /proc/[0-9]*/comm | sed 's/comm/status/')";
    let output = server.ssh(&[]).arg(line).stdin(zeros).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let max_rss = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max().unwrap();
    assert!(max_rss < 64 << 10, "{text}");
}

#[test]
fn unread_output_is_not_buffered_without_limit() {
    let server = Server::start();
    let mut client = Running::start(server.ssh(&[]).arg("cat /dev/zero").stdout(Stdio::piped()));
    let mut first = [1; 1];
    client.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // Buffers are full by the time another command has finished.
    for _ in 0..5 {
        let text = server.stdout("grep -h ^VmRSS: $(grep -l odc-agent /proc/[0-9]*/comm | sed 's/comm/status/')");
        let max_rss = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max().unwrap();
        assert!(max_rss < 64 << 10, "{text}");
    }
}

#[test]
fn eof_reaches_the_command() {
    let server = Server::start();
    assert_eq!(server.stdout("cat; echo over"), "over\n");
}

#[test]
fn background_process_delays_close_only_if_it_holds_the_output() {
    let server = Server::start();
    assert_eq!(server.stdout("sleep 1000 >/dev/null 2>&1 & echo gone"), "gone\n");
    // As with sshd, the channel stays open while a process can write to it.
    assert_eq!(server.stdout("(sleep 0.5; echo late) & echo first"), "first\nlate\n");
}

#[test]
fn command_has_environment_and_home() {
    let server = Server::start();
    let home = server.path("home").display().to_string();
    let output = server
        .ssh(&["-o", "SendEnv=LC_* EVIL"])
        .env("LC_CTYPE", "C.UTF-8")
        .env("EVIL", "1")
        .arg("pwd; echo $HOME $OMP_NUM_THREADS $LC_CTYPE [$EVIL] ${PATH##*:}; echo $SSH_CONNECTION | wc -w; ps -o sid= $$ | grep -q $$ && echo leader")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, format!("{home}\n{home} 7 C.UTF-8 [] /odc/bin\n4\nleader\n"));
}

#[test]
fn command_without_home_starts_in_the_root_directory() {
    let server = Server::start();
    std::fs::remove_dir_all(server.path("home")).unwrap();
    assert_eq!(server.stdout("pwd"), "/\n");
}

#[test]
fn fifty_concurrent_connections_are_served() {
    let server = Server::start();
    let mut clients: Vec<Running> =
        (0..50).map(|number| Running::start(server.ssh(&[]).arg(format!("exit {number}")))).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.code(), Some(i32::try_from(number).unwrap()));
    }
}

#[test]
fn rekeying_preserves_concurrent_transfers() {
    let server = ServerBuilder::new().serve_only().flag("--rekey-after=4000000").start();
    let control = format!("ControlPath={}", server.path("mux").display());
    let _master = Running::start(&mut server.ssh(&["-o", &control, "-M", "-N"]));
    crate::server::wait_until("the master is running", || {
        server.ssh(&["-o", &control, "-O", "check"]).output().unwrap().status.success().then_some(())
    });
    std::fs::write(server.path("data"), random_bytes(24 << 20)).unwrap();
    let data = || File::open(server.path("data")).unwrap();
    let start = |line| Running::start(server.ssh(&["-o", &control]).arg(line).stdin(data()).stdout(Stdio::piped()));
    let mut clients: Vec<Running> = ["cksum", "cksum", "cksum", "cksum", "cat", "cat"].map(start).into();
    let mut outputs: Vec<Vec<u8>> = Vec::new();
    thread::scope(|scope| {
        let readers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let mut stdout = client.0.stdout.take().unwrap();
                scope.spawn(move || {
                    let mut text = Vec::new();
                    stdout.read_to_end(&mut text).unwrap();
                    text
                })
            })
            .collect();
        outputs = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    });
    let data = std::fs::read(server.path("data")).unwrap();
    assert!(
        outputs[0].ends_with(b" 25165824\n") && outputs[..4].iter().all(|line| *line == outputs[0]),
        "{:?}",
        &outputs[..4]
    );
    assert!(outputs[4] == data && outputs[5] == data);
}

#[test]
fn many_sessions_share_one_connection() {
    let server = Server::start();
    let control = format!("ControlPath={}", server.path("mux").display());
    let mut master = Running::start(&mut server.ssh(&["-o", &control, "-M", "-N"]));
    crate::server::wait_until("the master is running", || {
        server.ssh(&["-o", &control, "-O", "check"]).output().unwrap().status.success().then_some(())
    });
    let mut clients: Vec<Running> = (0..20)
        .map(|number| {
            let line = format!("sleep 0.2; exit {number}");
            Running::start(server.ssh(&["-o", &control]).arg(line).stderr(Stdio::piped()))
        })
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let code = client.code();
        let mut text = String::new();
        client.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(code, Some(i32::try_from(number).unwrap()), "{text}");
    }
    // A session that does not read does not block others.
    let zeros = File::open("/dev/zero").unwrap();
    let _unread = Running::start(server.ssh(&["-o", &control]).arg("sleep 1000").stdin(zeros));
    for _ in 0..3 {
        let output = server.ssh(&["-o", &control]).arg("echo still here").output().unwrap();
        assert_eq!(output.stdout, b"still here\n");
    }
    assert!(server.ssh(&["-o", &control, "-O", "exit"]).output().unwrap().status.success());
    master.code();
}
