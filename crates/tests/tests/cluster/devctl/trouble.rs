//! How devctl fails: code, words, and what to do next.

use std::time::Duration;

use super::scene::{Said, steady, with_scene};

/// The code and the words, for a snapshot.
fn told(said: &Said) -> anyhow::Result<String> {
    anyhow::ensure!(said.out.is_empty(), "talk on standard output: {}", said.out);
    Ok(format!("{}: {}", said.code.unwrap_or(-1), steady(&said.err)?))
}

#[tokio::test]
async fn each_failure_has_its_code_and_says_what_to_do() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
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
            &["create", "new", "--time", "1m"],
            &["create", "new", "--no-persist", "--env", "ODC_X=1"],
            &["create", "42"],
            &["create", "new", "--interactive"],
            &["create", "new", "--ssh-public-key-file", "none.pub"],
            &["list", "--user", "bob"],
            &["list", "--user", "Bob!"],
            &["list", "--status", "sleepy"],
            &["avail", "h10"],
            &["show", "box", "--context", "elsewhere"],
            &["list", "--namespace", "default"],
            &["list", "--kubeconfig", "none"],
            &["config", "set", "create.flavour", "x"],
            &["config", "use", "elsewhere"],
            &["admin", "user", "list"],
            &["admin", "user", "kubeconfig", "bob"],
        ] {
            let said = scene.machine.devctl("ada", words).await?;
            all.push_str(&format!("$ devctl {}\n{}\n", words.join(" "), told(&said)?));
        }
        insta::assert_snapshot!("failures", all);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_left_of_a_log_is_shown() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let said = scene.machine.devctl("ada", &["logs", "broken"]).await?;
        assert_eq!((said.out.as_str(), said.code), ("Traceback\nKeyError: 'TOKEN'\n", Some(0)));
        assert!(said.err.contains("broken does not run any more"), "{}", said.err);
        // A pod that is no longer there has no log; why is said in its place.
        let said = scene.machine.devctl("ada", &["debug", "box", "--logs"]).await?.good()?;
        assert!(said.contains("Log of box-0\n  there is no pod box-0"), "{said}");
        let json = scene.machine.devctl("ada", &["debug", "box", "--logs", "-o", "json"]).await?.good()?;
        let json: serde_json::Value = serde_json::from_str(&json)?;
        assert_eq!((&json["logs"][0]["pod"], &json["logs"][0]["text"]), (&"box-0".into(), &serde_json::Value::Null));
        Ok(())
    })
    .await
}

/// Printing what ssh needs to know is printing, no more.
#[tokio::test]
async fn printed_lines_for_ssh_change_nothing() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let said = scene.machine.devctl("ada", &["config-ssh", "--print", "bo"]).await?.good()?;
        for words in [
            "# host key: ssh-ed25519 ",
            "Host box.odc\n",
            "  ProxyCommand ",
            "ssh --stdio '%n'",
            "  StrictHostKeyChecking yes",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(
            !scene.machine.home("ada").join(".ssh/odc").exists()
                && !scene.machine.home("ada").join(".ssh/config").exists()
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_said_to_be_so() -> anyhow::Result<()> {
    with_scene(async |scene| {
        let text = super::scene::read(&scene.machine.kubeconfig("ada"))?;
        let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut config: serde_json::Value = serde_json::from_str(&text)?;
        config["clusters"][0]["cluster"]["server"] = format!("https://{nobody}").into();
        std::fs::write(scene.machine.kubeconfig("eve"), config.to_string())?;
        let said = scene.machine.devctl("eve", &["list"]).await?;
        assert_eq!(told(&said)?, "1: error: <api> cannot be reached: Connection refused (os error 111)\nCheck the network, and that context ada is the one you mean.\n");
        // A token that nobody gave out.
        config = serde_json::from_str(&text)?;
        config["users"][0]["user"]["token"] = "nonsense".into();
        std::fs::write(scene.machine.kubeconfig("eve"), config.to_string())?;
        let said = scene.machine.devctl("eve", &["list"]).await?;
        assert_eq!((said.code, said.err.contains("does not know you")), (Some(4), true), "{}", said.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_ends_in_time_and_as_it_was_asked_to() -> anyhow::Result<()> {
    with_scene(async |scene| {
        // Nobody plays the operator here, so nothing ever happens to it.
        let words = ["create", "slow", "--flavor", "cpu", "--no-persist", "--wait", "--timeout", "1s"];
        let said = scene.machine.devctl("ada", &words).await?;
        assert_eq!((said.code, said.out.as_str()), (Some(6), ""), "{}", said.err);
        assert!(said.err.contains("devctl debug slow"), "{}", said.err);
        let servers = scene.servers("ada");
        assert!(servers.get_opt("slow").await?.is_some(), "it stays in the queue");

        // A job that gets no server gives back what it asked for, and says so.
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
        let said = scene.machine.devctl("ada", &words).await?;
        assert_eq!((said.code, said.out.as_str()), (Some(6), ""), "{}", said.err);
        assert!(said.err.contains("It is given back.") && !said.err.contains("It goes on"), "{}", said.err);
        assert_eq!(servers.get("job").await?.spec.desired, odc_api::v1alpha1::Desired::Ended);

        // Off a terminal, Ctrl-C ends what it had asked for; a polite request to end leaves it.
        for (name, signal, desired, code) in [
            ("cut", rustix_signal::INT, odc_api::v1alpha1::Desired::Ended, 130),
            ("left", rustix_signal::TERM, odc_api::v1alpha1::Desired::Running, 130),
            ("quit", rustix_signal::QUIT, odc_api::v1alpha1::Desired::Running, 130),
        ] {
            let mut command =
                scene.machine.command("ada", &["create", name, "--flavor", "cpu", "--no-persist", "--wait"])?;
            command
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
            odc_tests::wait::until("it is asked for", Duration::from_secs(30), async || {
                anyhow::ensure!(servers.get_opt(name).await?.is_some(), "not yet");
                Ok(())
            })
            .await?;
            // It says what it waits for as soon as it waits, signals included.
            let child = rustix_signal::send_when_waiting(child, name, signal).await?;
            assert_eq!(child.status.code(), Some(code), "{name}: {}", String::from_utf8_lossy(&child.stderr));
            assert_eq!(servers.get(name).await?.spec.desired, desired, "{name}");
        }
        Ok(())
    })
    .await
}

/// The cluster has stored the server, and its answer is still under way.
#[tokio::test]
async fn whoever_interrupts_the_request_itself_is_told_of_the_server() -> anyhow::Result<()> {
    use odc_tests::apifault::{Action, Apifault, Fault, Plan};
    with_scene(async |scene| {
        let apifault =
            Apifault::start(&scene.plane.kubeconfig, Plan::new([Fault::write(1).after(Action::Hold)])).await?;
        apifault.kubeconfig(&scene.machine.kubeconfig("eve"), None)?;
        let words = ["create", "mine", "--flavor", "cpu", "--no-persist", "--wait", "--namespace", "dev-ada"];
        let mut command = tokio::process::Command::from(scene.machine.command("eve", &words)?);
        command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
        let child = command.spawn()?;
        let servers = scene.servers("ada");
        odc_tests::wait::until("it is stored", Duration::from_secs(30), async || {
            anyhow::ensure!(servers.get_opt("mine").await?.is_some(), "not yet");
            Ok(())
        })
        .await?;
        rustix_signal::send(&child, rustix_signal::INT)?;
        let ended = child.wait_with_output().await?;
        let said = String::from_utf8(ended.stderr)?;
        assert_eq!(ended.status.code(), Some(130), "{said}");
        assert!(said.contains("mine was being asked for and may be there"), "{said}");
        assert!(said.contains("devctl delete mine ends it"), "{said}");
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
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("it runs")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the line that says what it waits for, sends the signal, and gives how it ended.
    pub async fn send_when_waiting(mut child: Child, name: &str, signal: Signal) -> anyhow::Result<Output> {
        let mut lines = BufReader::new(child.stderr.take().context("its words")?);
        let mut words = String::new();
        while !words.contains(&format!("{name}: asked for")) {
            anyhow::ensure!(lines.read_line(&mut words).await? > 0, "it ended: {words}");
        }
        send(&child, signal)?;
        let mut output = child.wait_with_output().await?;
        lines.read_to_string(&mut words).await?;
        output.stderr = words.into_bytes();
        Ok(output)
    }
}
