//! Images of executables, and the base image.

use anyhow::Context as _;
use odc_tests::{command, pod, with_cluster};
use serde_json::json;

#[tokio::test]
async fn loaded_executable_runs_as_a_pod() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        let binary = command::executable("odc")?.display().to_string();
        let name = cluster.odc_local(&["image", "load", &binary]).await?.check()?.trim().to_owned();
        let manifest = json!({
            "metadata": {"name": "ours"},
            "spec": {
                "restartPolicy": "Never",
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{
                    "name": "main",
                    "image": name,
                    "args": ["--version"],
                    "securityContext": {"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                }],
            },
        });
        pod::create(&cluster.namespace, manifest).await?;
        let succeeded = |pod: &k8s_openapi::api::core::v1::Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
        pod::wait_for(&cluster.namespace, "ours", "succeeded", succeeded).await?;
        assert_eq!(pod::logs(&cluster.namespace, "ours").await?, format!("odc {}\n", env!("CARGO_PKG_VERSION")));

        // An existing image is not pushed again: a push would rewrite the tag.
        let (repository, tag) = name.split_once('/').and_then(|(_, rest)| rest.split_once(':')).context("parsing the image name")?;
        let repositories = cluster.directory.join("registry/docker/registry/v2/repositories");
        let link = repositories.join(repository).join("_manifests/tags").join(tag).join("current/link");
        let pushed = std::fs::metadata(&link)?.modified()?;
        assert_eq!(cluster.odc_local(&["image", "load", &binary]).await?.check()?.trim(), name);
        assert_eq!(std::fs::metadata(&link)?.modified()?, pushed);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn base_image_contains_common_tools() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        pod::run(&cluster.namespace, pod::manifest("base", "exec sleep infinity")).await?;
        for tool in ["git", "curl", "sudo", "python3", "less", "vim.tiny", "ps", "rsync", "ssh", "tmux", "locale-gen"] {
            pod::exec(&cluster.namespace, "base", &["sh", "-c", &format!("command -v {tool}")]).await?;
        }
        let uid = pod::exec(&cluster.namespace, "base", &["su", "-", "dev", "-c", "sudo id -u"]).await?;
        assert_eq!(uid, "0\n");
        Ok(())
    })
    .await
}
