//! People inside their servers, with OpenSSH's own clients; and what happens when nobody is there.

mod files;
mod forwarding;
mod images;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_tests::wait;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
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

/// The connection too, which ends with the SSH server.
async fn greeting(door: &Door) -> anyhow::Result<(Vec<u8>, TcpStream)> {
    let mut stream = TcpStream::connect((door.address.as_str(), 2222)).await?;
    let mut greeting = vec![0; 12];
    stream.read_exact(&mut greeting).await?;
    Ok((greeting, stream))
}

/// How long it takes from the end of the SSH server that this connection is to until there is one again.
async fn comeback(door: &Door, mut last: TcpStream) -> anyhow::Result<Duration> {
    // It says more than its greeting; the end is the end, also if it is none in order.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(LIMIT, last.read_to_end(&mut rest)).await.context("the SSH server ends")?;
    let ended = Instant::now();
    wait::until("the SSH server is back", LIMIT, async || {
        let (greeting, _) = greeting(door).await?;
        anyhow::ensure!(greeting == b"SSH-2.0-ODC_", "{greeting:?}");
        Ok(())
    })
    .await?;
    Ok(ended.elapsed())
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

        // A login shell too, though its profile sets the path anew.
        let mut typed = ada.ssh(&door, &["-tt"])?;
        let mut typed = typed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut keys = typed.stdin.take().context("a shell reads keys")?;
        tokio::io::AsyncWriteExt::write_all(&mut keys, b"shopt login_shell; type odc-status; exit 3\n").await?;
        let seen = typed.wait_with_output().await?;
        let text = String::from_utf8_lossy(&seen.stdout);
        let is_login = |line: &str| line.contains("login_shell") && line.trim_end().ends_with("on");
        assert!(text.lines().any(is_login) && text.contains("odc-status is /odc/bin/odc-status"), "{text}");
        assert_eq!(seen.status.code(), Some(3), "{text}");

        // What runs in tmux stays when the connection ends, and when the SSH server itself dies.
        ada.say(&door, "tmux new-session -d -s work 'echo $$ > pid; exec sleep 1000'").await?;
        let pid = ada.say(&door, "cat pid").await?;
        let (_, last) = greeting(&door).await?;
        let (killed, back) =
            tokio::join!(demo.inside("box-0", "kill -9 $(pgrep -f '[s]erve --keys')"), comeback(&door, last));
        killed?;
        let back = back?;
        assert!(back <= Duration::from_secs(1), "the SSH server is back after {back:?}");
        let left = ada.say(&door, "tmux list-sessions -F '#{session_name}'; ps -o pid= -p $(cat pid)").await?;
        assert!(left.starts_with("work\n") && left.trim().ends_with(pid.trim()), "{left}");

        // An editor in a terminal of its own.
        let mut edit = ada.ssh(&door, &["-tt", "vim.tiny -u NONE note"])?;
        let mut edit = edit.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut keys = edit.stdin.take().context("vim reads keys")?;
        tokio::io::AsyncWriteExt::write_all(&mut keys, b"ihello\x1b:wq\r").await?;
        assert!(edit.wait().await?.success());
        assert_eq!(ada.say(&door, "cat note").await?, "hello\n");

        files::many(&ada, &door).await?;
        files::files(&ada, &door).await?;
        forwarding::forwarding(&ada, &door).await?;
        Ok(())
    })
    .await
}

fn command_line(ada: &Person, door: &Door) -> anyhow::Result<String> {
    Ok(format!("ssh {} demo@{}", ada.options(door)?.join(" "), door.address))
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
        for name in ["busy", "kept", "web"] {
            demo.create(name, idle(None)).await?;
        }
        let quiet = door(demo, "quiet").await?;
        let (busy, kept, web) = (door(demo, "busy").await?, door(demo, "kept").await?, door(demo, "web").await?);
        ada.say(&quiet, "echo precious > work").await?;
        // Says nothing, shows nothing, but computes.
        ada.say(&busy, "(setsid sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null &)").await?;
        let said = ada.say(&kept, "odc-keep-alive 30m waiting for a colleague").await?;
        assert!(said.contains("30 min"), "{said}");
        // Nobody is logged in to run anything, but somebody looks at a page now and then.
        let _looking = forwarding::look_at_a_page(&ada, &web, 8000).await?;
        // One process asks for more than there is; the others stay.
        let (_, code) = ada.exec(&kept, "python3 -c 'x = bytearray(4 << 30)'").await?;
        assert_ne!(code, Some(0));

        // First the warning, where everybody can read it.
        demo.kubectl(&["wait", "dsv/quiet", "--for=condition=Idle=True", "--timeout=120s"]).await?;
        let asleep = demo.until_phase("quiet", "Hibernated").await?;
        assert!(condition(&asleep, "Idle")["message"].to_string().contains("Nobody uses it: no use"), "{asleep}");
        assert_eq!(asleep["status"]["hibernation"]["by"], "Idle");
        for (name, reason) in [("busy", "busy"), ("kept", "keep it alive"), ("web", "forwarded port 8000 carried data")]
        {
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
