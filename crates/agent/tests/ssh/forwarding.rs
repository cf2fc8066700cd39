//! Connections through the connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;

use crate::server::{Running, Server, eventually, noise};

/// Answers each connection with what it got, once that is all.
pub fn mirror() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || reflect(stream));
        }
    });
    port
}

fn reflect(mut stream: TcpStream) {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let _ = stream.write_all(&all);
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn through(mut stream: TcpStream) {
    let data = noise(3 << 20);
    let (mut writer, sent) = (stream.try_clone().unwrap(), data.clone());
    let writing = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == data, "{} of {} bytes came back", back.len(), data.len());
}

fn connect(port: u16) -> TcpStream {
    eventually("the port is open", || TcpStream::connect(("127.0.0.1", port)).ok())
}

/// A connection to a port of the server by way of one where the client speaks SOCKS.
pub fn socks(near: u16, far: u16) -> TcpStream {
    let mut stream = connect(near);
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 0]);
    let mut request = vec![5, 1, 0, 3, 9];
    request.extend_from_slice(b"localhost");
    request.extend_from_slice(&far.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [5, 0]);
    stream
}

#[test]
fn a_port_of_the_server_is_reached_from_the_client() {
    let server = Server::start();
    let (far, near) = (mirror(), free_port());
    let _client = Running::start(&mut server.ssh(&["-N", "-L", &format!("{near}:localhost:{far}")]));
    for _ in 0..3 {
        through(connect(near));
    }
}

#[test]
fn a_port_of_the_client_is_reached_from_the_server() {
    let server = Server::start();
    let (near, far) = (mirror(), free_port());
    let _client = Running::start(&mut server.ssh(&["-N", "-R", &format!("{far}:127.0.0.1:{near}")]));
    through(connect(far));
}

#[test]
fn a_free_port_is_found_and_told_and_given_back() {
    let server = Server::start();
    let near = mirror();
    let words = ["-v", "-N", "-R", &format!("0:127.0.0.1:{near}")];
    let mut client = Running::start(server.ssh(&words).stderr(Stdio::piped()));
    let said = BufReader::new(client.0.stderr.take().unwrap());
    let told = said.lines().map_while(Result::ok).find(|line| line.contains("Allocated port")).unwrap();
    let port = told.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    through(connect(port));
    drop(client);
    eventually("the port is closed", || TcpStream::connect(("127.0.0.1", port)).is_err().then_some(()));
}

#[test]
fn any_port_is_reached_by_socks() {
    let server = Server::start();
    let (far, near) = (mirror(), free_port());
    let _client = Running::start(&mut server.ssh(&["-N", "-D", &near.to_string()]));
    through(socks(near, far));
}

#[test]
fn a_connection_is_the_client_s_own_input_and_output() {
    let server = Server::start();
    let far = mirror();
    let mut command = server.ssh(&["-W", &format!("127.0.0.1:{far}")]);
    let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    client.0.stdin.take().unwrap().write_all(b"there and back").unwrap();
    let mut back = String::new();
    client.0.stdout.take().unwrap().read_to_string(&mut back).unwrap();
    assert_eq!((back.as_str(), client.code()), ("there and back", Some(0)));
}

#[test]
fn a_port_where_nobody_listens_is_refused_and_the_rest_goes_on() {
    let server = Server::start();
    let output = server.ssh(&["-W", &format!("127.0.0.1:{}", free_port())]).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    let output = server.ssh(&["-W", "no-such-host.invalid:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(server.said("echo on"), "on\n");
}

#[test]
fn sockets_are_carried_both_ways() {
    let server = Server::start();
    let path = |name: &str| server.path(name).display().to_string();
    let answers = |path: String, word: &'static [u8]| {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| stream.write_all(word).unwrap()));
    };
    answers(path("far"), b"far");
    answers(path("near"), b"near");
    let (left, right) = (format!("{}:{}", path("l"), path("far")), format!("{}:{}", path("r"), path("near")));
    let client = Running::start(&mut server.ssh(&["-N", "-L", &left, "-R", &right]));
    for (socket, word) in [("l", "far"), ("r", "near")] {
        let mut stream = eventually(socket, || UnixStream::connect(path(socket)).ok());
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, word);
    }
    drop(client);
    eventually("the server's socket is removed", || (!server.path("r").exists()).then_some(()));
}

#[test]
fn the_client_s_key_agent_is_there_for_the_session_and_no_longer() {
    let server = Server::start();
    let socket = server.path("agent").display().to_string();
    let mut agent = Running::start(Command::new("ssh-agent").args(["-D", "-a", &socket]).stdout(Stdio::null()));
    eventually("the agent is there", || server.path("agent").exists().then_some(()));
    let added = Command::new("ssh-add").arg("-q").arg(server.path("id")).env("SSH_AUTH_SOCK", &socket).status();
    assert!(added.unwrap().success());

    let mut command = server.client("ssh");
    // The first word about it counts, and ours says there is none.
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = Command::new("ssh");
    command
        .args(["-o", &format!("IdentityAgent={socket}"), "-A"])
        .args(words)
        .arg("dev@127.0.0.1")
        .stdin(Stdio::null());
    let output = command.arg("echo $SSH_AUTH_SOCK; stat -c %a $(dirname $SSH_AUTH_SOCK); ssh-add -l").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said} {:?}", output.stderr);
    assert_eq!(lines[1], "700");
    assert!(lines[2].contains("ED25519"), "{said}");
    eventually("its socket is removed", || (!std::path::Path::new(lines[0]).exists()).then_some(()));
    agent.0.kill().unwrap();
}

#[test]
fn without_being_asked_there_is_no_key_agent_and_no_screen() {
    let server = Server::start();
    let output =
        server.ssh(&["-X"]).env("DISPLAY", "localhost:9").arg("echo [$SSH_AUTH_SOCK$DISPLAY]").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[]\n");
}

#[test]
fn a_connection_carries_so_many_others_and_survives_the_wish_for_more() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (far, near) = (listener.local_addr().unwrap().port(), free_port());
    let (keep, kept) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"hi");
            let _ = keep.send(stream);
        }
    });
    let _client = Running::start(&mut server.ssh(&["-N", "-L", &format!("{near}:127.0.0.1:{far}")]));
    drop(connect(near));
    let streams: Vec<TcpStream> = (0..230).map(|_| connect(near)).collect();
    let greeted = |mut stream: &TcpStream| stream.read_exact(&mut [0; 2]).is_ok();
    let count = streams.iter().filter(|stream| greeted(stream)).count();
    // The first one may still be on its way out.
    assert!((199..=200).contains(&count), "{count}");
    drop((streams, kept));
    eventually("there is room again", || greeted(&connect(near)).then_some(()));
}
