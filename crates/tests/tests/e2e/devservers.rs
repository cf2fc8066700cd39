//! Servers on real nodes, through kubectl with the permissions of their owner.

use odc_tests::cleanup::with_cleanup;
use odc_tests::wait;
use serde_json::{Value, json};

use crate::tenant::{TIMEOUT, create_claim, with_exclusive_tenant, with_tenant};

#[tokio::test]
async fn server_runs_through_its_lifecycle() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        create_claim(tenant, "life").await?;
        let setup = json!({"script": "date > \"$HOME/started\"", "preStop": "echo stopped > \"$HOME/stopped\""});
        tenant.create("life", json!({"home": {"claim": "life"}, "setup": setup, "env": [{"name": "GREETING", "value": "$(HOME) & co"}]})).await?;
        let server = tenant.wait_for_phase("life", "Running").await?;
        assert_eq!(server["status"]["admission"]["nodes"], json!(["n1"]), "the node of its volume");
        let output = tenant.exec("life-0", "echo $GREETING; nproc; getent passwd $(id -u) | cut -d: -f6; test -s $HOME/started && echo set up; echo $NVIDIA_VISIBLE_DEVICES").await?;
        assert_eq!(output, "$(HOME) & co\n1\n/home/dev\nset up\nvoid\n");
        tenant.exec("life-0", "echo precious > $HOME/work").await?;

        tenant.patch_spec("life", json!({"desired": "Hibernated"})).await?;
        let hibernated = tenant.wait_for_phase("life", "Hibernated").await?;
        assert!(tenant.pods().await?.is_empty());
        assert_eq!(hibernated["status"]["admission"]["nodes"], Value::Null, "its resources are free");
        assert_eq!(hibernated["status"]["expiresAt"], Value::Null, "its lifetime is paused");
        assert!(tenant.kubectl(&["get", "pvc", "life"]).await?.contains("Bound"));

        tenant.patch_spec("life", json!({"desired": "Running"})).await?;
        let resumed = tenant.wait_for_phase("life", "Running").await?;
        assert_eq!(tenant.exec("life-0", "cat $HOME/work $HOME/stopped").await?, "precious\nstopped\n");
        let key = |server: &Value| server["status"]["access"]["hostKey"].clone();
        assert_eq!(key(&server), key(&resumed), "the host key is unchanged");

        tenant.patch_spec("life", json!({"lifetime": "9h"})).await?;
        let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
        tenant.kubectl(&["wait", "dsv/life", "--for=jsonpath={.status.lifetime.granted}=9h", &timeout]).await?;

        tenant.patch_spec("life", json!({"desired": "Ended"})).await?;
        tenant.wait_for_phase("life", "Cancelled").await?;
        let error = tenant.patch_spec("life", json!({"lifetime": "10h"})).await.unwrap_err().to_string();
        assert!(error.contains("the server has ended and is immutable"), "{error}");
        tenant.kubectl(&["delete", "dsv", "life"]).await?;
        assert!(tenant.kubectl(&["get", "pvc", "life"]).await?.contains("Bound"), "the claim outlives the server");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn failed_start_reports_the_reason() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let registry = "registry.odc.internal:5000";
        tenant.create("absent", json!({"image": {"ref": format!("{registry}/no/such:image")}})).await?;
        // An image whose entrypoint prints its usage and exits.
        let agent = odc_tests::command::executable("odc-agent")?;
        let image = tenant.cluster.odc_local(&["image", "load", &agent.display().to_string()]).await?.check()?;
        tenant.create("dies", json!({"image": {"ref": image.trim(), "keepEntrypoint": true}})).await?;
        tenant
            .create("secretless", json!({"env": [{"name": "TOKEN", "secret": {"name": "later", "key": "token"}}]}))
            .await?;
        tenant.create("short", json!({"lifetime": "3s"})).await?;

        let absent = tenant.wait_for_phase("absent", "Failed").await?;
        let failure = &absent["status"]["lastFailure"];
        assert_eq!(failure["reason"], "ImageNotFound");
        assert!(failure["message"].as_str().unwrap_or_default().contains("Check the name and tag"), "{failure}");

        let dies = tenant.wait_for_phase("dies", "Failed").await?;
        let failure = &dies["status"]["lastFailure"];
        assert_eq!(failure["reason"], "CrashLoop");
        assert!(failure["logTail"].as_str().unwrap_or_default().contains("Usage: odc-agent"), "{failure}");

        wait::until("report of the missing Secret", TIMEOUT, async || {
            let pending = tenant.get("secretless").await?;
            let conditions = pending["status"]["conditions"].to_string();
            anyhow::ensure!(conditions.contains("secret \\\"later\\\" not found"), "{pending}");
            Ok(())
        })
        .await?;
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": {"token": "t"}});
        tenant.kubectl_as_admin(&["apply", "-f", "-"], Some(&secret.to_string())).await?;
        tenant.wait_for_phase("secretless", "Running").await?;
        assert_eq!(tenant.exec("secretless-0", "printf %s $TOKEN").await?, "t");

        tenant.wait_for_phase("short", "Expired").await?;
        assert!(!tenant.pods().await?.contains(&"short-0".to_owned()));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn gang_pods_reach_each_other_on_two_nodes() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        tenant.create("gang", json!({"flavor": "gpu", "count": 2, "nodes": 2})).await?;
        let gang = tenant.wait_for_phase("gang", "Running").await?;
        let mut nodes: Vec<&str> = gang["status"]["admission"]["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["n1", "n2"]);
        let listen = "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => $ENV{MASTER_PORT}, Listen => 1, ReuseAddr => 1) or die; $c = $s->accept; print {$c} \"hello from rank $ENV{RANK} of $ENV{WORLD_SIZE}\"'";
        let connect = "for i in $(seq 100); do exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && cat <&3 && exit 0; sleep 0.1; done; exit 1";
        let connect = format!("exec bash -c '{}' 2>/dev/null", connect.replace('\'', "'\\''"));
        let (_, received) = tokio::try_join!(tenant.exec("gang-0", listen), tenant.exec("gang-1", &connect))?;
        assert_eq!(received, "hello from rank 0 of 2");
        // SSH between the pods needs no prompt.
        assert_eq!(tenant.exec("gang-0", "ssh gang-1 hostname; ssh $(echo $ODC_HOSTS | cut -d, -f1) hostname").await?, "gang-1\ngang-0\n");
        for (pod, rank) in [("gang-0", "0"), ("gang-1", "1")] {
            assert_eq!(tenant.exec(pod, "set -e; printf $NODE_RANK; getent hosts $MASTER_ADDR >/dev/null; wc -l < $ODC_HOSTFILE").await?, format!("{rank}2\n"));
            let devices = tenant.exec(pod, "printf %s $NVIDIA_VISIBLE_DEVICES").await?;
            assert_eq!(devices.split(',').count(), 2, "{devices}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn queued_server_starts_when_devices_are_free() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        for name in ["first", "second"] {
            tenant.create(name, json!({"flavor": "gpu", "count": 8})).await?;
        }
        for name in ["first", "second"] {
            tenant.wait_for_phase(name, "Running").await?;
        }
        tenant.create("third", json!({"flavor": "gpu"})).await?;
        tenant.wait_for_phase("third", "Queued").await?;
        let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
        tenant.kubectl(&["wait", "dsv/third", "--for=jsonpath={.status.admission.position}=1", &timeout]).await?;
        let table = tenant.kubectl(&["get", "dsv", "third", "-o", "wide"]).await?;
        assert!(table.contains("Insufficient nvidia.com/gpu: requires 1 on one node; none free."), "{table}");
        tenant.kubectl(&["delete", "dsv", "first"]).await?;
        tenant.wait_for_phase("third", "Running").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_of_a_node_without_power_moves_to_another() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        // Not on the node of the operator, which must keep running.
        let pods = ["-n", "odc-system", "get", "pods", "-l", "app.kubernetes.io/name=odc-operator"];
        let node = ["-o", "jsonpath={.items[0].spec.nodeName}"];
        let operator = tenant.kubectl_as_admin(&[&pods[..], &node].concat(), None).await?;
        let (lost, other) = if operator.trim() == "n1" { ("n2", "n1") } else { ("n1", "n2") };
        tenant.kubectl_as_admin(&["cordon", other], None).await?;
        let placed = async {
            tenant.create("moves", json!({})).await?;
            tenant.wait_for_phase("moves", "Running").await
        };
        let placed =
            with_cleanup(placed, async || tenant.kubectl_as_admin(&["uncordon", other], None).await.map(drop)).await?;
        assert_eq!(placed["status"]["admission"]["nodes"], json!([lost]));
        tenant.cluster.odc_local(&["node", "stop", lost]).await?.check()?;
        let moved = async {
            let on_other = format!("--for=jsonpath={{.status.admission.nodes[0]}}={other}");
            // Kubernetes marks the node after 40 seconds; then the operator waits for its own timeout.
            tenant.kubectl(&["wait", "dsv/moves", &on_other, "--timeout=180s"]).await?;
            tenant.wait_for_phase("moves", "Running").await
        };
        let moved =
            with_cleanup(moved, async || tenant.cluster.odc_local(&["node", "start", lost]).await?.check().map(drop))
                .await?;
        assert_eq!(moved["status"]["lastFailure"]["reason"], "NodeLost");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn owner_has_the_permissions_of_a_user() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        tenant.create("mine", json!({})).await?;
        tenant.wait_for_phase("mine", "Running").await?;
        for allowed in
            [&["get", "dsf"][..], &["get", "pods"], &["logs", "mine-0", "-c", "odc-agent"], &["get", "events"]]
        {
            tenant.kubectl(allowed).await?;
        }
        for denied in [
            &["exec", "mine-0", "--", "true"][..],
            &["get", "secrets"],
            &["get", "dsv", "-A"],
            &["get", "nodes"],
            &["run", "own", "--image=any"],
            &[
                "patch",
                "dsv",
                "mine",
                "--subresource=status",
                "--type=merge",
                "-p",
                "{\"status\":{\"phase\":\"Failed\"}}",
            ],
        ] {
            let error = tenant.kubectl(denied).await.unwrap_err().to_string();
            assert!(error.contains("Forbidden") || error.contains("forbidden"), "{error}");
        }
        Ok(())
    })
    .await
}
