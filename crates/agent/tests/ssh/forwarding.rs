//! Port, socket and agent forwarding.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;

use crate::server::{Running, Server, free_port, random_bytes, wait_until};

/// Starts a server that returns the data of each connection after EOF.
pub fn start_echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo(stream));
        }
    });
    port
}

fn echo(mut stream: TcpStream) {
    let mut data = Vec::new();
    let _ = stream.read_to_end(&mut data);
    let _ = stream.write_all(&data);
}

/// Sends data and checks that it is returned.
pub fn assert_echo(mut stream: TcpStream) {
    let data = random_bytes(3 << 20);
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
    wait_until("the port is open", || TcpStream::connect(("127.0.0.1", port)).ok())
}

/// Connects to a port of the server through a SOCKS port of the client.
pub fn connect_socks(near: u16, far: u16) -> TcpStream {
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
fn local_forwarding_reaches_a_port_of_the_server() {
    let server = Server::start();
    let (far, near) = (start_echo_server(), free_port());
    let _client = Running::start(&mut server.ssh(&["-N", "-L", &format!("{near}:localhost:{far}")]));
    for _ in 0..3 {
        assert_echo(connect(near));
    }
}

#[test]
fn remote_forwarding_reaches_a_port_of_the_client() {
    let server = Server::start();
    let (near, far) = (start_echo_server(), free_port());
    let _client = Running::start(&mut server.ssh(&["-N", "-R", &format!("{far}:127.0.0.1:{near}")]));
    assert_echo(connect(far));
}

#[test]
fn remote_forwarding_allocates_and_releases_a_port() {
    let server = Server::start();
    let near = start_echo_server();
    let args = ["-v", "-N", "-R", &format!("0:127.0.0.1:{near}")];
    let mut client = Running::start(server.ssh(&args).stderr(Stdio::piped()));
    let stderr = BufReader::new(client.0.stderr.take().unwrap());
    let line = stderr.lines().map_while(Result::ok).find(|line| line.contains("Allocated port")).unwrap();
    let port = line.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert_echo(connect(port));
    drop(client);
    wait_until("the port is closed", || TcpStream::connect(("127.0.0.1", port)).is_err().then_some(()));
}

#[test]
fn dynamic_forwarding_reaches_any_port() {
    let server = Server::start();
    let (far, near) = (start_echo_server(), free_port());
    let _client = Running::start(&mut server.ssh(&["-N", "-D", &near.to_string()]));
    assert_echo(connect_socks(near, far));
}

#[test]
fn stdio_forwarding_reaches_a_port() {
    let server = Server::start();
    let far = start_echo_server();
    let mut command = server.ssh(&["-W", &format!("127.0.0.1:{far}")]);
    let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    client.0.stdin.take().unwrap().write_all(b"there and back").unwrap();
    let mut back = String::new();
    client.0.stdout.take().unwrap().read_to_string(&mut back).unwrap();
    assert_eq!((back.as_str(), client.code()), ("there and back", Some(0)));
}

#[test]
fn closed_port_is_refused() {
    let server = Server::start();
    let output = server.ssh(&["-W", &format!("127.0.0.1:{}", free_port())]).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    let output = server.ssh(&["-W", "no-such-host.invalid:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(server.stdout("echo on"), "on\n");
}

#[test]
fn unix_sockets_are_forwarded_in_both_directions() {
    let server = Server::start();
    let path = |name: &str| server.path(name).display().to_string();
    let listen = |path: String, message: &'static [u8]| {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| stream.write_all(message).unwrap()));
    };
    listen(path("far"), b"far");
    listen(path("near"), b"near");
    let (local, remote) = (format!("{}:{}", path("l"), path("far")), format!("{}:{}", path("r"), path("near")));
    let client = Running::start(&mut server.ssh(&["-N", "-L", &local, "-R", &remote]));
    for (socket, expect) in [("l", "far"), ("r", "near")] {
        let mut stream = wait_until(socket, || UnixStream::connect(path(socket)).ok());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, expect);
    }
    drop(client);
    wait_until("the server's socket is removed", || (!server.path("r").exists()).then_some(()));
}

#[test]
fn agent_is_forwarded_for_the_session() {
    let server = Server::start();
    let socket = server.path("agent").display().to_string();
    let mut agent = Running::start(Command::new("ssh-agent").args(["-D", "-a", &socket]).stdout(Stdio::null()));
    wait_until("the agent is running", || server.path("agent").exists().then_some(()));
    let added = Command::new("ssh-add").arg("-q").arg(server.path("id")).env("SSH_AUTH_SOCK", &socket).status();
    assert!(added.unwrap().success());

    let mut command = server.client("ssh");
    // The first value of an option counts, so IdentityAgent must come before the default arguments.
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = Command::new("ssh");
    command.args(["-o", &format!("IdentityAgent={socket}"), "-A"]).args(args).arg("dev@127.0.0.1").stdin(Stdio::null());
    let output = command.arg("echo $SSH_AUTH_SOCK; stat -c %a $(dirname $SSH_AUTH_SOCK); ssh-add -l").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text} {:?}", output.stderr);
    assert_eq!(lines[1], "700");
    assert!(lines[2].contains("ED25519"), "{text}");
    wait_until("its socket is removed", || (!std::path::Path::new(lines[0]).exists()).then_some(()));
    agent.0.kill().unwrap();
}

#[test]
fn agent_and_x11_are_not_forwarded_by_default() {
    let server = Server::start();
    let output =
        server.ssh(&["-X"]).env("DISPLAY", "localhost:9").arg("echo [$SSH_AUTH_SOCK$DISPLAY]").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[]\n");
}

#[test]
fn number_of_channels_is_limited() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (far, near) = (listener.local_addr().unwrap().port(), free_port());
    let (sender, open_streams) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"hi");
            let _ = sender.send(stream);
        }
    });
    let _client = Running::start(&mut server.ssh(&["-N", "-L", &format!("{near}:127.0.0.1:{far}")]));
    drop(connect(near));
    let streams: Vec<TcpStream> = (0..230).map(|_| connect(near)).collect();
    let is_accepted = |mut stream: &TcpStream| stream.read_exact(&mut [0; 2]).is_ok();
    let count = streams.iter().filter(|stream| is_accepted(stream)).count();
    // The first connection may not be closed yet.
    assert!((199..=200).contains(&count), "{count}");
    drop((streams, open_streams));
    wait_until("channels are available again", || is_accepted(&connect(near)).then_some(()));
}
