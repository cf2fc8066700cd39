//! Commands without a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::thread;

use crate::server::{Plan, Running, Server, noise};

const LARGE: usize = 64 << 20;

#[test]
fn exit_codes_and_signals_come_back() {
    let server = Server::start();
    for (line, code) in
        [("exit 42", 42), ("true", 0), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("/no/such", 127)]
    {
        assert_eq!(server.run(line).status.code(), Some(code), "{line}");
    }
}

#[test]
fn output_and_errors_are_kept_apart() {
    let server = Server::start();
    let output = server.run("echo out; echo err >&2");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
}

#[test]
fn much_goes_in_and_comes_out_unchanged() {
    let server = Server::start();
    let data = noise(LARGE);
    let mut client = Running::start(server.ssh(&[]).arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut stdin = client.0.stdin.take().unwrap();
    let sent = data.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut back = Vec::new();
    client.0.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(client.code(), Some(0));
    assert!(back == data, "{} of {} bytes, or others", back.len(), data.len());
}

#[test]
fn a_command_that_says_more_than_it_hears_does_not_get_stuck() {
    let server = Server::start();
    let mut client = Running::start(
        server
            .ssh(&[])
            .arg("od -An -v -tx1 | tr -d ' \\n' | wc -c; cat >/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    );
    client.0.stdin.take().unwrap().write_all(&noise(4 << 20)).unwrap();
    let mut said = String::new();
    client.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.trim(), (8 << 20).to_string());

    // All of it at once on the way back, while more is on the way there.
    let mut client = Running::start(server.ssh(&[]).arg("od -An -v -tx1").stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut stdin = client.0.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(&noise(16 << 20)).unwrap());
    let mut back = Vec::new();
    client.0.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(back.iter().filter(|byte| byte.is_ascii_hexdigit()).count(), 32 << 20);
}

#[test]
fn input_that_nobody_reads_is_left_with_the_client() {
    let server = Server::start();
    let zeros = File::open("/dev/zero").unwrap();
    let line = "sleep 1; grep -h ^VmRSS: $(grep -l odc-agent /proc/[0-9]*/comm | sed 's/comm/status/')";
    let output = server.ssh(&[]).arg(line).stdin(zeros).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let most = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max().unwrap();
    assert!(most < 64 << 10, "{said}");
}

#[test]
fn output_that_nobody_reads_is_left_with_the_command() {
    let server = Server::start();
    let mut client = Running::start(server.ssh(&[]).arg("cat /dev/zero").stdout(Stdio::piped()));
    let mut first = [1; 1];
    client.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // It has long filled what there is to fill when another one has come and gone.
    for _ in 0..5 {
        let said = server.said("grep -h ^VmRSS: $(grep -l odc-agent /proc/[0-9]*/comm | sed 's/comm/status/')");
        let most = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).max().unwrap();
        assert!(most < 64 << 10, "{said}");
    }
}

#[test]
fn the_end_of_input_is_told() {
    let server = Server::start();
    assert_eq!(server.said("cat; echo over"), "over\n");
}

#[test]
fn what_goes_on_in_the_background_holds_nobody_up_unless_it_has_the_output() {
    let server = Server::start();
    assert_eq!(server.said("sleep 1000 >/dev/null 2>&1 & echo gone"), "gone\n");
    // As with sshd: whoever can still write is waited for.
    assert_eq!(server.said("(sleep 0.5; echo late) & echo first"), "first\nlate\n");
}

#[test]
fn a_command_finds_its_environment_and_its_home() {
    let server = Server::start();
    let home = server.path("home").display().to_string();
    let output = server
        .ssh(&["-o", "SendEnv=LC_* EVIL"])
        .env("LC_CTYPE", "C.UTF-8")
        .env("EVIL", "1")
        .arg("pwd; echo $HOME $OMP_NUM_THREADS $LC_CTYPE [$EVIL] ${PATH##*:}; echo $SSH_CONNECTION | wc -w; ps -o sid= $$ | grep -q $$ && echo leader")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("{home}\n{home} 7 C.UTF-8 [] /odc/bin\n4\nleader\n"));
}

#[test]
fn without_a_home_it_begins_at_the_root() {
    let server = Server::start();
    std::fs::remove_dir_all(server.path("home")).unwrap();
    assert_eq!(server.said("pwd"), "/\n");
}

#[test]
fn fifty_come_at_once() {
    let server = Server::start();
    let mut clients: Vec<Running> =
        (0..50).map(|number| Running::start(server.ssh(&[]).arg(format!("exit {number}")))).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.code(), Some(i32::try_from(number).unwrap()));
    }
}

#[test]
fn new_keys_disturb_nobody_however_many_send_at_once() {
    let server = Plan::new().alone().flag("--rekey-after=4000000").start();
    let control = format!("ControlPath={}", server.path("mux").display());
    let _master = Running::start(&mut server.ssh(&["-o", &control, "-M", "-N"]));
    crate::server::eventually("the master is there", || {
        server.ssh(&["-o", &control, "-O", "check"]).output().unwrap().status.success().then_some(())
    });
    std::fs::write(server.path("data"), noise(24 << 20)).unwrap();
    let data = || File::open(server.path("data")).unwrap();
    let start = |line| Running::start(server.ssh(&["-o", &control]).arg(line).stdin(data()).stdout(Stdio::piped()));
    let mut clients: Vec<Running> = ["cksum", "cksum", "cksum", "cksum", "cat", "cat"].map(start).into();
    let mut said: Vec<Vec<u8>> = Vec::new();
    thread::scope(|scope| {
        let readers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let mut stdout = client.0.stdout.take().unwrap();
                scope.spawn(move || {
                    let mut said = Vec::new();
                    stdout.read_to_end(&mut said).unwrap();
                    said
                })
            })
            .collect();
        said = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    });
    let data = std::fs::read(server.path("data")).unwrap();
    assert!(said[0].ends_with(b" 25165824\n") && said[..4].iter().all(|line| *line == said[0]), "{:?}", &said[..4]);
    assert!(said[4] == data && said[5] == data);
}

#[test]
fn many_share_one_connection() {
    let server = Server::start();
    let control = format!("ControlPath={}", server.path("mux").display());
    let mut master = Running::start(&mut server.ssh(&["-o", &control, "-M", "-N"]));
    crate::server::eventually("the master is there", || {
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
        let mut said = String::new();
        client.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(code, Some(i32::try_from(number).unwrap()), "{said}");
    }
    // One that does not read holds up no other.
    let zeros = File::open("/dev/zero").unwrap();
    let _deaf = Running::start(server.ssh(&["-o", &control]).arg("sleep 1000").stdin(zeros));
    for _ in 0..3 {
        let output = server.ssh(&["-o", &control]).arg("echo still here").output().unwrap();
        assert_eq!(output.stdout, b"still here\n");
    }
    assert!(server.ssh(&["-o", &control, "-O", "exit"]).output().unwrap().status.success());
    master.code();
}
