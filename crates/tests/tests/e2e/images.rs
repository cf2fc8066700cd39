//! Our own executables as images.

use anyhow::Context as _;
use odc_tests::{bed, pod, with_cluster};
use serde_json::json;

#[tokio::test]
async fn a_static_executable_becomes_a_running_pod() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        let binary = bed::executable("odc")?.display().to_string();
        let name = cluster.odc_local(&["image", "load", &binary]).await?.good()?.trim().to_owned();
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
        let ended = |pod: &k8s_openapi::api::core::v1::Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
        pod::until(&cluster.namespace, "ours", "ended well", ended).await?;
        assert_eq!(pod::logs(&cluster.namespace, "ours").await?, format!("odc {}\n", env!("CARGO_PKG_VERSION")));

        // What is there already is not sent again: a push would write the tag anew.
        let (repository, tag) = name.split_once('/').and_then(|(_, rest)| rest.split_once(':')).context("an image name")?;
        let repositories = cluster.directory.join("registry/docker/registry/v2/repositories");
        let link = repositories.join(repository).join("_manifests/tags").join(tag).join("current/link");
        let pushed = std::fs::metadata(&link)?.modified()?;
        assert_eq!(cluster.odc_local(&["image", "load", &binary]).await?.good()?.trim(), name);
        assert_eq!(std::fs::metadata(&link)?.modified()?, pushed);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_base_image_has_what_people_expect() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        pod::run(&cluster.namespace, pod::manifest("base", "exec sleep infinity")).await?;
        for tool in ["git", "curl", "sudo", "python3", "less", "vim.tiny", "ps", "rsync", "ssh", "tmux", "locale-gen"] {
            pod::exec(&cluster.namespace, "base", &["sh", "-c", &format!("command -v {tool}")]).await?;
        }
        let who = pod::exec(&cluster.namespace, "base", &["su", "-", "dev", "-c", "sudo id -u"]).await?;
        assert_eq!(who, "0\n");
        Ok(())
    })
    .await
}
