//! Connections before authentication.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::server::{Server, ServerBuilder, random_bytes};

const READ_TIMEOUT: Duration = Duration::from_secs(20);

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn unauthenticated_connections_are_closed_after_the_login_grace_time() {
    let server = ServerBuilder::new().serve_only().flag("--login-grace=1").start();
    let connect = || TcpStream::connect(server.address).unwrap();
    let started = Instant::now();
    let mut silent = connect();
    let mut with_version = connect();
    with_version.write_all(b"SSH-2.0-slow\r\n").unwrap();
    // An incomplete packet, one byte at a time.
    let mut slow = connect();
    slow.write_all(b"SSH-2.0-slow\r\n\0\0\x7f\xff").unwrap();
    let slow_writer = slow.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        while (&slow_writer).write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    for stream in [&mut silent, &mut with_version, &mut slow] {
        assert!(is_closed(stream));
    }
    assert!(started.elapsed() >= Duration::from_secs(1));
    writer.join().unwrap();
}

#[test]
fn garbage_does_not_affect_other_connections() {
    let server = ServerBuilder::new().start();
    for length in [0, 1, 100, 100_000] {
        for start in [&b""[..], b"SSH-2.0-x\r\n", b"SSH-1.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n"] {
            let mut stream = TcpStream::connect(server.address).unwrap();
            let _ = stream.write_all(start).and_then(|()| stream.write_all(&random_bytes(length)));
        }
    }
    assert_eq!(server.stdout("echo fine"), "fine\n");
}

/// Limit of pre-auth connections.
const MAX_PRE_AUTH: usize = 256;
/// Connections that are kept open; more than the limit.
const FLOOD_CONNECTIONS: usize = 600;

/// Waits until the server has accepted all connections and evicted those beyond the limit.
fn assert_evicted(connections: impl IntoIterator<Item = TcpStream>) {
    let mut connections: Vec<(TcpStream, bool)> = connections.into_iter().map(|stream| (stream, false)).collect();
    crate::server::wait_until("the excess connections are closed", || {
        connections.retain_mut(|(stream, greeted)| {
            stream.set_nonblocking(true).unwrap();
            let mut version = [0; 4096];
            match stream.read(&mut version) {
                Ok(0) => false,
                Ok(_) => {
                    *greeted = true;
                    true
                }
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            }
        });
        let open = connections.iter().filter(|(_, greeted)| *greeted).count();
        (connections.len() == open && (MAX_PRE_AUTH / 2..=MAX_PRE_AUTH).contains(&open)).then_some(())
    });
}

fn assert_login_succeeds(server: &Server) {
    // On a busy machine, an attempt may be queued behind thousands of others.
    crate::server::wait_timeout(Duration::from_secs(120), "a login succeeds", || {
        let output = server.ssh(&["-s"]).arg("sftp").output().unwrap();
        output.status.success().then_some(())
    });
}

/// Stops the flood even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn connection_flood_does_not_prevent_logins() {
    let server = ServerBuilder::new().serve_only().start();
    let (stopped, connects) = (AtomicBool::new(false), AtomicUsize::new(0));
    let flood = || {
        let (mut times, mut connections) = (Vec::new(), VecDeque::new());
        while !stopped.load(Ordering::Relaxed) {
            connections.push_back(TcpStream::connect(server.address).unwrap());
            if connections.len() > FLOOD_CONNECTIONS {
                connections.pop_front();
            }
            times.push(Instant::now());
            connects.fetch_add(1, Ordering::Relaxed);
        }
        (connections, times)
    };
    let (connections, times) = std::thread::scope(|scope| {
        let flood = scope.spawn(flood);
        let stop = StopOnDrop(&stopped);
        let enough = 10 * MAX_PRE_AUTH;
        crate::server::wait_until("the flood is running", || (connects.load(Ordering::Relaxed) > enough).then_some(()));
        assert_login_succeeds(&server);
        drop(stop);
        flood.join().unwrap()
    });
    let second =
        |from: &Instant| times.iter().filter(|at| (*from..*from + Duration::from_secs(1)).contains(*at)).count();
    let busiest = times.iter().step_by(100).map(second).max().unwrap();
    // Above what the server keeps. The rate depends on the load of the machine.
    assert!(busiest > MAX_PRE_AUTH, "at most {busiest} in a second");
    assert_evicted(connections);
}

#[test]
fn open_connections_with_version_string_do_not_prevent_logins() {
    let server = ServerBuilder::new().serve_only().start();
    let connections: Vec<TcpStream> = (0..FLOOD_CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(b"SSH-2.0-test\r\n").unwrap();
            stream
        })
        .collect();
    assert_login_succeeds(&server);
    assert_evicted(connections);
}
