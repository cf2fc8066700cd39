//! Connections that go through a person's own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::wait;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::{Door, Person, command_line, run};
use crate::demo::LIMIT;

/// Somebody who looks at what a server shows on a port, again and again, as long as the value lives.
pub(super) struct Looking {
    _tunnel: Child,
    looks: JoinHandle<()>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.looks.abort();
    }
}

pub(super) async fn look_at_a_page(ada: &Person, door: &Door, port: u16) -> anyhow::Result<Looking> {
    ada.say(door, &format!("(setsid python3 -m http.server {port} --bind 127.0.0.1 >/dev/null 2>&1 </dev/null &)"))
        .await?;
    let socket = ada.path("page.sock");
    let mut tunnel = ada.ssh(door, &["-N", "-L"])?;
    let tunnel = tunnel.arg(format!("{}:127.0.0.1:{port}", socket.display())).stdin(Stdio::null()).spawn()?;
    let look = move || {
        let mut curl = Command::new("curl");
        curl.args(["-sf", "--unix-socket"]).arg(&socket).arg("http://any/");
        async move { run(&mut curl).await }
    };
    wait::until("the page is there", LIMIT, async || look().await).await?;
    let looks = tokio::spawn(async move {
        loop {
            // One that fails is none, and the server falls asleep, which is what would be seen.
            let _ = look().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    Ok(Looking { _tunnel: tunnel, looks })
}

/// Ports and sockets both ways, through one shared connection too; and a clone with the key of the person's own agent.
pub(super) async fn forwarding(ada: &Person, door: &Door) -> anyhow::Result<()> {
    ada.say(door, "mkdir -p web && cd web && echo served > index.html && (setsid python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 </dev/null &)").await?;
    wait::until("the server inside answers", LIMIT, async || {
        ada.say(door, "curl -sf http://127.0.0.1:8000/").await.map(drop)
    })
    .await?;

    let (socket, web) = (ada.path("web.sock"), ada.path("control"));
    let mut shared = ada.ssh(door, &["-M", "-N", "-S"])?;
    shared.arg(&web).arg("-L").arg(format!("{}:127.0.0.1:8000", socket.display()));
    let shared = shared.stdin(Stdio::null()).spawn()?;
    let through = |path: &Path| format!("http+unix {}", path.display());
    wait::until("the forwarded socket answers", LIMIT, async || {
        let text = run(Command::new("curl").args(["-sf", "--unix-socket"]).arg(&socket).arg("http://any/")).await;
        let text = text.with_context(|| through(&socket))?;
        anyhow::ensure!(text == "served\n", "{text}");
        Ok(())
    })
    .await?;
    let over = |words: &[&str]| {
        let mut command = Command::new("ssh");
        command.args(["-Fnone", "-S"]).arg(&web).args(words);
        command
    };
    assert_eq!(run(&mut over(&["-T", "any", "echo shared"])).await?.trim(), "shared");
    drop(shared);

    // A port of ours, reached from inside.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let answer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"from outside\n").await
    });
    let mut reverse = ada.ssh(
        door,
        &["-R", &format!("127.0.0.1:9009:127.0.0.1:{port}"), "exec bash -c 'cat < /dev/tcp/127.0.0.1/9009'"],
    )?;
    assert_eq!(run(&mut reverse).await?, "from outside\n");
    answer.await??;

    // A socket of ours, reached from inside.
    let (near, far) = (ada.path("near.sock"), "/tmp/far.sock");
    let listener = tokio::net::UnixListener::bind(&near)?;
    let answer = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"from a socket\n").await
    });
    let read = format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{far}\"); print(s.recv(99).decode(), end=\"\")'"
    );
    let mut reverse = ada.ssh(door, &["-R", &format!("{far}:{}", near.display()), &read])?;
    assert_eq!(run(&mut reverse).await?, "from a socket\n");
    answer.await??;

    // Anything, by SOCKS.
    let socks = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let mut dynamic = ada.ssh(door, &["-N", "-D", &format!("127.0.0.1:{socks}")])?;
    let dynamic = dynamic.stdin(Stdio::null()).spawn()?;
    wait::until("the proxy answers", LIMIT, async || {
        let proxy = format!("socks5h://127.0.0.1:{socks}");
        let text = run(Command::new("curl").args(["-sf", "--proxy", &proxy, "http://localhost:8000/"])).await?;
        anyhow::ensure!(text == "served\n", "{text}");
        Ok(())
    })
    .await?;
    drop(dynamic);

    // -W, as jump hosts do it.
    let mut jump = ada.ssh(door, &["-W", "127.0.0.1:8000"])?;
    let mut jump = jump.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut request = jump.stdin.take().context("a pipe")?;
    tokio::io::AsyncWriteExt::write_all(&mut request, b"GET / HTTP/1.0\r\n\r\n").await?;
    let page = jump.wait_with_output().await?;
    assert!(String::from_utf8_lossy(&page.stdout).ends_with("served\n"), "{page:?}");

    // The agent of the person lends its key: the clone goes through the server's own SSH door.
    ada.say(door, "git init -q repo && git -C repo -c user.name=a -c user.email=a@b commit -q --allow-empty -m first")
        .await?;
    let clone = "GIT_SSH_COMMAND='ssh -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -p 2222' git clone -q demo@127.0.0.1:repo clone && git -C clone log --format=%s";
    let script = format!(
        "eval $(ssh-agent -s) >/dev/null; trap 'kill $SSH_AGENT_PID' EXIT; ssh-add -q {} && {} -A {}",
        ada.path("key").display(),
        command_line(ada, door)?,
        format_args!("\"{}\"", clone.replace('"', "\\\"")),
    );
    let cloned = run(Command::new("bash").args(["-c", &script])).await?;
    assert_eq!(cloned.lines().last(), Some("first"), "{cloned}");
    Ok(())
}
