//! `devctl submit`: copied files, exit status and cleanup.

use std::process::Stdio;

use anyhow::Context as _;
use odc_tests::wait;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::user::{User, write};
use crate::tenant::{TIMEOUT, Tenant, with_tenant};

async fn servers(tenant: &Tenant<'_>) -> anyhow::Result<Vec<Value>> {
    let all: Value = serde_json::from_str(&tenant.kubectl(&["get", "dsv", "-o", "json"]).await?)?;
    Ok(all["items"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn job_passes_on_the_exit_status_and_copies_files_back() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        write(&ada.path("job/deep/in put"), "from here\n")?;
        write(&ada.path("job/skipped/large"), "not to be sent\n")?;
        // A local file that changes while the command runs.
        write(&ada.path("job/deep/notes"), "newer\n")?;
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3_600);
        std::fs::File::options().append(true).open(ada.path("job/deep/notes"))?.set_modified(later)?;
        let words = ["submit", "-t", "cpu", "--no-persist", "--name", "job", "--yes", "--dir", "job"];
        let script = "cat 'deep/in put'; ls; echo older > deep/notes; tr a-z A-Z < 'deep/in put' > 'out put'; echo aside >&2; exit 7";
        let finished = ada.run(&[&words[..], &["--exclude", "skipped", "--", script]].concat()).await?;
        assert_eq!((finished.out.as_str(), finished.code), ("from here\ndeep\n", Some(7)), "{finished:#?}");
        assert!(finished.err.contains("aside\n") && finished.err.contains("Stopping server job"), "{finished:#?}");
        assert_eq!(std::fs::read_to_string(ada.path("job/out put"))?, "FROM HERE\n");
        assert_eq!(std::fs::read_to_string(ada.path("job/deep/notes"))?, "newer\n");
        tenant.wait_for_phase("job", "Cancelled").await?;

        // Without rsync in the image, with several arguments. The finished server is replaced.
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
        let finished = ada.run(&[&words[..], &script].concat()).await?;
        assert_eq!(finished.code, Some(3), "{finished:#?}");
        assert_eq!(std::fs::read_to_string(ada.path("job/both"))?, "from here\nFROM HERE\n");
        assert_eq!(std::fs::read_to_string(ada.path("job/deep/notes"))?, "newer\n");

        let forgotten = ada.run(&["submit", "-t", "cpu", "python", "train.py"]).await?;
        assert_eq!(forgotten.code, Some(2), "{forgotten:#?}");
        assert!(forgotten.err.contains("-- python"), "{forgotten:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn interrupted_job_deletes_its_server() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        write(&ada.path("job/in"), "x")?;
        let words = ["submit", "-t", "cpu", "--no-persist", "--yes", "--dir", "job", "--name"];
        for (name, signal, code) in [("interrupted", "INT", 130), ("terminated", "TERM", 143)] {
            let script = ["--", "echo begun; exec sleep 1000"];
            let mut job = ada.devctl(&[&words[..], &[name], &script].concat());
            let mut job = job.stderr(Stdio::inherit()).spawn()?;
            let mut out = job.stdout.take().context("a pipe")?;
            let mut begun = [0; 6];
            tokio::time::timeout(TIMEOUT, out.read_exact(&mut begun)).await.context("the command runs")??;
            let id = job.id().context("process is running")?.to_string();
            tokio::process::Command::new("kill").args([&format!("-{signal}"), &id]).status().await?;
            let status = tokio::time::timeout(TIMEOUT, job.wait()).await.context("process exits")??;
            assert_eq!(status.code(), Some(code), "{name}");
            tenant.wait_for_phase(name, "Cancelled").await?;
        }

        // While waiting for a server that cannot start.
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
        tenant.wait_for_phase("waiting", "Queued").await?;
        let id = job.id().context("process is running")?.to_string();
        tokio::process::Command::new("kill").args(["-INT", &id]).status().await?;
        let status = tokio::time::timeout(TIMEOUT, job.wait()).await.context("process exits")??;
        assert_eq!(status.code(), Some(130));
        wait::until("all servers are deleted", TIMEOUT, async || {
            let left: Vec<Value> =
                servers(tenant).await?.into_iter().filter(|one| one["status"]["phase"] != "Cancelled").collect();
            anyhow::ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await
    })
    .await
}
