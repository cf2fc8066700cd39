//! What every pod may rely on: it runs, is asked, resolves names, reaches others.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::PostParams;
use odc_tests::{Namespace, pod, wait, with_cluster};
use serde_json::{Value, json};

/// On this node.
fn on(node: &str, mut manifest: Value) -> Value {
    manifest["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    manifest
}

/// Answers every connection with its own name.
fn greeter(name: &str) -> Value {
    let script = format!("mkdir /www && echo {name} > /www/index.html && cd /www && exec python3 -m http.server 8080");
    let mut manifest = pod::manifest(name, &script);
    manifest["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1});
    manifest
}

/// `NAME-service`, since a pod knows itself by its own name.
async fn serve(namespace: &Namespace, name: &str) -> anyhow::Result<()> {
    let service = json!({"metadata": {"name": format!("{name}-service")}, "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}});
    namespace.api::<Service>().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

fn address(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn a_pod_runs_is_asked_and_keeps_files() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        let mut manifest = pod::manifest("one", "echo hello from $(id -u) && exec sleep infinity");
        manifest["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
        let container = &mut manifest["spec"]["containers"][0];
        container["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
        container["securityContext"] =
            json!({"runAsUser": 1000, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        container["resources"] = json!({"limits": {"cpu": "500m", "memory": "128Mi"}});
        manifest["spec"]["securityContext"] = json!({"fsGroup": 1000});
        pod::run(&cluster.namespace, manifest).await?;
        assert_eq!(pod::logs(&cluster.namespace, "one").await?, "hello from 1000\n");
        pod::exec(&cluster.namespace, "one", &["sh", "-c", "echo kept > /scratch/file"]).await?;
        assert_eq!(pod::exec(&cluster.namespace, "one", &["cat", "/scratch/file"]).await?, "kept\n");
        let failed = pod::exec(&cluster.namespace, "one", &["cat", "/nothing"]).await.unwrap_err();
        assert!(failed.to_string().contains("No such file"), "{failed}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn names_inside_and_outside_resolve() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        let namespace = &cluster.namespace;
        serve(namespace, "greeter").await?;
        pod::run(namespace, pod::manifest("asks", "exec sleep infinity")).await?;
        for name in ["greeter-service", "kubernetes.default.svc.cluster.local", "registry.odc.internal"] {
            pod::exec(namespace, "asks", &["getent", "hosts", name]).await?;
        }
        // A name of the machine's own resolver: whatever Debian's packages come from here.
        let sources = "sed -n 's#^[^:]*https*://\\([^/ ]*\\).*#\\1#p; s#^URIs: *https*://\\([^/ ]*\\).*#\\1#p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1";
        pod::exec(namespace, "asks", &["sh", "-c", &format!("getent hosts \"$({sources})\"")]).await?;
        assert!(pod::exec(namespace, "asks", &["getent", "hosts", "nobody.svc.cluster.local"]).await.is_err());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pods_reach_pods_and_services_on_both_nodes() -> anyhow::Result<()> {
    with_cluster(2, async |cluster| {
        let namespace = &cluster.namespace;
        serve(namespace, "near").await?;
        serve(namespace, "far").await?;
        let near = pod::run(namespace, on("n1", greeter("near"))).await?;
        let far = pod::run(namespace, on("n2", greeter("far"))).await?;
        let ask = async |target: &str| {
            pod::exec(namespace, "near", &["curl", "-sS", "--fail", "--max-time", "10", target]).await
        };
        assert_eq!(ask(&format!("http://{}:8080", address(&far))).await?, "far\n");
        // A Service knows of its pods a moment after they are ready. Its own leads a pod back to itself.
        for (service, answer) in [("http://far-service", "far\n"), ("http://near-service", "near\n")] {
            let said = wait::until(service, Duration::from_secs(30), async || ask(service).await).await?;
            assert_eq!(said, answer);
        }
        // No address is translated between pods: the other side sees who really asks.
        let seen = pod::logs(namespace, "far").await?;
        assert!(seen.contains(&format!("{} - - ", address(&near))), "{seen}");
        Ok(())
    })
    .await
}
