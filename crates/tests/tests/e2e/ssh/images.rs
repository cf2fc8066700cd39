//! Whatever the image has or lacks.

use std::process::Stdio;

use anyhow::Context as _;
use serde_json::json;
use tokio::process::Command;

use super::{Person, door, run};
use crate::demo::with_demo;

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
