//! `devctl submit`: what goes there, what comes back, and that nothing is left however it ends.

use std::process::Stdio;

use anyhow::Context as _;
use odc_tests::wait;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::person::{Person, write};
use crate::demo::{Demo, LIMIT, with_demo};

async fn servers(demo: &Demo<'_>) -> anyhow::Result<Vec<Value>> {
    let all: Value = serde_json::from_str(&demo.kubectl(&["get", "dsv", "-o", "json"]).await?)?;
    Ok(all["items"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_job_ends_as_its_command_and_brings_its_files_back() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        write(&ada.path("job/deep/in put"), "from here\n")?;
        write(&ada.path("job/skipped/large"), "not to be sent\n")?;
        // As if somebody went on writing here while the command runs.
        write(&ada.path("job/deep/notes"), "newer\n")?;
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3_600);
        std::fs::File::options().append(true).open(ada.path("job/deep/notes"))?.set_modified(later)?;
        let words = ["submit", "-t", "cpu", "--no-persist", "--name", "job", "--yes", "--dir", "job"];
        let script = "cat 'deep/in put'; ls; echo older > deep/notes; tr a-z A-Z < 'deep/in put' > 'out put'; echo aside >&2; exit 7";
        let ended = ada.say(&[&words[..], &["--exclude", "skipped", "--", script]].concat()).await?;
        assert_eq!((ended.out.as_str(), ended.code), ("from here\ndeep\n", Some(7)), "{ended:#?}");
        assert!(ended.err.contains("aside\n") && ended.err.contains("job was given back"), "{ended:#?}");
        assert_eq!(std::fs::read_to_string(ada.path("job/out put"))?, "FROM HERE\n");
        assert_eq!(std::fs::read_to_string(ada.path("job/deep/notes"))?, "newer\n");
        demo.until_phase("job", "Cancelled").await?;

        // An image without rsync: the same, and several words arrive as they are. The old job is replaced.
        let hidden = "mkdir -p ~/bin && mv $(command -v rsync) ~/bin/hidden";
        write(&ada.path("hide"), hidden)?;
        let script = [
            "--setup",
            "hide",
            "--",
            "sh",
            "-c",
            "cat \"$0\" \"$1\" > both; echo older > deep/notes; command -v rsync || exit 3",
            "deep/in put",
            "out put",
        ];
        let ended = ada.say(&[&words[..], &script].concat()).await?;
        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert_eq!(std::fs::read_to_string(ada.path("job/both"))?, "from here\nFROM HERE\n");
        assert_eq!(std::fs::read_to_string(ada.path("job/deep/notes"))?, "newer\n");

        let forgotten = ada.say(&["submit", "-t", "cpu", "python", "train.py"]).await?;
        assert_eq!(forgotten.code, Some(2), "{forgotten:#?}");
        assert!(forgotten.err.contains("-- python"), "{forgotten:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_interrupted_job_gives_its_server_back() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        write(&ada.path("job/in"), "x")?;
        let words = ["submit", "-t", "cpu", "--no-persist", "--yes", "--dir", "job", "--name"];
        for (name, signal, code) in [("interrupted", "INT", 130), ("terminated", "TERM", 143)] {
            let script = ["--", "echo begun; exec sleep 1000"];
            let mut job = ada.devctl(&[&words[..], &[name], &script].concat());
            let mut job = job.stderr(Stdio::inherit()).spawn()?;
            let mut out = job.stdout.take().context("a pipe")?;
            let mut begun = [0; 6];
            tokio::time::timeout(LIMIT, out.read_exact(&mut begun)).await.context("the command runs")??;
            let id = job.id().context("it runs")?.to_string();
            tokio::process::Command::new("kill").args([&format!("-{signal}"), &id]).status().await?;
            let status = tokio::time::timeout(LIMIT, job.wait()).await.context("it ends")??;
            assert_eq!(status.code(), Some(code), "{name}");
            demo.until_phase(name, "Cancelled").await?;
        }

        // While it still waits for a server that cannot come.
        let mut job = ada.devctl(&[
            "submit",
            "-t",
            "gpu",
            "--gpus",
            "8",
            "--nodes",
            "3",
            "--no-persist",
            "--yes",
            "--dir",
            "job",
            "--name",
            "waiting",
            "--",
            "true",
        ]);
        let mut job = job.stderr(Stdio::inherit()).spawn()?;
        demo.until_phase("waiting", "Queued").await?;
        let id = job.id().context("it runs")?.to_string();
        tokio::process::Command::new("kill").args(["-INT", &id]).status().await?;
        let status = tokio::time::timeout(LIMIT, job.wait()).await.context("it ends")??;
        assert_eq!(status.code(), Some(130));
        wait::until("nothing runs any more", LIMIT, async || {
            let left: Vec<Value> =
                servers(demo).await?.into_iter().filter(|one| one["status"]["phase"] != "Cancelled").collect();
            anyhow::ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await
    })
    .await
}
