//! Connections that never log in.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::server::{Plan, Server, noise};

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

/// Who has not logged in: so many stay, whoever comes.
const PLACES: usize = 256;
/// Connections that a crowd keeps open; more than that.
const CROWD: usize = 600;

/// Waits until the server has taken them all, and keeps as many as it does.
fn stay(crowd: impl IntoIterator<Item = TcpStream>) {
    let mut crowd: Vec<(TcpStream, bool)> = crowd.into_iter().map(|stream| (stream, false)).collect();
    crate::server::eventually("as many are kept as there are places", || {
        crowd.retain_mut(|(stream, greeted)| {
            stream.set_nonblocking(true).unwrap();
            let mut heard = [0; 4096];
            match stream.read(&mut heard) {
                Ok(0) => false,
                Ok(_) => {
                    *greeted = true;
                    true
                }
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            }
        });
        let kept = crowd.iter().filter(|(_, greeted)| *greeted).count();
        (crowd.len() == kept && (PLACES / 2..=PLACES).contains(&kept)).then_some(())
    });
}

fn logs_in(server: &Server) {
    // One attempt may wait behind thousands of others, on a machine that has more to do.
    crate::server::within(Duration::from_secs(120), "somebody gets in", || {
        let output = server.ssh(&["-s"]).arg("sftp").output().unwrap();
        output.status.success().then_some(())
    });
}

/// Stops the flood also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn thousands_of_connections_a_second_do_not_lock_out() {
    let server = Plan::new().alone().start();
    let (ends, connects) = (AtomicBool::new(false), AtomicUsize::new(0));
    let flood = || {
        let (mut times, mut crowd) = (Vec::new(), VecDeque::new());
        while !ends.load(Ordering::Relaxed) {
            crowd.push_back(TcpStream::connect(server.address).unwrap());
            if crowd.len() > CROWD {
                crowd.pop_front();
            }
            times.push(Instant::now());
            connects.fetch_add(1, Ordering::Relaxed);
        }
        (crowd, times)
    };
    let (crowd, times) = std::thread::scope(|scope| {
        let flood = scope.spawn(flood);
        let stop = Stop(&ends);
        let far_more = 10 * PLACES;
        crate::server::eventually("the crowd is there", || (connects.load(Ordering::Relaxed) > far_more).then_some(()));
        logs_in(&server);
        drop(stop);
        flood.join().unwrap()
    });
    let second =
        |from: &Instant| times.iter().filter(|at| (*from..*from + Duration::from_secs(1)).contains(*at)).count();
    let busiest = times.iter().step_by(100).map(second).max().unwrap();
    assert!(busiest >= 2000, "at most {busiest} in a second");
    stay(crowd);
}

#[test]
fn a_crowd_that_speaks_and_stays_does_not_lock_out() {
    let server = Plan::new().alone().start();
    let crowd: Vec<TcpStream> = (0..CROWD)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(b"SSH-2.0-stranger\r\n").unwrap();
            stream
        })
        .collect();
    logs_in(&server);
    stay(crowd);
}
