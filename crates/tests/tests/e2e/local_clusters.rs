//! Local clusters: start, repeated start, interruption, resize and complete removal.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use odc_local::layout::Layout;
use odc_tests::cleanup::with_cleanup;
use odc_tests::command::{executable, odc_local};
use odc_tests::{Cluster, pod, wait, with_cluster, with_exclusive_cluster, with_scratch_cluster};

use crate::host::{HostResources, loop_devices, processes_of};

/// `up` is killed as soon as these components have a record.
const INTERRUPTIONS: &[&str] = if cfg!(feature = "full") {
    &["postgres.json", "etcd.json", "apiserver.json", "n1-containerd.json", "n1-kubelet.json", "n1-gpus.json"]
} else {
    &["etcd.json"]
};

/// Returns names and pids of all components.
async fn component_pids(directory: &Path) -> anyhow::Result<Vec<(String, Option<i64>)>> {
    let rows: serde_json::Value =
        serde_json::from_str(&odc_local(directory, &["status", "-o", "json"]).await?.check()?)?;
    let row = |row: &serde_json::Value| (row["name"].as_str().unwrap_or_default().to_owned(), row["pid"].as_i64());
    Ok(rows.as_array().into_iter().flatten().map(row).collect())
}

#[tokio::test]
async fn second_cluster_leaves_nothing_on_the_host() -> anyhow::Result<()> {
    with_cluster(1, async |shared| with_scratch_cluster(async |scratch| {
        let directory = scratch.directory.as_path();
        odc_local(directory, &["up", "--gpus", "2"]).await?.check()?;
        let first = component_pids(directory).await?;
        let environment = odc_local(directory, &["env"]).await?.check()?;
        let script = format!("{environment}\nset -e\nkubectl get nodes -o name\nkubectl run one --image={} --restart=Never --command -- sleep infinity >&2\nkubectl wait --for=condition=Ready pod/one --timeout=60s >&2\npsql \"$DATABASE_URL\" -Atc 'select 1 + 1'", odc_local::image::reference(odc_local::image::DEV_BASE));
        let used = tokio::process::Command::new("sh").args(["-c", &script]).output().await?;
        assert_eq!(String::from_utf8_lossy(&used.stdout), "node/n1\n2\n", "{}", String::from_utf8_lossy(&used.stderr));

        odc_local(directory, &["up"]).await?.check()?;
        assert_eq!(component_pids(directory).await?, first, "a second `up` changes nothing");
        assert_eq!(component_pids(&shared.directory).await?.iter().filter(|(name, _)| name.ends_with("/gpus")).count(), 2, "the first cluster is unchanged");

        // As a node that was registered without the label.
        let shell = async |line: &str| {
            let script = format!("{environment}\n{line}");
            tokio::process::Command::new("sh").args(["-ec", &script]).output().await
        };
        let unlabelled = shell("kubectl label node n1 odc.dev/local-node-").await?;
        assert!(unlabelled.status.success(), "{unlabelled:?}");
        odc_local(directory, &["down"]).await?.check()?;
        odc_local(directory, &["up"]).await?.check()?;
        let labelled = shell("kubectl get nodes -l odc.dev/local-node=true -o name").await?;
        assert_eq!(String::from_utf8_lossy(&labelled.stdout), "node/n1\n", "{labelled:?}");

        let pool = Layout::new(directory.into()).pool_file();
        wait::until("mounted pool", Duration::from_secs(60), async || {
            anyhow::ensure!(loop_devices(&pool)?.len() == 1, "not mounted");
            Ok(())
        })
        .await?;
        odc_local(directory, &["down"]).await?.check()?;
        assert_eq!(processes_of(directory)?, Vec::<String>::new());
        assert_eq!(loop_devices(&pool)?.len(), 0, "`down` waits until the pool is released");
        // The links of a network namespace are removed asynchronously.
        wait::until("clean host", Duration::from_secs(60), async || {
            let left = HostResources::of_cluster(directory)?;
            anyhow::ensure!(left == HostResources::default(), "left behind: {left:#?}");
            Ok(())
        })
        .await?;
        assert!(directory.join("etcd").exists(), "`down` keeps the state");
        odc_local(directory, &["reset"]).await?.check()?;
        assert!(!directory.exists());
        // The shared cluster still works.
        pod::run(&shared.namespace, pod::manifest("still", "exec sleep infinity")).await?;
        Ok(())
    }).await)
    .await
}

#[tokio::test]
async fn interrupted_up_is_completed_by_the_next() -> anyhow::Result<()> {
    with_scratch_cluster(async |scratch| {
        let directory = scratch.directory.as_path();
        for record in INTERRUPTIONS {
            let mut interrupted = Command::new(executable("odc")?)
                .args(["local", "--dir"])
                .arg(directory)
                .arg("up")
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            wait::until(&format!("record {record}"), Duration::from_secs(60), async || {
                std::fs::metadata(directory.join("run").join(record)).with_context(|| format!("no {record}"))
            })
            .await?;
            interrupted.kill()?;
            interrupted.wait()?;
        }
        odc_local(directory, &["up"]).await?.check()?;
        odc_local(directory, &["reset"]).await?.check()?;
        assert_eq!(processes_of(directory)?, Vec::<String>::new());
        wait::until("clean host", Duration::from_secs(60), async || {
            let left = HostResources::of_cluster(directory)?;
            anyhow::ensure!(left == HostResources::default(), "left behind: {left:#?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn existing_cluster_gets_only_missing_components() -> anyhow::Result<()> {
    with_cluster(1, async |shared| {
        with_scratch_cluster(async |scratch| {
            let directory = scratch.directory.as_path();
            let kubeconfig = shared.directory.join("kubeconfig");
            let up = odc_local(directory, &["up", "--kubeconfig", &kubeconfig.display().to_string()]).await?;
            assert!(up.success, "{}", up.stderr);
            for expected in ["2 of 2 nodes ready", "has       GPUs", "will start    PostgreSQL", "start no Kubernetes"]
            {
                assert!(up.stderr.contains(expected), "{expected:?} is not in\n{}", up.stderr);
            }
            let names: Vec<String> = component_pids(directory).await?.into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["database", "database-directory", "postgres"]);
            let environment = odc_local(directory, &["env"]).await?.check()?;
            assert!(
                environment.contains(&format!("KUBECONFIG={}\n", std::fs::canonicalize(&kubeconfig)?.display())),
                "{environment}"
            );
            let used = tokio::process::Command::new("sh")
                .args(["-c", &format!("{environment}\npsql \"$DATABASE_URL\" -Atc 'select 2'")])
                .output()
                .await?;
            assert_eq!(String::from_utf8_lossy(&used.stdout), "2\n");
            odc_local(directory, &["reset"]).await?.check()?;
            assert_eq!(processes_of(directory)?, Vec::<String>::new());

            let missing = odc_local(directory, &["up", "--kubeconfig", "/nowhere"]).await?;
            assert!(
                !missing.success && missing.stderr.contains("cannot read kubeconfig /nowhere"),
                "{}",
                missing.stderr
            );
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn simulated_nodes_are_ready_and_repel_ordinary_pods() -> anyhow::Result<()> {
    with_exclusive_cluster(1, async |cluster| {
        cluster.odc_local(&["up", "--simulated-nodes", "3"]).await?.check()?;
        with_cleanup(check_simulated_nodes(cluster), async || {
            cluster.odc_local(&["up", "--simulated-nodes", "0"]).await?.check().map(drop)
        })
        .await?;
        let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
        assert_eq!(nodes.list(&ListParams::default().labels("type=kwok")).await?.items.len(), 0);
        Ok(())
    })
    .await
}

async fn check_simulated_nodes(cluster: &Cluster) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(cluster.namespace.client.clone());
    let simulated = ListParams::default().labels("type=kwok");
    wait::until("three simulated nodes", Duration::from_secs(60), async || {
        let ready = nodes.list(&simulated).await?.into_iter().filter(odc_local::cluster::is_ready);
        anyhow::ensure!(ready.count() == 3, "not all ready");
        Ok(())
    })
    .await?;
    // A restarted kwok takes over its nodes.
    let before = component_pids(&cluster.directory).await?;
    let kwok = before
        .iter()
        .find(|(name, _)| name == "simulated-nodes")
        .and_then(|(_, pid)| *pid)
        .context("kwok does not run")?;
    Command::new("kill").args(["-9", &kwok.to_string()]).status()?;
    wait::until("restarted kwok", Duration::from_secs(60), async || {
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(cluster.namespace.client.clone(), "kube-node-lease");
        let now = component_pids(&cluster.directory).await?;
        anyhow::ensure!(now != before, "kwok has not been restarted");
        anyhow::ensure!(leases.get_opt("sim1").await?.is_some(), "no lease");
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
    Ok(())
}

#[tokio::test]
async fn cluster_keeps_its_state_after_a_power_failure() -> anyhow::Result<()> {
    with_scratch_cluster(async |scratch| {
        scratch.odc_local(&["up", "--bare", "--gpus", "0"]).await?.check()?;
        let client = async || odc_local::cluster::client(&scratch.directory.join("kubeconfig")).await;
        let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "stored"}}))?;
        Api::default_namespaced(client().await?).create(&PostParams::default(), &map).await?;
        simulate_power_failure(&scratch.directory).await?;
        scratch.odc_local(&["up"]).await?.check()?;
        let stored: Option<ConfigMap> = Api::default_namespaced(client().await?).get_opt("stored").await?;
        assert!(stored.is_some());
        Ok(())
    })
    .await
}

/// Removes everything the kernel holds: processes, mounts, namespaces, links, rules. Files stay, and the records of processes
/// have another boot id.
async fn simulate_power_failure(directory: &Path) -> anyhow::Result<()> {
    let id = Layout::new(directory.into()).id().to_string();
    let script = format!(
        "pkill -9 -f 'supervise --dir {dir}$'
         find /sys/fs/cgroup -path '*/odc-{id}*' -name cgroup.procs -exec cat {{}} + | sort -u | xargs -r kill -9
         for mount in $(grep -o '{dir}[^ ]*/ns/mnt\\|{dir}[^ ]*/ns\\|/run/netns/odc-{id}-[^ ]*' /proc/self/mountinfo | sort -ru); do
           umount -l $mount
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
    anyhow::ensure!(records > 5, "only {records} stale records");
    Ok(())
}

#[tokio::test]
async fn cluster_can_be_resized() -> anyhow::Result<()> {
    with_scratch_cluster(async |scratch| {
        let names = async || -> anyhow::Result<Vec<String>> {
            let client = odc_local::cluster::client(&scratch.directory.join("kubeconfig")).await?;
            let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
            Ok(nodes.into_iter().filter_map(|node| node.metadata.name).collect())
        };
        scratch.odc_local(&["up"]).await?.check()?;
        let with_one_node = HostResources::of_cluster(&scratch.directory)?;
        assert_ne!(with_one_node, HostResources::default());
        scratch.odc_local(&["up", "--nodes", "2"]).await?.check()?;
        assert_eq!(names().await?, ["n1", "n2"]);
        scratch.odc_local(&["up", "--nodes", "1"]).await?.check()?;
        assert_eq!(names().await?, ["n1"]);
        wait::until("host with one node", Duration::from_secs(60), async || {
            let current = HostResources::of_cluster(&scratch.directory)?;
            anyhow::ensure!(current == with_one_node, "left behind: {current:#?}, before: {with_one_node:#?}");
            Ok(())
        })
        .await
    })
    .await
}
