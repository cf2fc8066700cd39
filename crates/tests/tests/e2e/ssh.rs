//! People inside their servers, with OpenSSH's own clients; and what happens when nobody is there.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use odc_tests::wait;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::demo::{Demo, LIMIT, claim, with_demo};

/// A person with a key, and the one host key they accept.
struct Person {
    directory: tempfile::TempDir,
    public: String,
}

/// A server as its owner sees it from outside.
struct Door {
    address: String,
    host_key: String,
}

impl Person {
    async fn new() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let key = directory.path().join("key");
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key)).await?;
        let public = std::fs::read_to_string(key.with_extension("pub"))?.trim().to_owned();
        Ok(Self { directory, public })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Options that make any OpenSSH client use our key and pin the server's.
    fn options(&self, door: &Door) -> anyhow::Result<Vec<String>> {
        let known = self.path("known_hosts");
        let line = format!("[{}]:2222 {}\n", door.address, door.host_key);
        // Other clients may be reading it.
        if std::fs::read_to_string(&known).ok().as_ref() != Some(&line) {
            std::fs::write(&known, line)?;
        }
        let option = |name: &str, path: &Path| format!("-o{name}={}", path.display());
        Ok(vec![
            "-Fnone".into(),
            option("IdentityFile", &self.path("key")),
            option("UserKnownHostsFile", &known),
            "-oIdentitiesOnly=yes".into(),
            "-oStrictHostKeyChecking=yes".into(),
            "-oBatchMode=yes".into(),
            "-oConnectTimeout=10".into(),
            "-oPort=2222".into(),
            "-oLogLevel=ERROR".into(),
        ])
    }

    fn ssh(&self, door: &Door, words: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new("ssh");
        command.args(self.options(door)?).arg(format!("demo@{}", door.address)).args(words).kill_on_drop(true);
        Ok(command)
    }

    /// What a command printed, with its exit code.
    async fn exec(&self, door: &Door, script: &str) -> anyhow::Result<(String, Option<i32>)> {
        let output = self.ssh(door, &[script])?.stdin(Stdio::null()).output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((text + &String::from_utf8_lossy(&output.stderr), output.status.code()))
    }

    async fn say(&self, door: &Door, script: &str) -> anyhow::Result<String> {
        let (text, code) = self.exec(door, script).await?;
        anyhow::ensure!(code == Some(0), "{script}: exit code {code:?}: {text}");
        Ok(text)
    }
}

async fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn door(demo: &Demo<'_>, name: &str) -> anyhow::Result<Door> {
    let server = demo.until_phase(name, "Running").await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a running server tells how to get in");
    Ok(Door {
        address: text(&server["status"]["pods"][0]["ip"])?,
        host_key: text(&server["status"]["access"]["hostKey"])?,
    })
}

fn condition<'a>(server: &'a Value, kind: &str) -> &'a Value {
    let all = server["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn people_work_in_a_server_as_on_any_other() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new().await?;
        // Room for the largest file.
        demo.create("box", json!({"home": {"ephemeral": "3Gi"}, "access": {"keys": [ada.public]}})).await?;
        let door = door(demo, "box").await?;

        assert_eq!(ada.exec(&door, "exit 42").await?.1, Some(42));
        assert_eq!(ada.exec(&door, "kill -TERM $$").await?.1, Some(143));
        let said = ada
            .say(
                &door,
                "printf '%s %s ' \"$ODC_SERVER\" \"$HOME\"; test -x /odc/bin/odc-status && command -v odc-status",
            )
            .await?;
        assert_eq!(said, "box /home/dev /odc/bin/odc-status\n");

        // What runs in tmux stays when the connection ends, and when the SSH server itself dies.
        ada.say(&door, "tmux new-session -d -s work 'echo $$ > pid; exec sleep 1000'").await?;
        let pid = ada.say(&door, "cat pid").await?;
        demo.inside("box-0", "kill -9 $(pgrep -f '[s]erve --keys')").await?;
        wait::until("the SSH server is back", Duration::from_secs(5), async || {
            let left = ada.say(&door, "tmux list-sessions -F '#{session_name}'; ps -o pid= -p $(cat pid)").await?;
            anyhow::ensure!(left.starts_with("work\n") && left.trim().ends_with(pid.trim()), "{left}");
            Ok(())
        })
        .await?;

        // An editor in a terminal of its own.
        let mut edit = ada.ssh(&door, &["-tt", "vim.tiny -u NONE note"])?;
        let mut edit = edit.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut keys = edit.stdin.take().context("vim reads keys")?;
        tokio::io::AsyncWriteExt::write_all(&mut keys, b"ihello\x1b:wq\r").await?;
        assert!(edit.wait().await?.success());
        assert_eq!(ada.say(&door, "cat note").await?, "hello\n");

        many(&ada, &door).await?;
        files(&ada, &door).await?;
        forwarding(&ada, &door).await?;
        Ok(())
    })
    .await
}

/// Sessions of their own, all there at the same time.
async fn many(ada: &Person, door: &Door) -> anyhow::Result<()> {
    const SESSIONS: usize = 50;
    ada.say(door, "mkdir in").await?;
    // Each ends by itself, so that none is left if the test is not.
    let line =
        |number| format!("touch in/{number}; timeout 100 sh -c 'until test -e go; do sleep 0.2; done'; echo {number}");
    let start =
        |number| anyhow::Ok(ada.ssh(door, &[&line(number)])?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let sessions = (0..SESSIONS).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    wait::until("all are in", LIMIT, async || {
        let count: usize = ada.say(door, "ls in | wc -l").await?.trim().parse()?;
        anyhow::ensure!(count == SESSIONS, "{count} are in");
        Ok(())
    })
    .await?;
    ada.say(door, "touch go").await?;
    for (number, session) in sessions.into_iter().enumerate() {
        let output = session.wait_with_output().await?;
        assert_eq!((output.status.code(), String::from_utf8(output.stdout)?), (Some(0), format!("{number}\n")));
    }
    Ok(())
}

/// scp, sftp, rsync, and a large file both ways.
async fn files(ada: &Person, door: &Door) -> anyhow::Result<()> {
    let tree = ada.path("tree");
    std::fs::create_dir_all(tree.join("deep/er"))?;
    std::fs::write(tree.join("deep/er/file"), "content")?;
    let options = ada.options(door)?;
    let there = format!("demo@{}:", door.address);
    run(Command::new("scp").args(&options).arg("-r").arg(&tree).arg(format!("{there}copied"))).await?;
    assert_eq!(ada.say(door, "cat copied/deep/er/file").await?, "content");

    let batch = ada.path("batch");
    std::fs::write(&batch, "mkdir new\ncd new\nput -r tree\nrename tree/deep/er/file moved\nls\nget moved\n")?;
    let mut sftp = Command::new("sftp");
    sftp.args(&options).arg("-b").arg(&batch).arg(format!("demo@{}", door.address)).current_dir(ada.directory.path());
    run(&mut sftp).await?;
    assert_eq!(std::fs::read_to_string(ada.path("moved"))?, "content");

    ada.say(door, "mkdir -p synced && touch synced/surplus").await?;
    let shell = format!("ssh {}", options.join(" "));
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "--delete", "-e", &shell]).arg(format!("{}/", tree.display())).arg(format!("{there}synced"));
    run(&mut rsync).await?;
    assert_eq!(ada.say(door, "cd synced && find . -type f").await?, "./deep/er/file\n");

    let size = if cfg!(feature = "full") { 2 << 30 } else { 64 << 20 };
    let up = format!(
        "head -c {size} /dev/urandom | tee >(sha256sum >&2) | {} 'tee big | sha256sum >&2; sha256sum < big'",
        command_line(ada, door)?
    );
    let output = Command::new("bash").args(["-c", &up]).kill_on_drop(true).output().await?;
    let sums = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let mut sums: Vec<&str> = sums.lines().collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 1, "{sums:?}");
    let down = format!("{} 'cat big' | sha256sum", command_line(ada, door)?);
    assert_eq!(run(Command::new("bash").args(["-c", &down])).await?.trim(), sums[0].trim());
    ada.say(door, "rm big").await.map(drop)
}

fn command_line(ada: &Person, door: &Door) -> anyhow::Result<String> {
    Ok(format!("ssh {} demo@{}", ada.options(door)?.join(" "), door.address))
}

/// Ports and sockets both ways, through one shared connection too; and a clone with the key of the person's own agent.
async fn forwarding(ada: &Person, door: &Door) -> anyhow::Result<()> {
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

#[tokio::test]
async fn who_may_come_in_can_change_while_it_runs() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let (ada, bob) = (Person::new().await?, Person::new().await?);
        demo.create("box", json!({"access": {"keys": [ada.public]}})).await?;
        let door = door(demo, "box").await?;
        assert_ne!(bob.exec(&door, "true").await?.1, Some(0), "bob is a stranger");
        let mut inside = ada.ssh(&door, &["echo in; exec sleep 1000"])?;
        let mut inside = inside.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut first = [0; 3];
        let mut said = inside.stdout.take().context("a pipe")?;
        tokio::io::AsyncReadExt::read_exact(&mut said, &mut first).await?;

        demo.change("box", json!({"access": {"keys": [bob.public]}})).await?;
        // Whoever is not meant any more is cut off, wherever they are.
        tokio::time::timeout(LIMIT, inside.wait()).await.context("ada's session ends")??;
        assert_eq!(bob.say(&door, "echo hello").await?, "hello\n");
        assert_ne!(ada.exec(&door, "true").await?.1, Some(0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_nobody_uses_falls_asleep_and_one_in_use_does_not() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new().await?;
        let idle = |claim: Option<&str>| {
            let home = claim.map_or(json!({"ephemeral": "1Gi"}), |claim| json!({"claim": claim}));
            let action = if claim.is_some() { "Hibernate" } else { "End" };
            json!({"home": home, "idle": {"timeout": "1m", "action": action}, "access": {"keys": [ada.public]}})
        };
        claim(demo, "quiet").await?;
        demo.create("quiet", idle(Some("quiet"))).await?;
        for name in ["busy", "kept"] {
            demo.create(name, idle(None)).await?;
        }
        let quiet = door(demo, "quiet").await?;
        let (busy, kept) = (door(demo, "busy").await?, door(demo, "kept").await?);
        ada.say(&quiet, "echo precious > work").await?;
        // Says nothing, shows nothing, but computes.
        ada.say(&busy, "(setsid sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null &)").await?;
        let said = ada.say(&kept, "odc-keep-alive 30m waiting for a colleague").await?;
        assert!(said.contains("30 min"), "{said}");
        // One process asks for more than there is; the others stay.
        let (_, code) = ada.exec(&kept, "python3 -c 'x = bytearray(4 << 30)'").await?;
        assert_ne!(code, Some(0));

        // First the warning, where everybody can read it.
        demo.kubectl(&["wait", "dsv/quiet", "--for=condition=Idle=True", "--timeout=120s"]).await?;
        let asleep = demo.until_phase("quiet", "Hibernated").await?;
        assert!(condition(&asleep, "Idle")["message"].to_string().contains("Nobody uses it: no use"), "{asleep}");
        assert_eq!(asleep["status"]["hibernation"]["by"], "Idle");
        for (name, reason) in [("busy", "busy"), ("kept", "keep it alive")] {
            wait::until("the resource says what counted", LIMIT, async || {
                let server = demo.get(name).await?;
                let message = condition(&server, "Idle")["message"].to_string();
                anyhow::ensure!(message.contains(reason), "{name}: {message}");
                anyhow::ensure!(server["status"]["phase"] == "Running", "{name}: {}", server["status"]["phase"]);
                Ok(())
            })
            .await?;
        }
        wait::until("the kill is counted", LIMIT, async || {
            let kills = demo.get("kept").await?["status"]["oomKills"].clone();
            anyhow::ensure!(kills.as_i64().is_some_and(|kills| kills >= 1), "{kills}");
            Ok(())
        })
        .await?;

        demo.change("quiet", json!({"wake": "again"})).await?;
        let awake = door(demo, "quiet").await?;
        assert_eq!(awake.host_key, quiet.host_key);
        assert_eq!(ada.say(&awake, "cat work").await?, "precious\n");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_control_authority_can_be_replaced() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new().await?;
        claim(demo, "sleeper").await?;
        demo.create("awake", json!({"access": {"keys": [ada.public]}})).await?;
        demo.create("sleeper", json!({"home": {"claim": "sleeper"}, "access": {"keys": [ada.public]}})).await?;
        let awake = door(demo, "awake").await?;
        door(demo, "sleeper").await?;
        demo.change("sleeper", json!({"desired": "Hibernated"})).await?;
        demo.until_phase("sleeper", "Hibernated").await?;

        let new = Person::new().await?;
        let read = |field: &'static str| async move {
            let path = format!("jsonpath={{.data.{}}}", field.replace('.', "\\."));
            let text = demo
                .kubectl_as("odc-local", &["-n", "odc-system", "get", "secret", "odc-control-ca", "-o", &path], None)
                .await?;
            run(Command::new("bash").args(["-c", &format!("printf %s '{text}' | base64 -d")])).await
        };
        let (old_private, old_public) = (read("ca").await?, read("ca.pub").await?);
        let write = async |data: Value| {
            let patch = json!({"stringData": data}).to_string();
            demo.kubectl_as(
                "odc-local",
                &["-n", "odc-system", "patch", "secret", "odc-control-ca", "--type=merge", "-p", &patch],
                None,
            )
            .await
        };
        let both = format!("{}\n{}\n", old_public.trim(), new.public);
        let private = std::fs::read_to_string(new.path("key"))?;
        let steps = async {
            for (step, data) in
                [json!({"ca.pub": both}), json!({"ca": private}), json!({"ca.pub": format!("{}\n", new.public)})]
                    .into_iter()
                    .enumerate()
            {
                write(data).await?;
                // The agent hears of somebody else only if it takes the operator's word.
                let guest = Person::new().await?;
                demo.change("awake", json!({"access": {"keys": [ada.public, guest.public]}})).await?;
                wait::until(&format!("the guest of step {step} is let in"), LIMIT, async || {
                    guest.say(&awake, "true").await.map(drop)
                })
                .await?;
            }
            demo.change("sleeper", json!({"desired": "Running"})).await?;
            let woken = door(demo, "sleeper").await?;
            let guest = Person::new().await?;
            demo.change("sleeper", json!({"access": {"keys": [guest.public]}})).await?;
            wait::until("a guest of the woken one is let in", LIMIT, async || guest.say(&woken, "true").await.map(drop))
                .await
        };
        let done = steps.await;
        write(json!({"ca": old_private, "ca.pub": old_public})).await?;
        done
    })
    .await
}

#[tokio::test]
async fn any_image_and_any_privilege_will_do() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new().await?;
        let flavor = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "restricted"}, "spec": {
            "privilege": "Restricted", "resources": {"per": "Server", "cpu": "100m", "memory": "256Mi"},
            "nodeSelector": {"odc.dev/local-node": "true"}}});
        demo.kubectl_as("odc-local", &["apply", "-f", "-"], Some(&flavor.to_string())).await?;
        let steps = async {
            let pause = odc_tests::bed::executable("odc-pause")?;
            let image = demo.cluster.odc_local(&["image", "load", &pause.display().to_string()]).await?.good()?;
            demo.create("bare", json!({"image": {"ref": image.trim()}, "access": {"keys": [ada.public]}})).await?;
            let shell = ["image", "load", "--at", "/bin/sh", "/usr/bin/busybox"];
            let shell = demo.cluster.odc_local(&shell).await?.good()?;
            demo.create("box", json!({"image": {"ref": shell.trim()}, "access": {"keys": [ada.public]}})).await?;
            demo.create("plain", json!({"flavor": "restricted", "access": {"keys": [ada.public]}})).await?;

            // Nothing in the image but one program, and still there is a way in.
            let bare = door(demo, "bare").await?;
            let (said, code) = ada.exec(&bare, "true").await?;
            assert_eq!(code, Some(127), "{said}");
            assert!(said.contains("shell"), "{said}");
            let (batch, note) = (ada.path("batch"), ada.path("note"));
            std::fs::write(&note, "kept")?;
            std::fs::write(&batch, "put note\nrename note other\nget other\n")?;
            let mut sftp = Command::new("sftp");
            sftp.args(ada.options(&bare)?).arg("-b").arg(&batch).arg(format!("demo@{}", bare.address));
            run(sftp.current_dir(ada.directory.path())).await?;
            assert_eq!(std::fs::read_to_string(ada.path("other"))?, "kept");
            let mut jump = ada.ssh(&bare, &["-W", "127.0.0.1:2222"])?;
            let mut jump = jump.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut greeting = [0; 8];
            let mut heard = jump.stdout.take().context("a pipe")?;
            tokio::io::AsyncReadExt::read_exact(&mut heard, &mut greeting).await?;
            assert_eq!(&greeting, b"SSH-2.0-");

            // One shell and nothing else.
            let tiny = door(demo, "box").await?;
            assert_eq!(ada.say(&tiny, "cd; pwd; echo $((6*7)) $0 $USER; exit 0").await?, "/home/dev\n42 sh root\n");
            assert_eq!(ada.exec(&tiny, "exit 42").await?.1, Some(42));
            assert_eq!(ada.exec(&tiny, "kill -TERM $$").await?.1, Some(143));
            let mut typed = ada.ssh(&tiny, &["-tt"])?;
            let mut typed = typed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut keys = typed.stdin.take().context("a pipe")?;
            tokio::io::AsyncWriteExt::write_all(&mut keys, b"echo in a $((40+2))-terminal; exit 3\n").await?;
            let seen = typed.wait_with_output().await?;
            assert_eq!(seen.status.code(), Some(3), "{seen:?}");
            assert!(String::from_utf8_lossy(&seen.stdout).contains("in a 42-terminal"), "{seen:?}");

            // Not root, and nothing may be gained; but somebody with a name and a home.
            let plain = door(demo, "plain").await?;
            let said = ada.say(&plain, "id -u; id -un; cd && pwd; touch here && echo written; git config user.name || git var GIT_AUTHOR_IDENT | cut -d'<' -f1; sudo -n true 2>&1 | head -c 40").await?;
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines[..4], ["1000", "dev", "/home/dev", "written"], "{said}");
            anyhow::Ok(())
        };
        let done = steps.await;
        demo.kubectl(&["delete", "dsv", "--all", "--wait=true"]).await?;
        demo.kubectl_as("odc-local", &["delete", "dsf", "restricted"], None).await?;
        done
    })
    .await
}
