//! Images without tools, and restricted flavors.

use std::process::Stdio;

use anyhow::Context as _;
use odc_tests::cleanup::with_cleanup;
use serde_json::json;
use tokio::process::Command;

use super::{SshUser, run, ssh_endpoint};
use crate::tenant::with_tenant;

#[tokio::test]
async fn minimal_images_and_restricted_flavors_are_reachable() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = SshUser::new().await?;
        let flavor = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "restricted"}, "spec": {
            "privilege": "Restricted", "resources": {"per": "Server", "cpu": "100m", "memory": "256Mi"},
            "nodeSelector": {"odc.dev/local-node": "true"}}});
        tenant.kubectl_as_admin(&["apply", "-f", "-"], Some(&flavor.to_string())).await?;
        let steps = async {
            let pause = odc_tests::command::executable("odc-pause")?;
            let image = tenant.cluster.odc_local(&["image", "load", &pause.display().to_string()]).await?.check()?;
            tenant.create("bare", json!({"image": {"ref": image.trim()}, "access": {"keys": [ada.public]}})).await?;
            let shell = ["image", "load", "--at", "/bin/sh", "/usr/bin/busybox"];
            let shell = tenant.cluster.odc_local(&shell).await?.check()?;
            tenant.create("box", json!({"image": {"ref": shell.trim()}, "access": {"keys": [ada.public]}})).await?;
            tenant.create("plain", json!({"flavor": "restricted", "access": {"keys": [ada.public]}})).await?;

            // An image with a single executable: SFTP and forwarding work, a shell does not exist.
            let bare = ssh_endpoint(tenant, "bare").await?;
            let (output, code) = ada.exec(&bare, "true").await?;
            assert_eq!(code, Some(127), "{output}");
            assert!(output.contains("shell"), "{output}");
            let (batch, note) = (ada.path("batch"), ada.path("note"));
            std::fs::write(&note, "stored")?;
            std::fs::write(&batch, "put note\nrename note other\nget other\n")?;
            let mut sftp = Command::new("sftp");
            sftp.args(ada.options(&bare)?).arg("-b").arg(&batch).arg(format!("tenant@{}", bare.address));
            run(sftp.current_dir(ada.directory.path())).await?;
            assert_eq!(std::fs::read_to_string(ada.path("other"))?, "stored");
            let mut jump = ada.ssh(&bare, &["-W", "127.0.0.1:2222"])?;
            let mut jump = jump.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut version = [0; 8];
            let mut output = jump.stdout.take().context("ssh has no stdout")?;
            tokio::io::AsyncReadExt::read_exact(&mut output, &mut version).await?;
            assert_eq!(&version, b"SSH-2.0-");

            // An image with a shell only.
            let tiny = ssh_endpoint(tenant, "box").await?;
            assert_eq!(ada.run(&tiny, "cd; pwd; echo $((6*7)) $0 $USER; exit 0").await?, "/home/dev\n42 sh root\n");
            assert_eq!(ada.exec(&tiny, "exit 42").await?.1, Some(42));
            assert_eq!(ada.exec(&tiny, "kill -TERM $$").await?.1, Some(143));
            let mut shell = ada.ssh(&tiny, &["-tt"])?;
            let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut keys = shell.stdin.take().context("ssh has no stdin")?;
            tokio::io::AsyncWriteExt::write_all(&mut keys, b"echo in a $((40+2))-terminal; exit 3\n").await?;
            let finished = shell.wait_with_output().await?;
            assert_eq!(finished.status.code(), Some(3), "{finished:?}");
            assert!(String::from_utf8_lossy(&finished.stdout).contains("in a 42-terminal"), "{finished:?}");

            // A restricted server: not root and no sudo, but a user name and a home.
            let plain = ssh_endpoint(tenant, "plain").await?;
            let output = ada.run(&plain, "id -u; id -un; cd && pwd; touch here && echo written; git config user.name || git var GIT_AUTHOR_IDENT | cut -d'<' -f1; sudo -n true 2>&1 | head -c 40").await?;
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(lines[..4], ["1000", "dev", "/home/dev", "written"], "{output}");
            anyhow::Ok(())
        };
        with_cleanup(steps, async || {
            tenant.kubectl(&["delete", "dsv", "--all", "--wait=true"]).await?;
            tenant.kubectl_as_admin(&["delete", "dsf", "restricted"], None).await.map(drop)
        })
        .await
    })
    .await
}
