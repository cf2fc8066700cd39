//! Connections by devctl and by programs that use ssh.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::user::{User, output, success, write};
use crate::tenant::{TIMEOUT, with_tenant};

#[tokio::test]
async fn exec_ssh_and_cp_transfer_commands_and_files() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.create("box").await?;

        // Several arguments are passed on unchanged, one is a command line.
        assert_eq!(ada.success(&["exec", "box", "--", "printf", "%s|", "a b", "$HOME", "'"]).await?, "a b|$HOME|'|");
        let line = ada.run(&["exec", "bo", "--", "echo $ODC_SERVER; echo aside >&2; exit 42"]).await?;
        assert_eq!((line.out.as_str(), line.code), ("box\n", Some(42)), "{line:#?}");
        assert!(line.err.contains("aside"), "{line:#?}");
        let mut upper = ada.devctl(&["exec", "box", "--", "tr", "a-z", "A-Z"]).stdin(Stdio::piped()).spawn()?;
        let mut input = upper.stdin.take().context("a pipe")?;
        input.write_all(b"through it").await?;
        drop(input);
        assert_eq!(upper.wait_with_output().await?.stdout, b"THROUGH IT");
        let mut shell = ada.devctl(&["exec", "--shell", "box"]).stdin(Stdio::piped()).spawn()?;
        let mut input = shell.stdin.take().context("a pipe")?;
        input.write_all(b"echo in-$ODC_SERVER; exit 5\n").await?;
        drop(input);
        let finished = shell.wait_with_output().await?;
        assert_eq!(finished.status.code(), Some(5));
        assert!(String::from_utf8_lossy(&finished.stdout).contains("in-box"), "{finished:?}");
        let terminal = ada.run(&["exec", "--tty", "box", "--", "test -t 0 && test -t 1 && echo a terminal"]).await?;
        assert_eq!((terminal.out.trim(), terminal.code), ("a terminal", Some(0)), "{terminal:#?}");
        let none = ada.run(&["exec", "box", "--", "test -t 1"]).await?;
        assert_eq!(none.code, Some(1), "{none:#?}");
        ada.success(&["logs", "box", "--tail", "5"]).await?;
        let debug: serde_json::Value =
            serde_json::from_str(&ada.success(&["debug", "box", "--logs", "-o", "json"]).await?)?;
        assert_eq!(debug["logs"][0]["error"], serde_json::Value::Null, "{debug}");
        assert!(debug["logs"][0]["text"].is_string(), "{debug}");
        let seen = ada.run(&["ssh", "box", "--node", "1"]).await?;
        assert_eq!(seen.code, Some(2), "{seen:#?}");

        write(&ada.path("tree/deep/fi le"), "content")?;
        write(&ada.path("a:b"), "colon")?;
        ada.success(&["cp", "tree", "./a:b", "box:"]).await?;
        ada.success(&["cp", "-r", "box:tree", "box:a:b", "back"]).await.unwrap_err();
        std::fs::create_dir(ada.path("back"))?;
        ada.success(&["cp", "box:tree", "box:a:b", "back"]).await?;
        assert_eq!(std::fs::read_to_string(ada.path("back/tree/deep/fi le"))?, "content");
        assert_eq!(std::fs::read_to_string(ada.path("back/a:b"))?, "colon");
        let nowhere = ada.run(&["cp", "tree", "elsewhere"]).await?;
        assert_eq!(nowhere.code, Some(2), "{nowhere:#?}");

        // An unknown key is reported as such.
        std::fs::remove_dir_all(ada.path(".ssh/odc"))?;
        success(
            ada.program("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(ada.path(".ssh/id_ed25519")),
        )
        .await?;
        let denied = ada.run(&["ssh", "box", "--", "true"]).await?;
        assert_eq!(denied.code, Some(4), "{denied:#?}");
        assert!(denied.err.contains("devctl edit box --add-key"), "{denied:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn ssh_based_programs_reach_servers() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.create("box").await?;
        write(&ada.path(".ssh/config"), "Host *\n  LogLevel ERROR")?;
        let shown = ada.success(&["config-ssh", "--dry-run"]).await?;
        assert!(shown.contains("+Include ") && shown.contains("+Host *.odc"), "{shown}");
        assert_eq!(std::fs::read_to_string(ada.path(".ssh/config"))?, "Host *\n  LogLevel ERROR");
        // The printed Host block is self-contained.
        write(&ada.path("printed"), &ada.success(&["config-ssh", "--print", "box"]).await?)?;
        let by_print = success(ada.program("ssh").args(["-F", "printed", "box.odc", "echo $ODC_SERVER"])).await?;
        assert_eq!(by_print, "box\n");
        ada.success(&["config-ssh"]).await?;

        assert_eq!(success(ada.openssh("ssh").args(["box.odc", "echo $ODC_SERVER"])).await?, "box\n");
        write(&ada.path("tree/deep/file"), "content")?;
        success(ada.openssh("scp").args(["-r", "tree", "box.odc:copied"])).await?;
        success(ada.program("rsync").args(["-a", "-e", &ada.shell(), "tree/", "box.odc:synced"])).await?;
        let found = success(ada.openssh("ssh").args(["box.odc", "cat copied/deep/file synced/deep/file"])).await?;
        assert_eq!(found, "contentcontent");
        write(&ada.path("batch"), "get synced/deep/file got\n")?;
        success(ada.openssh("sftp").args(["-b", "batch", "box.odc"])).await?;
        assert_eq!(std::fs::read_to_string(ada.path("got"))?, "content");
        let script = "git init -q work && cd work && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first \
                      && git push -q box.odc:repository HEAD:main && git clone -q -b main box.odc:repository ../clone \
                      && git -C ../clone log --format=%s";
        success(ada.openssh("ssh").args(["box.odc", "git init -q --bare repository"])).await?;
        let log = success(ada.program("sh").env("GIT_SSH_COMMAND", ada.shell()).args(["-c", script])).await?;
        assert_eq!(log, "first\n");
        success(ada.openssh("ssh").args(["-O", "exit", "box.odc"])).await?;

        concurrent_connections(&ada).await?;
        connection_errors(&ada).await?;

        ada.success(&["config-ssh", "--remove"]).await?;
        assert_eq!(std::fs::read_to_string(ada.path(".ssh/config"))?, "Host *\n  LogLevel ERROR");
        Ok(())
    })
    .await
}

/// Opens many connections concurrently, and transfers data in both directions of one.
async fn concurrent_connections(ada: &User) -> anyhow::Result<()> {
    let mut all = tokio::task::JoinSet::new();
    for number in 0..16 {
        let mut command = ada.openssh("ssh");
        command.args(["-oControlMaster=no", "-oControlPath=none", "box.odc", &format!("echo {number}")]);
        all.spawn(async move { (number, success(&mut command).await) });
    }
    while let Some(done) = all.join_next().await {
        let (number, stdout) = done?;
        assert_eq!(stdout?, format!("{number}\n"));
    }
    let script = format!(
        "head -c 67108864 /dev/urandom | tee >(sha256sum >&2) | {} -oControlPath=none -oControlMaster=no box.odc cat | sha256sum >&2",
        ada.shell()
    );
    let sums = output(ada.program("bash").args(["-c", &script])).await?;
    let mut sums: Vec<&str> = sums.err.lines().collect();
    assert_eq!(sums.len(), 2, "{sums:?}");
    sums.dedup();
    assert_eq!(sums.len(), 1, "{sums:?}");
    Ok(())
}

/// Checks that errors reach the user, and that standard output has only SSH data.
async fn connection_errors(ada: &User) -> anyhow::Result<()> {
    ada.success(&["create", "gone", "-t", "cpu", "--no-persist", "--wait"]).await?;
    ada.success(&["delete", "gone", "--yes", "--wait"]).await?;
    for (host, reason) in [("gone.odc", "server gone was deleted"), ("never.odc", "server never not found")] {
        for persist in ["-oControlPersist=no", "-oControlPersist=1m"] {
            let refused = output(ada.openssh("ssh").args([persist, host, "true"])).await?;
            assert_eq!(refused.code, Some(255), "{refused:#?}");
            assert!(refused.err.contains(reason), "{persist}: {refused:#?}");
        }
        let proxy = ada.run(&["ssh", "--stdio", host]).await?;
        assert_eq!(proxy.out, "", "{proxy:#?}");
        assert!(proxy.err.contains(reason), "{proxy:#?}");
    }
    Ok(())
}

/// Reads until EOF, then responds with the number of bytes.
const COUNTER: &str = "import socket
s = socket.create_server(('127.0.0.1', 7000))
while True:
    c, _ = s.accept()
    n = 0
    while True:
        d = c.recv(65536)
        if not d: break
        n += len(d)
    c.sendall(str(n).encode())
    c.close()
";

#[tokio::test]
async fn port_forward_supports_half_close() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.create("box").await?;
        let start =
            format!("cat > counter.py <<'E'\n{COUNTER}E\n(setsid python3 counter.py >/dev/null 2>&1 </dev/null &)");
        ada.success(&["exec", "box", "--", &start]).await?;

        let mut forward = ada.devctl(&["port-forward", "box", ":7000"]).spawn()?;
        let mut err = forward.stderr.take().context("a pipe")?;
        let mut text = String::new();
        let line = tokio::time::timeout(TIMEOUT, async {
            let mut piece = [0; 256];
            while !text.contains("to port 7000 of box") {
                let count = err.read(&mut piece).await?;
                anyhow::ensure!(count > 0, "process exited: {text}");
                text += &String::from_utf8_lossy(&piece[..count]);
            }
            let line = text.lines().find(|line| line.contains("to port")).unwrap_or_default();
            anyhow::Ok(line.split_whitespace().nth(1).unwrap_or_default().to_owned())
        });
        let address = line.await.context("address is printed")??;
        let counted = wait::until("the counter responds", TIMEOUT, async || {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(&vec![1; 3 << 20]).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::ensure!(!answer.is_empty(), "no response");
            Ok(answer)
        });
        assert_eq!(counted.await?, (3 << 20).to_string());

        let taken = address.rsplit(':').next().unwrap_or_default();
        let refused = ada.run(&["port-forward", "box", &format!("{taken}:7000")]).await?;
        assert_eq!(refused.code, Some(5), "{refused:#?}");
        assert!(refused.err.contains("choose another"), "{refused:#?}");

        let id = forward.id().context("process is running")?.to_string();
        tokio::process::Command::new("kill").args(["-INT", &id]).status().await?;
        let status = tokio::time::timeout(Duration::from_secs(60), forward.wait()).await.context("process exits")??;
        assert_eq!(status.code(), Some(0));
        Ok(())
    })
    .await
}
