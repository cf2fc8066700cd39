//! Exit codes, messages and hints of errors.

use std::time::Duration;

use super::fixture::{CommandOutput, normalize, with_fixture};

/// Formats the exit code and standard error for a snapshot.
fn format_error(output: &CommandOutput) -> anyhow::Result<String> {
    anyhow::ensure!(output.out.is_empty(), "messages on standard output: {}", output.out);
    Ok(format!("{}: {}", output.code.unwrap_or(-1), normalize(&output.err)?))
}

#[tokio::test]
async fn each_error_has_an_exit_code_and_a_hint() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let mut all = String::new();
        for words in [
            &["show", "bix"][..],
            &["show", "secret"],
            &["show", "zebra"],
            &["show", "b"],
            &["show"],
            &["extend", "box"],
            &["extend", "long-gone", "2h"],
            &["extend", "broken", "2h"],
            &["hibernate", "box"],
            &["wake", "long-gone"],
            &["edit", "box"],
            &["edit", "box", "--remove-user", "eve"],
            &["edit", "box", "--add-port", "ssh=2222"],
            &["delete", "--all"],
            &["delete", "bo"],
            &["delete", "bo", "--yes"],
            &["ssh", "long-gone"],
            &["ssh", "broken", "--", "true"],
            &["ssh", "train", "--timeout", "1s"],
            &["ssh", "notes", "--no-wake"],
            &["ssh", "bix"],
            &["ssh", "box", "--node", "3"],
            &["exec", "--shell", "long-gone"],
            &["exec", "--tty", "notes", "--no-wake", "--", "true"],
            &["logs", "train"],
            &["logs", "notes"],
            &["show", "secret", "--namespace", "dev-bob"],
            &["create", "box", "--no-persist"],
            &["create", "new", "--flavor", "h10"],
            &["create", "new", "--flavor", "h100", "--gpus", "3"],
            &["create", "new", "--flavor", "h100", "--gpus", "16"],
            &["create", "new", "--lifetime", "1m"],
            &["create", "new", "--no-persist", "--env", "ODC_X=1"],
            &["create", "42"],
            &["create", "new", "--interactive"],
            &["create", "new", "--ssh-public-key-file", "none.pub"],
            &["list", "--user", "bob"],
            &["list", "--user", "Bob!"],
            &["list", "--phase", "idle"],
            &["avail", "h10"],
            &["show", "box", "--context", "elsewhere"],
            &["list", "--namespace", "default"],
            &["list", "--kubeconfig", "none"],
            &["config", "set", "create.flavour", "x"],
            &["config", "use", "elsewhere"],
            &["admin", "user", "list"],
            &["admin", "user", "kubeconfig", "bob"],
        ] {
            let output = fixture.machine.devctl("ada", words).await?;
            all.push_str(&format!("$ devctl {}\n{}\n", words.join(" "), format_error(&output)?));
        }
        insta::assert_snapshot!("errors", all);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn log_tail_of_a_failed_server_is_printed() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let output = fixture.machine.devctl("ada", &["logs", "broken"]).await?;
        assert_eq!((output.out.as_str(), output.code), ("Traceback\nKeyError: 'TOKEN'\n", Some(0)));
        assert!(output.err.contains("server broken is not running"), "{}", output.err);
        // The log of a deleted pod is replaced by the error.
        let output = fixture.machine.devctl("ada", &["debug", "box", "--logs"]).await?.success()?;
        assert!(output.contains("Log of box-0\n  pod box-0 not found"), "{output}");
        let json = fixture.machine.devctl("ada", &["debug", "box", "--logs", "-o", "json"]).await?.success()?;
        let json: serde_json::Value = serde_json::from_str(&json)?;
        assert_eq!((&json["logs"][0]["pod"], &json["logs"][0]["text"]), (&"box-0".into(), &serde_json::Value::Null));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn config_ssh_print_writes_no_files() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let output = fixture.machine.devctl("ada", &["config-ssh", "--print", "bo"]).await?.success()?;
        for words in [
            "# host key: ssh-ed25519 ",
            "Host box.odc\n",
            "  ProxyCommand ",
            "ssh --stdio '%n'",
            "  StrictHostKeyChecking yes",
        ] {
            assert!(output.contains(words), "{words}: {output}");
        }
        assert!(
            !fixture.machine.home("ada").join(".ssh/odc").exists()
                && !fixture.machine.home("ada").join(".ssh/config").exists()
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unreachable_cluster_and_invalid_token_are_reported() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let text = super::fixture::read(&fixture.machine.kubeconfig("ada"))?;
        let unused = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut config: serde_json::Value = serde_json::from_str(&text)?;
        config["clusters"][0]["cluster"]["server"] = format!("https://{unused}").into();
        std::fs::write(fixture.machine.kubeconfig("eve"), config.to_string())?;
        let output = fixture.machine.devctl("eve", &["list"]).await?;
        assert_eq!(format_error(&output)?, "1: error: could not reach <api>: Connection refused (os error 111)\nhint: check the network and the context (ada)\n");
        // An invalid token.
        config = serde_json::from_str(&text)?;
        config["users"][0]["user"]["token"] = "nonsense".into();
        std::fs::write(fixture.machine.kubeconfig("eve"), config.to_string())?;
        let output = fixture.machine.devctl("eve", &["list"]).await?;
        assert_eq!((output.code, output.err.contains("authentication to context ada failed (401 Unauthorized)")), (Some(4), true), "{}", output.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn wait_stops_at_timeout_and_signals() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        // Without an operator the server stays pending.
        let words = ["create", "slow", "--flavor", "cpu", "--no-persist", "--wait", "--timeout", "1s"];
        let output = fixture.machine.devctl("ada", &words).await?;
        assert_eq!((output.code, output.out.as_str()), (Some(6), ""), "{}", output.err);
        assert!(output.err.contains("devctl debug slow"), "{}", output.err);
        let servers = fixture.servers("ada");
        assert!(servers.get_opt("slow").await?.is_some(), "the server is kept");

        // The server of a job that timed out is deleted.
        let words = [
            "submit",
            "--name",
            "job",
            "--flavor",
            "cpu",
            "--no-persist",
            "--timeout",
            "1s",
            "--no-push",
            "--",
            "true",
        ];
        let output = fixture.machine.devctl("ada", &words).await?;
        assert_eq!((output.code, output.out.as_str()), (Some(6), ""), "{}", output.err);
        assert!(
            output.err.contains("the server is being deleted") && !output.err.contains("the server keeps starting"),
            "{}",
            output.err
        );
        assert_eq!(servers.get("job").await?.spec.desired, odc_api::v1alpha1::Desired::Ended);

        // Without a terminal, SIGINT deletes the server; SIGTERM and SIGQUIT keep it.
        for (name, signal, desired, code) in [
            ("cut", rustix_signal::INT, odc_api::v1alpha1::Desired::Ended, 130),
            ("left", rustix_signal::TERM, odc_api::v1alpha1::Desired::Running, 130),
            ("quit", rustix_signal::QUIT, odc_api::v1alpha1::Desired::Running, 130),
        ] {
            let mut command =
                fixture.machine.command("ada", &["create", name, "--flavor", "cpu", "--no-persist", "--wait"])?;
            command
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
            odc_tests::wait::until("the server exists", Duration::from_secs(60), async || {
                anyhow::ensure!(servers.get_opt(name).await?.is_some(), "not yet");
                Ok(())
            })
            .await?;
            // Signals are handled once it prints progress.
            let child = rustix_signal::send_when_waiting(child, name, signal).await?;
            assert_eq!(child.status.code(), Some(code), "{name}: {}", String::from_utf8_lossy(&child.stderr));
            assert_eq!(servers.get(name).await?.spec.desired, desired, "{name}");
        }
        Ok(())
    })
    .await
}

/// The API server has stored the server, but its response is delayed.
#[tokio::test]
async fn interrupt_during_create_reports_a_possible_server() -> anyhow::Result<()> {
    use odc_tests::apifault::{Action, Apifault, Fault, Plan};
    with_fixture(async |fixture| {
        let apifault =
            Apifault::start(&fixture.plane.kubeconfig, Plan::new([Fault::write(1).after(Action::Hold)])).await?;
        apifault.kubeconfig(&fixture.machine.kubeconfig("eve"), None)?;
        let words = ["create", "mine", "--flavor", "cpu", "--no-persist", "--wait", "--namespace", "dev-ada"];
        let mut command = tokio::process::Command::from(fixture.machine.command("eve", &words)?);
        command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
        let child = command.spawn()?;
        let servers = fixture.servers("ada");
        odc_tests::wait::until("the server is stored", Duration::from_secs(60), async || {
            anyhow::ensure!(servers.get_opt("mine").await?.is_some(), "not yet");
            Ok(())
        })
        .await?;
        rustix_signal::send(&child, rustix_signal::INT)?;
        let finished = child.wait_with_output().await?;
        let output = String::from_utf8(finished.stderr)?;
        assert_eq!(finished.status.code(), Some(130), "{output}");
        assert!(output.contains("interrupted while creating mine; it may have been created"), "{output}");
        assert!(output.contains("`devctl delete mine`"), "{output}");
        Ok(())
    })
    .await
}

mod rustix_signal {
    use std::process::Output;

    use anyhow::Context as _;
    use rustix::process::{Pid, Signal, kill_process};
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
    use tokio::process::Child;

    pub const INT: Signal = Signal::INT;
    pub const TERM: Signal = Signal::TERM;
    pub const QUIT: Signal = Signal::QUIT;

    pub fn send(child: &Child, signal: Signal) -> anyhow::Result<()> {
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("process is running")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the first progress line, sends the signal and returns the output.
    pub async fn send_when_waiting(mut child: Child, name: &str, signal: Signal) -> anyhow::Result<Output> {
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?);
        let mut text = String::new();
        while !text.contains(&format!("{name}: created")) {
            anyhow::ensure!(lines.read_line(&mut text).await? > 0, "process exited: {text}");
        }
        send(&child, signal)?;
        let mut output = child.wait_with_output().await?;
        lines.read_to_string(&mut text).await?;
        output.stderr = text.into_bytes();
        Ok(output)
    }
}
