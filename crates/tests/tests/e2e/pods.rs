//! Pods on real nodes: exec, volumes, DNS and the network.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::PostParams;
use odc_tests::{Namespace, pod, wait, with_cluster};
use serde_json::{Value, json};

/// Pins a manifest to a node.
fn pin_to_node(node: &str, mut manifest: Value) -> Value {
    manifest["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    manifest
}

/// Returns a pod that responds to HTTP requests with its name.
fn greeter(name: &str) -> Value {
    let script = format!("mkdir /www && echo {name} > /www/index.html && cd /www && exec python3 -m http.server 8080");
    let mut manifest = pod::manifest(name, &script);
    manifest["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1});
    manifest
}

/// Creates the Service `NAME-service`. A pod resolves its own name itself.
async fn create_service(namespace: &Namespace, name: &str) -> anyhow::Result<()> {
    let service = json!({"metadata": {"name": format!("{name}-service")}, "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}});
    namespace.api::<Service>().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

fn pod_ip(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn pod_runs_commands_and_keeps_files_in_a_volume() -> anyhow::Result<()> {
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
        pod::exec(&cluster.namespace, "one", &["sh", "-c", "echo stored > /scratch/file"]).await?;
        assert_eq!(pod::exec(&cluster.namespace, "one", &["cat", "/scratch/file"]).await?, "stored\n");
        let error = pod::exec(&cluster.namespace, "one", &["cat", "/nothing"]).await.unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn cluster_and_external_names_resolve() -> anyhow::Result<()> {
    with_cluster(1, async |cluster| {
        let namespace = &cluster.namespace;
        create_service(namespace, "greeter").await?;
        pod::run(namespace, pod::manifest("client", "exec sleep infinity")).await?;
        for name in ["greeter-service", "kubernetes.default.svc.cluster.local", "registry.odc.internal"] {
            pod::exec(namespace, "client", &["getent", "hosts", name]).await?;
        }
        // An external name: the host of the configured Debian mirror.
        let sources = "sed -n 's#^[^:]*https*://\\([^/ ]*\\).*#\\1#p; s#^URIs: *https*://\\([^/ ]*\\).*#\\1#p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1";
        pod::exec(namespace, "client", &["sh", "-c", &format!("getent hosts \"$({sources})\"")]).await?;
        assert!(pod::exec(namespace, "client", &["getent", "hosts", "missing.svc.cluster.local"]).await.is_err());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pods_reach_pods_and_services_on_both_nodes() -> anyhow::Result<()> {
    with_cluster(2, async |cluster| {
        let namespace = &cluster.namespace;
        create_service(namespace, "near").await?;
        create_service(namespace, "far").await?;
        let near = pod::run(namespace, pin_to_node("n1", greeter("near"))).await?;
        let far = pod::run(namespace, pin_to_node("n2", greeter("far"))).await?;
        let fetch = async |target: &str| {
            pod::exec(namespace, "near", &["curl", "-sS", "--fail", "--max-time", "10", target]).await
        };
        assert_eq!(fetch(&format!("http://{}:8080", pod_ip(&far))).await?, "far\n");
        // A Service has its endpoints shortly after the pods are ready. The own Service of a pod leads back to it.
        for (service, expected) in [("http://far-service", "far\n"), ("http://near-service", "near\n")] {
            let response = wait::until(service, Duration::from_secs(60), async || fetch(service).await).await?;
            assert_eq!(response, expected);
        }
        // No address translation between pods: the server logs the address of the client.
        let log = pod::logs(namespace, "far").await?;
        assert!(log.contains(&format!("{} - - ", pod_ip(&near))), "{log}");
        Ok(())
    })
    .await
}
