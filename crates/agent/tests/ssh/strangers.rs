//! Connections that never log in.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::server::{Plan, noise};

const PATIENCE: Duration = Duration::from_secs(20);

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn who_does_not_log_in_in_time_is_cut_off_whatever_they_do() {
    let server = Plan::new().alone().flag("--login-grace=1").start();
    let connect = || TcpStream::connect(server.address).unwrap();
    let begun = Instant::now();
    let mut silent = connect();
    let mut named = connect();
    named.write_all(b"SSH-2.0-slow\r\n").unwrap();
    // A packet that never ends, a byte at a time.
    let mut slow = connect();
    slow.write_all(b"SSH-2.0-slow\r\n\0\0\x7f\xff").unwrap();
    let dripping = slow.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while (&dripping).write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    for stream in [&mut silent, &mut named, &mut slow] {
        assert!(is_closed(stream));
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
    drip.join().unwrap();
}

#[test]
fn garbage_harms_only_those_who_send_it() {
    let server = Plan::new().start();
    for length in [0, 1, 100, 100_000] {
        for start in [&b""[..], b"SSH-2.0-x\r\n", b"SSH-1.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n"] {
            let mut stream = TcpStream::connect(server.address).unwrap();
            let _ = stream.write_all(start).and_then(|()| stream.write_all(&noise(length)));
        }
    }
    assert_eq!(server.said("echo fine"), "fine\n");
}

#[test]
fn a_crowd_of_strangers_does_not_stay_and_does_not_lock_out() {
    let server = Plan::new().alone().start();
    let crowd: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let let_in = crowd
        .iter()
        .filter(|stream| {
            let mut stream: &TcpStream = stream;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut hello = [0; 4];
            stream.read_exact(&mut hello).is_ok()
        })
        .count();
    assert!((64..=256).contains(&let_in), "{let_in}");
    drop(crowd);
    crate::server::eventually("somebody gets in", || {
        let output = server.ssh(&["-s"]).arg("sftp").output().unwrap();
        output.status.success().then_some(())
    });
}
