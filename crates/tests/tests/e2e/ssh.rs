//! SSH sessions with the clients of OpenSSH, idle detection, and the control CA.

mod files;
mod forwarding;
mod images;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_tests::cleanup::with_cleanup;
use odc_tests::wait;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::service::send_heartbeats;
use crate::tenant::{TIMEOUT, Tenant, create_claim, with_exclusive_tenant, with_tenant};

/// Time to restart the SSH server on a busy machine.
const MAX_RESTART: Duration = Duration::from_secs(30);

/// An SSH client with its own key.
struct SshUser {
    directory: tempfile::TempDir,
    public: String,
}

/// Address and host key of a server.
struct SshEndpoint {
    address: String,
    host_key: String,
}

impl SshUser {
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

    /// Returns options with which an OpenSSH client uses the key and pins the host key.
    fn options(&self, endpoint: &SshEndpoint) -> anyhow::Result<Vec<String>> {
        let known = self.path("known_hosts");
        let line = format!("[{}]:2222 {}\n", endpoint.address, endpoint.host_key);
        // Not rewritten if unchanged, because other clients may be reading it.
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
            "-oConnectTimeout=100".into(),
            "-oPort=2222".into(),
            "-oLogLevel=ERROR".into(),
        ])
    }

    fn ssh(&self, endpoint: &SshEndpoint, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new("ssh");
        command
            .args(self.options(endpoint)?)
            .arg(format!("tenant@{}", endpoint.address))
            .args(arguments)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Runs a script and returns its output and exit code.
    async fn exec(&self, endpoint: &SshEndpoint, script: &str) -> anyhow::Result<(String, Option<i32>)> {
        let output = self.ssh(endpoint, &[script])?.stdin(Stdio::null()).output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((text + &String::from_utf8_lossy(&output.stderr), output.status.code()))
    }

    /// Runs a script and returns its output. Fails unless the exit code is 0.
    async fn run(&self, endpoint: &SshEndpoint, script: &str) -> anyhow::Result<String> {
        let (text, code) = self.exec(endpoint, script).await?;
        anyhow::ensure!(code == Some(0), "{script}: exit code {code:?}: {text}");
        Ok(text)
    }
}

/// Runs a local command and returns its standard output.
async fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until a server runs and returns its SSH endpoint.
async fn ssh_endpoint(tenant: &Tenant<'_>, name: &str) -> anyhow::Result<SshEndpoint> {
    let server = tenant.wait_for_phase(name, "Running").await?;
    let text = |value: &Value| {
        value.as_str().map(str::to_owned).context("the status of the server has no address or host key")
    };
    Ok(SshEndpoint {
        address: text(&server["status"]["pods"][0]["ip"])?,
        host_key: text(&server["status"]["access"]["hostKey"])?,
    })
}

/// Connects and returns the start of the version string, and the connection, which ends with the SSH server.
async fn read_version(endpoint: &SshEndpoint) -> anyhow::Result<(Vec<u8>, TcpStream)> {
    let mut stream = TcpStream::connect((endpoint.address.as_str(), 2222)).await?;
    let mut version = vec![0; 12];
    stream.read_exact(&mut version).await?;
    Ok((version, stream))
}

/// Waits for the end of the SSH server of this connection and returns the time until it accepts connections again.
async fn measure_restart(endpoint: &SshEndpoint, mut last: TcpStream) -> anyhow::Result<Duration> {
    // Either end of file or a connection reset.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, last.read_to_end(&mut rest)).await.context("the SSH server does not exit")?;
    let ended = Instant::now();
    wait::until("restarted SSH server", TIMEOUT, async || {
        let (version, _) = read_version(endpoint).await?;
        anyhow::ensure!(version == b"SSH-2.0-ODC_", "{version:?}");
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
async fn openssh_clients_work_with_a_server() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = SshUser::new().await?;
        // Capacity for the largest file.
        tenant.create("box", json!({"home": {"ephemeral": "3Gi"}, "access": {"keys": [ada.public]}})).await?;
        let endpoint = ssh_endpoint(tenant, "box").await?;

        assert_eq!(ada.exec(&endpoint, "exit 42").await?.1, Some(42));
        assert_eq!(ada.exec(&endpoint, "kill -TERM $$").await?.1, Some(143));
        let output = ada
            .run(
                &endpoint,
                "printf '%s %s ' \"$ODC_SERVER\" \"$HOME\"; test -x /odc/bin/odc-status && command -v odc-status",
            )
            .await?;
        assert_eq!(output, "box /home/dev /odc/bin/odc-status\n");

        // Also in a login shell, whose profile resets PATH.
        let mut shell = ada.ssh(&endpoint, &["-tt"])?;
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut keys = shell.stdin.take().context("ssh has no stdin")?;
        tokio::io::AsyncWriteExt::write_all(&mut keys, b"shopt login_shell; type odc-status; exit 3\n").await?;
        let finished = shell.wait_with_output().await?;
        let text = String::from_utf8_lossy(&finished.stdout);
        let is_login = |line: &str| line.contains("login_shell") && line.trim_end().ends_with("on");
        assert!(text.lines().any(is_login) && text.contains("odc-status is /odc/bin/odc-status"), "{text}");
        assert_eq!(finished.status.code(), Some(3), "{text}");

        // A tmux session survives the end of the connection and a crash of the SSH server.
        ada.run(&endpoint, "tmux new-session -d -s work 'echo $$ > pid; exec sleep 1000'").await?;
        let pid = ada.run(&endpoint, "cat pid").await?;
        let (_, last) = read_version(&endpoint).await?;
        let (killed, restart) = tokio::join!(
            tenant.exec("box-0", "kill -9 $(pgrep -f '[s]erve --keys')"),
            measure_restart(&endpoint, last)
        );
        killed?;
        let restart = restart?;
        assert!(restart <= MAX_RESTART, "the SSH server restarted after {restart:?}");
        let sessions = ada.run(&endpoint, "tmux list-sessions -F '#{session_name}'; ps -o pid= -p $(cat pid)").await?;
        assert!(sessions.starts_with("work\n") && sessions.trim().ends_with(pid.trim()), "{sessions}");

        // An editor with a terminal.
        let mut edit = ada.ssh(&endpoint, &["-tt", "vim.tiny -u NONE note"])?;
        let mut edit = edit.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut keys = edit.stdin.take().context("ssh has no stdin")?;
        tokio::io::AsyncWriteExt::write_all(&mut keys, b"ihello\x1b:wq\r").await?;
        assert!(edit.wait().await?.success());
        assert_eq!(ada.run(&endpoint, "cat note").await?, "hello\n");

        files::check_concurrent_sessions(&ada, &endpoint).await?;
        files::check_file_transfer(&ada, &endpoint).await?;
        forwarding::check_forwarding(&ada, &endpoint).await?;
        Ok(())
    })
    .await
}

fn command_line(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<String> {
    Ok(format!("ssh {} tenant@{}", ada.options(endpoint)?.join(" "), endpoint.address))
}

#[tokio::test]
async fn access_changes_apply_to_a_running_server() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let (ada, bob) = (SshUser::new().await?, SshUser::new().await?);
        tenant.create("box", json!({"access": {"keys": [ada.public]}})).await?;
        let endpoint = ssh_endpoint(tenant, "box").await?;
        assert_ne!(bob.exec(&endpoint, "true").await?.1, Some(0), "bob has no access yet");
        let mut session = ada.ssh(&endpoint, &["echo in; exec sleep 1000"])?;
        let mut session = session.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut first = [0; 3];
        let mut output = session.stdout.take().context("ssh has no stdout")?;
        tokio::io::AsyncReadExt::read_exact(&mut output, &mut first).await?;

        tenant.patch_spec("box", json!({"access": {"keys": [bob.public]}})).await?;
        // Open sessions of a removed key are closed.
        tokio::time::timeout(TIMEOUT, session.wait()).await.context("the session of ada is still open")??;
        assert_eq!(bob.run(&endpoint, "echo hello").await?, "hello\n");
        assert_ne!(ada.exec(&endpoint, "true").await?.1, Some(0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idle_server_hibernates_and_active_servers_do_not() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = SshUser::new().await?;
        let idle = |claim: Option<&str>| {
            let home = claim.map_or(json!({"ephemeral": "1Gi"}), |claim| json!({"claim": claim}));
            let action = if claim.is_some() { "Hibernate" } else { "End" };
            json!({"home": home, "idle": {"timeout": "1m", "action": action}, "access": {"keys": [ada.public]}})
        };
        create_claim(tenant, "quiet").await?;
        tenant.create("quiet", idle(Some("quiet"))).await?;
        for name in ["busy", "pinned", "web", "beating"] {
            tenant.create(name, idle(None)).await?;
        }
        let quiet = ssh_endpoint(tenant, "quiet").await?;
        let (busy, pinned, web) = (
            ssh_endpoint(tenant, "busy").await?,
            ssh_endpoint(tenant, "pinned").await?,
            ssh_endpoint(tenant, "web").await?,
        );
        ada.run(&quiet, "echo precious > work").await?;
        // CPU load without a session.
        ada.run(&busy, "(setsid sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null &)").await?;
        let output = ada.run(&pinned, "odc-keep-alive 30m waiting for a colleague").await?;
        assert!(output.contains("30m"), "{output}");
        // No session runs a command, but a forwarded port carries data.
        let _browser = forwarding::poll_page(&ada, &web, 8000).await?;
        // A program reports activity through the HTTP API.
        tenant.wait_for_phase("beating", "Running").await?;
        let _heartbeats = send_heartbeats(tenant, "beating").await?;
        // One process exceeds the memory limit; the others stay.
        let (_, code) = ada.exec(&pinned, "python3 -c 'x = bytearray(4 << 30)'").await?;
        assert_ne!(code, Some(0));

        // The Idle condition precedes the hibernation.
        tenant.kubectl(&["wait", "dsv/quiet", "--for=condition=Idle=True", "--timeout=120s"]).await?;
        let hibernated = tenant.wait_for_phase("quiet", "Hibernated").await?;
        assert!(condition(&hibernated, "Idle")["message"].to_string().contains("Idle: no activity"), "{hibernated}");
        assert_eq!(hibernated["status"]["hibernation"]["cause"], "Idle");
        for (name, reason) in [
            ("busy", "busy"),
            ("pinned", "keep-alive"),
            ("web", "traffic on forwarded port 8000"),
            ("beating", "heartbeat"),
        ] {
            wait::until("activity in the Idle condition", TIMEOUT, async || {
                let server = tenant.get(name).await?;
                let message = condition(&server, "Idle")["message"].to_string();
                anyhow::ensure!(message.contains(reason), "{name}: {message}");
                anyhow::ensure!(server["status"]["phase"] == "Running", "{name}: {}", server["status"]["phase"]);
                Ok(())
            })
            .await?;
        }
        wait::until("OOM kill count", TIMEOUT, async || {
            let kills = tenant.get("pinned").await?["status"]["oomKills"].clone();
            anyhow::ensure!(kills.as_i64().is_some_and(|kills| kills >= 1), "{kills}");
            Ok(())
        })
        .await?;

        tenant.patch_spec("quiet", json!({"wake": "again"})).await?;
        let woken = ssh_endpoint(tenant, "quiet").await?;
        assert_eq!(woken.host_key, quiet.host_key);
        assert_eq!(ada.run(&woken, "cat work").await?, "precious\n");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn control_ca_can_be_rotated() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        let ada = SshUser::new().await?;
        create_claim(tenant, "hibernated").await?;
        tenant.create("running", json!({"access": {"keys": [ada.public]}})).await?;
        tenant.create("hibernated", json!({"home": {"claim": "hibernated"}, "access": {"keys": [ada.public]}})).await?;
        let running = ssh_endpoint(tenant, "running").await?;
        ssh_endpoint(tenant, "hibernated").await?;
        tenant.patch_spec("hibernated", json!({"desired": "Hibernated"})).await?;
        tenant.wait_for_phase("hibernated", "Hibernated").await?;

        let new = SshUser::new().await?;
        let read = |field: &'static str| async move {
            let path = format!("jsonpath={{.data.{}}}", field.replace('.', "\\."));
            let text = tenant
                .kubectl_as_admin(&["-n", "odc-system", "get", "secret", "odc-control-ca", "-o", &path], None)
                .await?;
            run(Command::new("bash").args(["-c", &format!("printf %s '{text}' | base64 -d")])).await
        };
        let (old_private, old_public) = (read("ca").await?, read("ca.pub").await?);
        let write = async |data: Value| {
            let patch = json!({"stringData": data}).to_string();
            tenant
                .kubectl_as_admin(
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
                // The agent accepts a new key only if it trusts the operator.
                let guest = SshUser::new().await?;
                tenant.patch_spec("running", json!({"access": {"keys": [ada.public, guest.public]}})).await?;
                wait::until(&format!("access after step {step}"), TIMEOUT, async || {
                    guest.run(&running, "true").await.map(drop)
                })
                .await?;
            }
            tenant.patch_spec("hibernated", json!({"desired": "Running"})).await?;
            let woken = ssh_endpoint(tenant, "hibernated").await?;
            let guest = SshUser::new().await?;
            tenant.patch_spec("hibernated", json!({"access": {"keys": [guest.public]}})).await?;
            wait::until("access to the woken server", TIMEOUT, async || guest.run(&woken, "true").await.map(drop)).await
        };
        with_cleanup(steps, async || write(json!({"ca": old_private, "ca.pub": old_public})).await.map(drop)).await
    })
    .await
}
