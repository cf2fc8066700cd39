//! Dev servers on real nodes, by kubectl alone and with the rights of their owner.

use serde_json::{Value, json};

use crate::demo::{LIMIT, claim, with_demo};

#[tokio::test]
async fn a_server_lives_its_life() -> anyhow::Result<()> {
    with_demo(async |demo| {
        claim(demo, "life").await?;
        let setup = json!({"script": "date > \"$HOME/started\"", "preStop": "echo stopped in order > \"$HOME/stopped\""});
        demo.create("life", json!({"home": {"claim": "life"}, "setup": setup, "env": [{"name": "GREETING", "value": "$(HOME) & co"}]})).await?;
        let server = demo.until_phase("life", "Running").await?;
        assert_eq!(server["status"]["admission"]["nodes"], json!(["n1"]), "where its volume is");
        let said = demo.inside("life-0", "echo $GREETING; nproc; getent passwd $(id -u) | cut -d: -f6; test -s $HOME/started && echo set up; echo $NVIDIA_VISIBLE_DEVICES").await?;
        assert_eq!(said, "$(HOME) & co\n1\n/home/dev\nset up\nvoid\n");
        demo.inside("life-0", "echo precious > $HOME/work").await?;

        demo.change("life", json!({"desired": "Hibernated"})).await?;
        let asleep = demo.until_phase("life", "Hibernated").await?;
        assert!(demo.pods().await?.is_empty());
        assert_eq!(asleep["status"]["admission"]["nodes"], Value::Null, "its resources are free");
        assert_eq!(asleep["status"]["expiresAt"], Value::Null, "its time stands still");
        assert!(demo.kubectl(&["get", "pvc", "life"]).await?.contains("Bound"));

        demo.change("life", json!({"desired": "Running"})).await?;
        let awake = demo.until_phase("life", "Running").await?;
        assert_eq!(demo.inside("life-0", "cat $HOME/work $HOME/stopped").await?, "precious\nstopped in order\n");
        let key = |server: &Value| server["status"]["access"]["hostKey"].clone();
        assert_eq!(key(&server), key(&awake), "the host key stays");

        demo.change("life", json!({"lifetime": "9h"})).await?;
        let timeout = format!("--timeout={}s", LIMIT.as_secs());
        demo.kubectl(&["wait", "dsv/life", "--for=jsonpath={.status.lifetime.granted}=9h", &timeout]).await?;

        demo.change("life", json!({"desired": "Ended"})).await?;
        demo.until_phase("life", "Cancelled").await?;
        let refused = demo.change("life", json!({"lifetime": "10h"})).await.unwrap_err().to_string();
        assert!(refused.contains("this server has ended and can no longer change"), "{refused}");
        demo.kubectl(&["delete", "dsv", "life"]).await?;
        assert!(demo.kubectl(&["get", "pvc", "life"]).await?.contains("Bound"), "data outlives the server");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_start_says_why() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let registry = "registry.odc.internal:5000";
        demo.create("absent", json!({"image": {"ref": format!("{registry}/no/such:image")}})).await?;
        // An image of ours whose program, without arguments, says how it is used and ends.
        let agent = odc_tests::bed::executable("odc-agent")?;
        let image = demo.cluster.odc_local(&["image", "load", &agent.display().to_string()]).await?.good()?;
        demo.create("dies", json!({"image": {"ref": image.trim(), "keepEntrypoint": true}})).await?;
        demo.create("secretless", json!({"env": [{"name": "TOKEN", "secret": {"name": "later", "key": "token"}}]}))
            .await?;
        demo.create("short", json!({"lifetime": "3s"})).await?;

        let absent = demo.until_phase("absent", "Failed").await?;
        let failure = &absent["status"]["lastFailure"];
        assert_eq!(failure["reason"], "ImageNotFound");
        assert!(failure["message"].as_str().unwrap_or_default().contains("Check the name and tag"), "{failure}");

        let dies = demo.until_phase("dies", "Failed").await?;
        let failure = &dies["status"]["lastFailure"];
        assert_eq!(failure["reason"], "DiesAtStart");
        assert!(failure["logTail"].as_str().unwrap_or_default().contains("Usage: odc-agent"), "{failure}");

        let waiting = demo.get("secretless").await?;
        assert!(waiting["status"]["conditions"].to_string().contains("secret \\\"later\\\" not found"), "{waiting}");
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": {"token": "t"}});
        demo.kubectl_as("odc-local", &["apply", "-f", "-"], Some(&secret.to_string())).await?;
        demo.until_phase("secretless", "Running").await?;
        assert_eq!(demo.inside("secretless-0", "printf %s $TOKEN").await?, "t");

        demo.until_phase("short", "Expired").await?;
        assert!(!demo.pods().await?.contains(&"short-0".to_owned()));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_gang_meets_on_two_nodes() -> anyhow::Result<()> {
    with_demo(async |demo| {
        demo.create("gang", json!({"flavor": "gpu", "count": 2, "nodes": 2})).await?;
        let gang = demo.until_phase("gang", "Running").await?;
        let mut nodes: Vec<&str> = gang["status"]["admission"]["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["n1", "n2"]);
        let listen = "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => $ENV{MASTER_PORT}, Listen => 1, ReuseAddr => 1) or die; $c = $s->accept; print {$c} \"hello from rank $ENV{RANK} of $ENV{WORLD_SIZE}\"'";
        let hear = "for i in $(seq 100); do exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && cat <&3 && exit 0; sleep 0.1; done; exit 1";
        let hear = format!("exec bash -c '{}' 2>/dev/null", hear.replace('\'', "'\\''"));
        let (_, heard) = tokio::try_join!(demo.inside("gang-0", listen), demo.inside("gang-1", &hear))?;
        assert_eq!(heard, "hello from rank 0 of 2");
        // They log in to each other without a question.
        assert_eq!(demo.inside("gang-0", "ssh gang-1 hostname; ssh $(echo $ODC_HOSTS | cut -d, -f1) hostname").await?, "gang-1\ngang-0\n");
        for (pod, rank) in [("gang-0", "0"), ("gang-1", "1")] {
            assert_eq!(demo.inside(pod, "set -e; printf $NODE_RANK; getent hosts $MASTER_ADDR >/dev/null; wc -l < $ODC_HOSTFILE").await?, format!("{rank}2\n"));
            let devices = demo.inside(pod, "printf %s $NVIDIA_VISIBLE_DEVICES").await?;
            assert_eq!(devices.split(',').count(), 2, "{devices}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_ninth_gpu_is_granted_when_one_leaves() -> anyhow::Result<()> {
    with_demo(async |demo| {
        for name in ["first", "second"] {
            demo.create(name, json!({"flavor": "gpu", "count": 8})).await?;
        }
        for name in ["first", "second"] {
            demo.until_phase(name, "Running").await?;
        }
        demo.create("third", json!({"flavor": "gpu"})).await?;
        demo.until_phase("third", "Queued").await?;
        let said = format!("--timeout={}s", LIMIT.as_secs());
        demo.kubectl(&["wait", "dsv/third", "--for=jsonpath={.status.admission.position}=1", &said]).await?;
        let table = demo.kubectl(&["get", "dsv", "third", "-o", "wide"]).await?;
        assert!(table.contains("Needs 1 nvidia.com/gpu on one node; none is free."), "{table}");
        demo.kubectl(&["delete", "dsv", "first"]).await?;
        demo.until_phase("third", "Running").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_node_that_loses_power_gives_its_servers_away() -> anyhow::Result<()> {
    with_demo(async |demo| {
        // Somewhere else than the operator: the node's loss is to be noticed by an operator that lives.
        let operator = demo
            .kubectl_as(
                "odc-local",
                &["-n", "odc-system", "get", "pods", "-o", "jsonpath={.items[0].spec.nodeName}"],
                None,
            )
            .await?;
        let (away, stays) = if operator.trim() == "n1" { ("n2", "n1") } else { ("n1", "n2") };
        demo.kubectl_as("odc-local", &["cordon", stays], None).await?;
        let placed = async {
            demo.create("moves", json!({})).await?;
            demo.until_phase("moves", "Running").await
        };
        let placed = placed.await;
        demo.kubectl_as("odc-local", &["uncordon", stays], None).await?;
        assert_eq!(placed?["status"]["admission"]["nodes"], json!([away]));
        demo.cluster.odc_local(&["node", "stop", away]).await?.good()?;
        let moved = async {
            let there = format!("--for=jsonpath={{.status.admission.nodes[0]}}={stays}");
            // Kubernetes takes 40 seconds to notice; then the operator gives the node its time.
            demo.kubectl(&["wait", "dsv/moves", &there, "--timeout=180s"]).await?;
            demo.until_phase("moves", "Running").await
        };
        let moved = moved.await;
        demo.cluster.odc_local(&["node", "start", away]).await?.good()?;
        assert_eq!(moved?["status"]["lastFailure"]["reason"], "NodeLost");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_owner_has_the_rights_of_an_owner() -> anyhow::Result<()> {
    with_demo(async |demo| {
        demo.create("mine", json!({})).await?;
        demo.until_phase("mine", "Running").await?;
        for allowed in
            [&["get", "dsf"][..], &["get", "pods"], &["logs", "mine-0", "-c", "odc-agent"], &["get", "events"]]
        {
            demo.kubectl(allowed).await?;
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
            let error = demo.kubectl(denied).await.unwrap_err().to_string();
            assert!(error.contains("Forbidden") || error.contains("forbidden"), "{error}");
        }
        Ok(())
    })
    .await
}
