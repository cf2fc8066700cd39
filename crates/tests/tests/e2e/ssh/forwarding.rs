//! Forwarding of ports, sockets and the SSH agent.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::wait;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::{SshEndpoint, SshUser, command_line, run};
use crate::tenant::TIMEOUT;

/// Interval between requests of [`PagePoller`].
const REQUEST_INTERVAL: Duration = Duration::from_secs(5);

/// Requests a page through a forwarded port until dropped.
pub(super) struct PagePoller {
    _tunnel: Child,
    requests: JoinHandle<()>,
}

impl Drop for PagePoller {
    fn drop(&mut self) {
        self.requests.abort();
    }
}

/// Starts a web server inside and polls it through a forwarded port.
pub(super) async fn poll_page(ada: &SshUser, endpoint: &SshEndpoint, port: u16) -> anyhow::Result<PagePoller> {
    ada.run(endpoint, &format!("(setsid python3 -m http.server {port} --bind 127.0.0.1 >/dev/null 2>&1 </dev/null &)"))
        .await?;
    let socket = ada.path("page.sock");
    let mut tunnel = ada.ssh(endpoint, &["-N", "-L"])?;
    let tunnel = tunnel.arg(format!("{}:127.0.0.1:{port}", socket.display())).stdin(Stdio::null()).spawn()?;
    let request = move || {
        let mut curl = Command::new("curl");
        curl.args(["-sf", "--unix-socket"]).arg(&socket).arg("http://any/");
        async move { run(&mut curl).await }
    };
    wait::until("page through the forwarded port", TIMEOUT, async || request().await).await?;
    let requests = tokio::spawn(async move {
        loop {
            // If requests fail, the server hibernates and the test fails.
            let _ = request().await;
            tokio::time::sleep(REQUEST_INTERVAL).await;
        }
    });
    Ok(PagePoller { _tunnel: tunnel, requests })
}

/// Checks every kind of forwarding against a web server inside.
pub(super) async fn check_forwarding(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    ada.run(endpoint, "mkdir -p web && cd web && echo served > index.html && (setsid python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 </dev/null &)").await?;
    wait::until("web server inside", TIMEOUT, async || {
        ada.run(endpoint, "curl -sf http://127.0.0.1:8000/").await.map(drop)
    })
    .await?;
    check_multiplexing(ada, endpoint).await.context("multiplexed connection")?;
    check_remote_port(ada, endpoint).await.context("remote forwarding of a port")?;
    check_remote_socket(ada, endpoint).await.context("remote forwarding of a socket")?;
    check_dynamic(ada, endpoint).await.context("dynamic forwarding")?;
    check_stdio(ada, endpoint).await.context("forwarding of standard input and output")?;
    check_agent(ada, endpoint).await.context("agent forwarding")
}

/// A forwarded socket and a command through one shared connection.
async fn check_multiplexing(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let (socket, control) = (ada.path("web.sock"), ada.path("control"));
    let mut shared = ada.ssh(endpoint, &["-M", "-N", "-S"])?;
    shared.arg(&control).arg("-L").arg(format!("{}:127.0.0.1:8000", socket.display()));
    let _shared = shared.stdin(Stdio::null()).spawn()?;
    wait::until("forwarded socket", TIMEOUT, async || {
        let text = run(Command::new("curl").args(["-sf", "--unix-socket"]).arg(&socket).arg("http://any/")).await?;
        anyhow::ensure!(text == "served\n", "{text}");
        Ok(())
    })
    .await?;
    let mut multiplexed = Command::new("ssh");
    multiplexed.args(["-Fnone", "-S"]).arg(&control).args(["-T", "any", "echo shared"]);
    assert_eq!(run(&mut multiplexed).await?.trim(), "shared");
    Ok(())
}

async fn check_remote_port(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"from outside\n").await
    });
    let mut client = ada.ssh(
        endpoint,
        &["-R", &format!("127.0.0.1:9009:127.0.0.1:{port}"), "exec bash -c 'cat < /dev/tcp/127.0.0.1/9009'"],
    )?;
    assert_eq!(run(&mut client).await?, "from outside\n");
    server.await??;
    Ok(())
}

async fn check_remote_socket(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let (local, remote) = (ada.path("near.sock"), "/tmp/far.sock");
    let listener = tokio::net::UnixListener::bind(&local)?;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"from a socket\n").await
    });
    let read = format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{remote}\"); print(s.recv(99).decode(), end=\"\")'"
    );
    let mut client = ada.ssh(endpoint, &["-R", &format!("{remote}:{}", local.display()), &read])?;
    assert_eq!(run(&mut client).await?, "from a socket\n");
    server.await??;
    Ok(())
}

async fn check_dynamic(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let mut tunnel = ada.ssh(endpoint, &["-N", "-D", &format!("127.0.0.1:{port}")])?;
    let _tunnel = tunnel.stdin(Stdio::null()).spawn()?;
    wait::until("SOCKS proxy", TIMEOUT, async || {
        let proxy = format!("socks5h://127.0.0.1:{port}");
        let text = run(Command::new("curl").args(["-sf", "--proxy", &proxy, "http://localhost:8000/"])).await?;
        anyhow::ensure!(text == "served\n", "{text}");
        Ok(())
    })
    .await
}

/// `-W`, as with jump hosts.
async fn check_stdio(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let mut jump = ada.ssh(endpoint, &["-W", "127.0.0.1:8000"])?;
    let mut jump = jump.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut request = jump.stdin.take().context("ssh has no stdin")?;
    tokio::io::AsyncWriteExt::write_all(&mut request, b"GET / HTTP/1.0\r\n\r\n").await?;
    let response = jump.wait_with_output().await?;
    assert!(String::from_utf8_lossy(&response.stdout).ends_with("served\n"), "{response:?}");
    Ok(())
}

/// A clone through the SSH server itself, with the key of the local agent.
async fn check_agent(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let init = "git init -q repo && git -C repo -c user.name=a -c user.email=a@b commit -q --allow-empty -m first";
    ada.run(endpoint, init).await?;
    let clone = "GIT_SSH_COMMAND='ssh -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -p 2222' git clone -q tenant@127.0.0.1:repo clone && git -C clone log --format=%s";
    let script = format!(
        "eval $(ssh-agent -s) >/dev/null; trap 'kill $SSH_AGENT_PID' EXIT; ssh-add -q {} && {} -A {}",
        ada.path("key").display(),
        command_line(ada, endpoint)?,
        format_args!("\"{}\"", clone.replace('"', "\\\"")),
    );
    let log = run(Command::new("bash").args(["-c", &script])).await?;
    assert_eq!(log.lines().last(), Some("first"), "{log}");
    Ok(())
}
