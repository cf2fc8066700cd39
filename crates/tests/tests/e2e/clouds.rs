//! Whole clouds: beside each other, twice, interrupted, and gone without a trace.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use odc_local::layout::Layout;
use odc_tests::bed::{executable, odc_local};
use odc_tests::{pod, wait, with_cluster_alone, with_own_cloud};

use crate::host::{Host, processes_of};

/// `up` is cut off as soon as these parts run.
const CUTS: &[&str] = if cfg!(feature = "full") {
    &["postgres.json", "etcd.json", "apiserver.json", "n1-containerd.json", "n1-kubelet.json", "n1-gpus.json"]
} else {
    &["etcd.json"]
};

/// Names and processes of all parts.
async fn processes(directory: &Path) -> anyhow::Result<Vec<(String, Option<i64>)>> {
    let parts: serde_json::Value =
        serde_json::from_str(&odc_local(directory, &["status", "-o", "json"]).await?.good()?)?;
    let row = |row: &serde_json::Value| (row["name"].as_str().unwrap_or_default().to_owned(), row["pid"].as_i64());
    Ok(parts.as_array().into_iter().flatten().map(row).collect())
}

#[tokio::test]
async fn a_second_cloud_comes_and_goes_without_a_trace() -> anyhow::Result<()> {
    with_cluster_alone(1, async |shared| with_own_cloud(async |own| {
        let directory = own.directory.as_path();
        let before = Host::look()?;

        odc_local(directory, &["up", "--gpus", "2"]).await?.good()?;
        let first = processes(directory).await?;
        let environment = odc_local(directory, &["env"]).await?.good()?;
        let script = format!("{environment}\nset -e\nkubectl get nodes -o name\nkubectl run one --image={} --restart=Never --command -- sleep infinity >&2\nkubectl wait --for=condition=Ready pod/one --timeout=60s >&2\npsql \"$DATABASE_URL\" -Atc 'select 1 + 1'", odc_local::image::reference(odc_local::image::DEV_BASE));
        let used = tokio::process::Command::new("sh").args(["-c", &script]).output().await?;
        assert_eq!(String::from_utf8_lossy(&used.stdout), "node/n1\n2\n", "{}", String::from_utf8_lossy(&used.stderr));

        odc_local(directory, &["up"]).await?.good()?;
        assert_eq!(processes(directory).await?, first, "a second `up` changes nothing");
        assert_eq!(processes(&shared.directory).await?.iter().filter(|(name, _)| name.ends_with("/gpus")).count(), 2, "the first cloud is untouched");

        // As a node that was registered before it had all its labels.
        let shell = async |line: &str| {
            let script = format!("{environment}\n{line}");
            tokio::process::Command::new("sh").args(["-ec", &script]).output().await
        };
        let bare = shell("kubectl label node n1 odc.dev/local-node-").await?;
        assert!(bare.status.success(), "{bare:?}");
        odc_local(directory, &["down"]).await?.good()?;
        odc_local(directory, &["up"]).await?.good()?;
        let labelled = shell("kubectl get nodes -l odc.dev/local-node=true -o name").await?;
        assert_eq!(String::from_utf8_lossy(&labelled.stdout), "node/n1\n", "{labelled:?}");

        odc_local(directory, &["down"]).await?.good()?;
        assert_eq!(processes_of(directory)?, Vec::<String>::new());
        // Links of a namespace go a moment after it.
        wait::until("the host as it was", Duration::from_secs(20), async || {
            let after = Host::look()?;
            anyhow::ensure!(after == before, "left behind:\n{after:#?}\nbefore:\n{before:#?}");
            Ok(())
        })
        .await?;
        assert!(directory.join("etcd").exists(), "`down` keeps the state");
        odc_local(directory, &["reset"]).await?.good()?;
        assert!(!directory.exists());
        // The shared cloud still works.
        pod::run(&shared.namespace, pod::manifest("still", "exec sleep infinity")).await?;
        Ok(())
    }).await)
    .await
}

#[tokio::test]
async fn an_interrupted_up_is_finished_by_the_next() -> anyhow::Result<()> {
    with_cluster_alone(1, async |_| {
        with_own_cloud(async |own| {
            let directory = own.directory.as_path();
            let before = Host::look()?;
            for record in CUTS {
                let mut cut = Command::new(executable("odc")?)
                    .args(["local", "--dir"])
                    .arg(directory)
                    .arg("up")
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?;
                wait::until(&format!("{record} was started"), Duration::from_secs(60), async || {
                    std::fs::metadata(directory.join("run").join(record)).with_context(|| format!("no {record}"))
                })
                .await?;
                cut.kill()?;
                cut.wait()?;
            }
            odc_local(directory, &["up"]).await?.good()?;
            odc_local(directory, &["reset"]).await?.good()?;
            assert_eq!(processes_of(directory)?, Vec::<String>::new());
            wait::until("the host as it was", Duration::from_secs(20), async || {
                anyhow::ensure!(Host::look()? == before, "left behind: {:#?}", Host::look()?);
                Ok(())
            })
            .await
        })
        .await
    })
    .await
}

#[tokio::test]
async fn an_existing_cluster_gets_only_what_it_lacks() -> anyhow::Result<()> {
    with_cluster_alone(1, async |shared| {
        with_own_cloud(async |own| {
            let directory = own.directory.as_path();
            let kubeconfig = shared.directory.join("kubeconfig");
            let up = odc_local(directory, &["up", "--kubeconfig", &kubeconfig.display().to_string()]).await?;
            assert!(up.ok, "{}", up.stderr);
            for said in ["2 of 2 nodes ready", "has       GPUs", "will start    PostgreSQL", "start no Kubernetes"] {
                assert!(up.stderr.contains(said), "{said:?} is not in\n{}", up.stderr);
            }
            let names: Vec<String> = processes(directory).await?.into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["database", "database-directory", "postgres"]);
            let environment = odc_local(directory, &["env"]).await?.good()?;
            assert!(
                environment.contains(&format!("KUBECONFIG='{}'", std::fs::canonicalize(&kubeconfig)?.display())),
                "{environment}"
            );
            let used = tokio::process::Command::new("sh")
                .args(["-c", &format!("{environment}\npsql \"$DATABASE_URL\" -Atc 'select 2'")])
                .output()
                .await?;
            assert_eq!(String::from_utf8_lossy(&used.stdout), "2\n");
            odc_local(directory, &["reset"]).await?.good()?;
            assert_eq!(processes_of(directory)?, Vec::<String>::new());

            let missing = odc_local(directory, &["up", "--kubeconfig", "/nowhere"]).await?;
            assert!(!missing.ok && missing.stderr.contains("there is no kubeconfig /nowhere"), "{}", missing.stderr);
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn simulated_nodes_are_ready_and_ordinary_pods_stay_away() -> anyhow::Result<()> {
    with_cluster_alone(1, async |cluster| {
        cluster.odc_local(&["up", "--simulated-nodes", "3"]).await?.good()?;
        let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
        let simulated = ListParams::default().labels("type=kwok");
        wait::until("three simulated nodes", Duration::from_secs(60), async || {
            let ready = nodes.list(&simulated).await?.into_iter().filter(odc_local::cluster::is_ready);
            anyhow::ensure!(ready.count() == 3, "not all ready");
            Ok(())
        })
        .await?;
        // A kwok that is killed and started again takes its nodes over at once.
        let before = processes(&cluster.directory).await?;
        let kwok =
            before.iter().find(|(name, _)| name == "simulated-nodes").and_then(|(_, pid)| *pid).context("kwok runs")?;
        Command::new("kill").args(["-9", &kwok.to_string()]).status()?;
        wait::until("kwok is back and renews leases", Duration::from_secs(30), async || {
            let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
                Api::namespaced(cluster.namespace.client.clone(), "kube-node-lease");
            let now = processes(&cluster.directory).await?;
            anyhow::ensure!(now != before, "still the old one");
            anyhow::ensure!(leases.get_opt("sim1").await?.is_some(), "no lease yet");
            Ok(())
        })
        .await?;
        let ordinary = pod::run(&cluster.namespace, pod::manifest("ordinary", "exec sleep infinity")).await?;
        let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        assert!(node_of(&ordinary).starts_with('n'), "{}", node_of(&ordinary));
        let mut tolerant = pod::manifest("tolerant", "never really run");
        tolerant["spec"]["nodeSelector"] = serde_json::json!({"type": "kwok"});
        tolerant["spec"]["tolerations"] = serde_json::json!([{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]);
        tolerant["spec"]["containers"][0]["resources"] = serde_json::json!({"limits": {"nvidia.com/gpu": "8"}});
        assert!(node_of(&pod::run(&cluster.namespace, tolerant).await?).starts_with("sim"));

        cluster.odc_local(&["up", "--simulated-nodes", "0"]).await?.good()?;
        assert_eq!(nodes.list(&simulated).await?.items.len(), 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_machine_that_lost_power_comes_back_with_its_state() -> anyhow::Result<()> {
    with_own_cloud(async |own| {
        own.odc_local(&["up", "--bare", "--gpus", "0"]).await?.good()?;
        let client = async || odc_local::cluster::client(&own.directory.join("kubeconfig")).await;
        let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}}))?;
        Api::default_namespaced(client().await?).create(&PostParams::default(), &map).await?;
        lose_power(&own.directory).await?;
        own.odc_local(&["up"]).await?.good()?;
        let kept: Option<ConfigMap> = Api::default_namespaced(client().await?).get_opt("kept").await?;
        assert!(kept.is_some());
        Ok(())
    })
    .await
}

/// All the kernel holds is gone at once: processes, mounts, namespaces, links, rules. Files stay as they are, and records
/// of processes speak of another boot.
async fn lose_power(directory: &Path) -> anyhow::Result<()> {
    let id = Layout::new(directory.into()).id().to_string();
    let script = format!(
        "pkill -9 -f 'supervise --dir {dir}$'
         find /sys/fs/cgroup -path '*/odc-{id}*' -name cgroup.procs -exec cat {{}} + | sort -u | xargs -r kill -9
         for at in $(grep -o '{dir}[^ ]*/ns/mnt\\|{dir}[^ ]*/ns\\|/run/netns/odc-{id}-[^ ]*' /proc/self/mountinfo | sort -ru); do
           umount -l $at
         done
         rm -f /run/netns/odc-{id}-* /run/odc-local/{id}
         ip link delete odc{id}n1; ip link delete odc{id}; nft delete table ip odc_{id}
         sed -i 's/\"boot\":\"[^\"]*\"/\"boot\":\"another\"/' {dir}/run/*.json
         for try in 1 2 3 4 5 6 7 8 9 10; do
           find /sys/fs/cgroup -depth -path '*/odc-{id}*' -type d -exec rmdir {{}} + 2>/dev/null && break
           sleep 0.2
         done
         true",
        dir = directory.display(),
    );
    let output = tokio::process::Command::new("sh").args(["-c", &script]).output().await?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = std::fs::read_dir(directory.join("run"))?.count();
    anyhow::ensure!(records > 5, "only {records} records are left to mislead the next start");
    Ok(())
}

#[tokio::test]
async fn a_cloud_grows_and_shrinks() -> anyhow::Result<()> {
    // Alone, so that nothing else changes on the host meanwhile.
    with_cluster_alone(1, async |_| {
        with_own_cloud(async |own| {
            let names = async || -> anyhow::Result<Vec<String>> {
                let client = odc_local::cluster::client(&own.directory.join("kubeconfig")).await?;
                let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
                Ok(nodes.into_iter().filter_map(|node| node.metadata.name).collect())
            };
            own.odc_local(&["up"]).await?.good()?;
            let one = Host::look()?;
            own.odc_local(&["up", "--nodes", "2"]).await?.good()?;
            assert_eq!(names().await?, ["n1", "n2"]);
            own.odc_local(&["up", "--nodes", "1"]).await?.good()?;
            assert_eq!(names().await?, ["n1"]);
            wait::until("the host as with one node", Duration::from_secs(20), async || {
                let now = Host::look()?;
                anyhow::ensure!(now == one, "left behind: {now:#?}");
                Ok(())
            })
            .await
        })
        .await
    })
    .await
}
