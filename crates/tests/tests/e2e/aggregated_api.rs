//! Requests of the API server to pods: an aggregated API and an admission webhook.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, DeleteParams, PostParams};
use odc_tests::cleanup::with_cleanup;
use odc_tests::{Cluster, pod, wait, with_exclusive_cluster};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_secs(60);
const GROUP: &str = "echo.test.odc.dev";

/// Rejects every `ConfigMap` named `rejected`, and serves one list of its own API group.
const SERVER: &str = r#"
import http.server, json, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        group, version = "echo.test.odc.dev", "echo.test.odc.dev/v1"
        if self.path.startswith("/apis/" + version + "/echoes"):
            self.reply({"kind": "EchoList", "apiVersion": version, "metadata": {}, "items": [{"caller": self.headers.get("X-Remote-User")}]})
        elif self.path.startswith("/apis/" + version):
            self.reply({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
                {"name": "echoes", "singularName": "echo", "namespaced": False, "kind": "Echo", "verbs": ["list"]}]})
        else:
            self.reply({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": group, "versions": [{"groupVersion": version, "version": "v1"}]}]})
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        allowed = request["name"] != "rejected"
        status = {} if allowed else {"status": {"code": 403, "message": "denied by the pod"}}
        self.reply({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": request["uid"], "allowed": allowed, **status}})
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/server/tls.crt", "/server/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

/// Starts the server behind the Service `extension`, and returns its certificate.
async fn start_server(cluster: &Cluster) -> anyhow::Result<k8s_openapi::ByteString> {
    let namespace = &cluster.namespace;
    let name = format!("extension.{}.svc", namespace.name);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![name])?.self_signed(&key)?;
    let files = json!({"metadata": {"name": "server"}, "data": {"server.py": SERVER, "tls.crt": certificate.pem(), "tls.key": key.serialize_pem()}});
    namespace.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(files)?).await?;
    let mut manifest = pod::manifest("extension", "exec python3 /server/server.py");
    manifest["spec"]["volumes"] = json!([{"name": "server", "configMap": {"name": "server"}}]);
    let container = &mut manifest["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "server", "mountPath": "/server"}]);
    container["readinessProbe"] = json!({"tcpSocket": {"port": 8443}, "periodSeconds": 1});
    pod::run(namespace, manifest).await?;
    let service = json!({"metadata": {"name": "extension"}, "spec": {"selector": {"app": "extension"}, "ports": [{"port": 443, "targetPort": 8443}]}});
    namespace.api::<Service>().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(k8s_openapi::ByteString(certificate.pem().into_bytes()))
}

#[tokio::test]
async fn aggregated_api_and_webhook_are_served_by_a_pod() -> anyhow::Result<()> {
    with_exclusive_cluster(1, async |cluster| {
        let authority = start_server(cluster).await?;
        let client = cluster.namespace.client.clone();
        let (services, webhooks): (Api<APIService>, Api<ValidatingWebhookConfiguration>) =
            (Api::all(client.clone()), Api::all(client));
        with_cleanup(check(cluster, &authority, &services, &webhooks), async || {
            // Cluster-scoped, so the deletion of the namespace does not include them. They may not exist after a failure.
            let api_service = services.delete(&format!("v1.{GROUP}"), &DeleteParams::default()).await;
            let webhook = webhooks.delete("extension", &DeleteParams::default()).await;
            api_service.map(drop).and(webhook.map(drop)).map_err(Into::into)
        })
        .await
    })
    .await
}

async fn check(
    cluster: &Cluster,
    authority: &k8s_openapi::ByteString,
    services: &Api<APIService>,
    webhooks: &Api<ValidatingWebhookConfiguration>,
) -> anyhow::Result<()> {
    let namespace = &cluster.namespace;
    let reference = json!({"name": "extension", "namespace": namespace.name});
    let aggregated = json!({
        "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15, "caBundle": authority, "service": reference},
    });
    services.create(&PostParams::default(), &serde_json::from_value(aggregated)?).await?;
    let mut client_reference = reference.clone();
    client_reference["path"] = json!("/validate");
    let label = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace.name}});
    let webhook = json!({
        "metadata": {"name": "extension"},
        "webhooks": [{
            "name": format!("validate.{GROUP}"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"service": client_reference, "caBundle": authority},
            "namespaceSelector": label,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    });
    webhooks.create(&PostParams::default(), &serde_json::from_value(webhook)?).await?;

    let list = wait::until("response of the aggregated API", TIMEOUT, async || {
        let request = http::Request::get(format!("/apis/{GROUP}/v1/echoes")).body(Vec::new())?;
        Ok(namespace.client.request::<serde_json::Value>(request).await?)
    })
    .await?;
    assert_eq!(list["items"][0]["caller"], "odc-local-admin", "user name in the headers of the front proxy");

    let maps: Api<ConfigMap> = namespace.api();
    let map = |name: &str| serde_json::from_value::<ConfigMap>(json!({"metadata": {"name": name}}));
    let rejection = wait::until("rejection by the webhook", TIMEOUT, async || {
        match maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &map("rejected")?).await {
            Err(error) => Ok(error.to_string()),
            Ok(_) => anyhow::bail!("the webhook is not active"),
        }
    })
    .await?;
    assert!(rejection.contains("denied by the pod"), "{rejection}");
    maps.create(&PostParams::default(), &map("accepted")?).await?;
    Ok(())
}
