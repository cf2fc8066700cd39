//! The ways into a server: devctl's own, and those of programs that know only ssh.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::person::{Person, good, said, write};
use crate::demo::{LIMIT, with_demo};

#[tokio::test]
async fn commands_and_files_go_both_ways() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        ada.create("box").await?;

        // Several words are exact, one is a line for the shell; codes and both outputs come back.
        assert_eq!(ada.good(&["exec", "box", "--", "printf", "%s|", "a b", "$HOME", "'"]).await?, "a b|$HOME|'|");
        let line = ada.say(&["exec", "bo", "--", "echo $ODC_SERVER; echo aside >&2; exit 42"]).await?;
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
        let ended = shell.wait_with_output().await?;
        assert_eq!(ended.status.code(), Some(5));
        assert!(String::from_utf8_lossy(&ended.stdout).contains("in-box"), "{ended:?}");
        let terminal = ada.say(&["exec", "--tty", "box", "--", "test -t 0 && test -t 1 && echo a terminal"]).await?;
        assert_eq!((terminal.out.trim(), terminal.code), ("a terminal", Some(0)), "{terminal:#?}");
        let none = ada.say(&["exec", "box", "--", "test -t 1"]).await?;
        assert_eq!(none.code, Some(1), "{none:#?}");
        ada.good(&["logs", "box", "--tail", "5"]).await?;
        let debug: serde_json::Value =
            serde_json::from_str(&ada.good(&["debug", "box", "--logs", "-o", "json"]).await?)?;
        assert_eq!(debug["logs"][0]["error"], serde_json::Value::Null, "{debug}");
        assert!(debug["logs"][0]["text"].is_string(), "{debug}");
        let seen = ada.say(&["ssh", "box", "--node", "1"]).await?;
        assert_eq!(seen.code, Some(2), "{seen:#?}");

        write(&ada.path("tree/deep/fi le"), "content")?;
        write(&ada.path("a:b"), "colon")?;
        ada.good(&["cp", "tree", "./a:b", "box:"]).await?;
        ada.good(&["cp", "-r", "box:tree", "box:a:b", "back"]).await.unwrap_err();
        std::fs::create_dir(ada.path("back"))?;
        ada.good(&["cp", "box:tree", "box:a:b", "back"]).await?;
        assert_eq!(std::fs::read_to_string(ada.path("back/tree/deep/fi le"))?, "content");
        assert_eq!(std::fs::read_to_string(ada.path("back/a:b"))?, "colon");
        let nowhere = ada.say(&["cp", "tree", "elsewhere"]).await?;
        assert_eq!(nowhere.code, Some(2), "{nowhere:#?}");

        // A stranger's key is told apart from everything else.
        std::fs::remove_dir_all(ada.path(".ssh/odc"))?;
        good(ada.program("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(ada.path(".ssh/id_ed25519")))
            .await?;
        let stranger = ada.say(&["ssh", "box", "--", "true"]).await?;
        assert_eq!(stranger.code, Some(4), "{stranger:#?}");
        assert!(stranger.err.contains("devctl edit box --add-key"), "{stranger:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn programs_that_know_only_ssh_reach_servers() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        ada.create("box").await?;
        write(&ada.path(".ssh/config"), "Host *\n  LogLevel ERROR")?;
        let shown = ada.good(&["config-ssh", "--dry-run"]).await?;
        assert!(shown.contains("+Include ") && shown.contains("+Host *.odc"), "{shown}");
        assert_eq!(std::fs::read_to_string(ada.path(".ssh/config"))?, "Host *\n  LogLevel ERROR");
        // The lines for one server are all that is needed.
        write(&ada.path("printed"), &ada.good(&["config-ssh", "--print", "box"]).await?)?;
        let by_print = good(ada.program("ssh").args(["-F", "printed", "box.odc", "echo $ODC_SERVER"])).await?;
        assert_eq!(by_print, "box\n");
        ada.good(&["config-ssh"]).await?;

        assert_eq!(good(ada.openssh("ssh").args(["box.odc", "echo $ODC_SERVER"])).await?, "box\n");
        write(&ada.path("tree/deep/file"), "content")?;
        good(ada.openssh("scp").args(["-r", "tree", "box.odc:copied"])).await?;
        good(ada.program("rsync").args(["-a", "-e", &ada.shell(), "tree/", "box.odc:synced"])).await?;
        let found = good(ada.openssh("ssh").args(["box.odc", "cat copied/deep/file synced/deep/file"])).await?;
        assert_eq!(found, "contentcontent");
        write(&ada.path("batch"), "get synced/deep/file got\n")?;
        good(ada.openssh("sftp").args(["-b", "batch", "box.odc"])).await?;
        assert_eq!(std::fs::read_to_string(ada.path("got"))?, "content");
        let script = "git init -q work && cd work && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first \
                      && git push -q box.odc:repository HEAD:main && git clone -q -b main box.odc:repository ../clone \
                      && git -C ../clone log --format=%s";
        good(ada.openssh("ssh").args(["box.odc", "git init -q --bare repository"])).await?;
        let log = good(ada.program("sh").env("GIT_SSH_COMMAND", ada.shell()).args(["-c", script])).await?;
        assert_eq!(log, "first\n");
        good(ada.openssh("ssh").args(["-O", "exit", "box.odc"])).await?;

        many_at_once(&ada).await?;
        reasons(&ada).await?;

        ada.good(&["config-ssh", "--remove"]).await?;
        assert_eq!(std::fs::read_to_string(ada.path(".ssh/config"))?, "Host *\n  LogLevel ERROR");
        Ok(())
    })
    .await
}

/// Connections of their own, all at once, and much in both directions of one at the same time.
async fn many_at_once(ada: &Person) -> anyhow::Result<()> {
    let mut all = tokio::task::JoinSet::new();
    for number in 0..16 {
        let mut command = ada.openssh("ssh");
        command.args(["-oControlMaster=no", "-oControlPath=none", "box.odc", &format!("echo {number}")]);
        all.spawn(async move { (number, good(&mut command).await) });
    }
    while let Some(done) = all.join_next().await {
        let (number, said) = done?;
        assert_eq!(said?, format!("{number}\n"));
    }
    let script = format!(
        "head -c 67108864 /dev/urandom | tee >(sha256sum >&2) | {} -oControlPath=none -oControlMaster=no box.odc cat | sha256sum >&2",
        ada.shell()
    );
    let sums = said(ada.program("bash").args(["-c", &script])).await?;
    let mut sums: Vec<&str> = sums.err.lines().collect();
    assert_eq!(sums.len(), 2, "{sums:?}");
    sums.dedup();
    assert_eq!(sums.len(), 1, "{sums:?}");
    Ok(())
}

/// Why there is no connection, whoever asks; and nothing on standard output that is not SSH's.
async fn reasons(ada: &Person) -> anyhow::Result<()> {
    ada.good(&["create", "gone", "-t", "cpu", "--no-persist", "--wait"]).await?;
    ada.good(&["delete", "gone", "--yes", "--wait"]).await?;
    for (host, reason) in [("gone.odc", "gone was ended"), ("never.odc", "there is no server never")] {
        for persist in ["-oControlPersist=no", "-oControlPersist=1m"] {
            let refused = said(ada.openssh("ssh").args([persist, host, "true"])).await?;
            assert_eq!(refused.code, Some(255), "{refused:#?}");
            assert!(refused.err.contains(reason), "{persist}: {refused:#?}");
        }
        let itself = ada.say(&["ssh", "--stdio", host]).await?;
        assert_eq!(itself.out, "", "{itself:#?}");
        assert!(itself.err.contains(reason), "{itself:#?}");
    }
    Ok(())
}

/// Reads all there is, and only then answers how much it was.
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
async fn ports_are_forwarded_and_each_direction_ends_on_its_own() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        ada.create("box").await?;
        let start =
            format!("cat > counter.py <<'E'\n{COUNTER}E\n(setsid python3 counter.py >/dev/null 2>&1 </dev/null &)");
        ada.good(&["exec", "box", "--", &start]).await?;

        let mut forward = ada.devctl(&["port-forward", "box", ":7000"]).spawn()?;
        let mut err = forward.stderr.take().context("a pipe")?;
        let mut told = String::new();
        let line = tokio::time::timeout(LIMIT, async {
            let mut piece = [0; 256];
            while !told.contains("is port 7000 of box") {
                let count = err.read(&mut piece).await?;
                anyhow::ensure!(count > 0, "it ended: {told}");
                told += &String::from_utf8_lossy(&piece[..count]);
            }
            let line = told.lines().find(|line| line.contains("is port")).unwrap_or_default();
            anyhow::Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
        });
        let address = line.await.context("it says where")??;
        let counted = wait::until("the counter answers", LIMIT, async || {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(&vec![1; 3 << 20]).await?;
            stream.shutdown().await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::ensure!(!answer.is_empty(), "nobody answers yet");
            Ok(answer)
        });
        assert_eq!(counted.await?, (3 << 20).to_string());

        let taken = address.rsplit(':').next().unwrap_or_default();
        let refused = ada.say(&["port-forward", "box", &format!("{taken}:7000")]).await?;
        assert_eq!(refused.code, Some(5), "{refused:#?}");
        assert!(refused.err.contains("Take another"), "{refused:#?}");

        let id = forward.id().context("it runs")?.to_string();
        tokio::process::Command::new("kill").args(["-INT", &id]).status().await?;
        let status =
            tokio::time::timeout(Duration::from_secs(10), forward.wait()).await.context("Ctrl-C ends it")??;
        assert_eq!(status.code(), Some(0));
        Ok(())
    })
    .await
}
