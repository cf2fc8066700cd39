//! Requests of the API and the worker to the Kubernetes API, from the audit log of the API server.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use http::Method;
use kube::api::{Api, Patch, PatchParams};
use odc_api::v1alpha1::Disk;
use odc_tests::api_client::ApiClient;
use odc_tests::sql::administrator;
use odc_tests::{Service, manifests, wait, with_service};
use serde_json::{Value, json};

use super::fixture::{TIMEOUT, create_objects, server, wait_requests_ended};

/// The maximum number of kinds of requests of the API.
const MAX_API_CALLS: usize = 20;

/// Verb, group and resource with subresource.
type Call = (String, String, String);

#[tokio::test]
async fn api_and_worker_send_only_documented_requests() -> anyhow::Result<()> {
    with_service(async |service| {
        let (mut api, mut worker) = tokio::try_join!(service.api().start(), service.worker().start())?;
        create_objects(service).await?;
        service.set_role("ada", "Admin").await?;
        let ada = service.sign_in(&api, "ada").await?;
        prepare(service, &ada).await?;
        send_all_operations(&ada).await?;
        wait_requests_ended(&mut administrator(service.database).await?).await?;
        // Watches are logged when they end.
        api.stop().await?;
        worker.stop().await?;

        let by_api = calls(service, "odc-api")?;
        let documented = documented_calls()?;
        assert!(documented.len() <= MAX_API_CALLS, "{documented:#?}");
        let by_worker = calls(service, "odc-worker")?;
        assert!(!by_api.is_empty() && !by_worker.is_empty(), "the audit log has no requests of the service");
        let surplus: BTreeSet<_> = by_api.difference(&documented).collect();
        assert!(surplus.is_empty(), "not documented in docs/reference/api.md: {surplus:#?}");
        let allowed = allowed_calls("base/service/role-worker.yaml")?;
        let surplus: BTreeSet<_> = by_worker.difference(&allowed).collect();
        assert!(surplus.is_empty(), "not allowed by the role of the worker: {surplus:#?}");
        for (verb, _, resource) in by_api.iter().chain(&by_worker) {
            let is_read = matches!(verb.as_str(), "get" | "list" | "watch");
            let harms = resource.starts_with("pods") || resource.ends_with("/status");
            assert!(is_read || !harms, "{verb} {resource}");
        }
        Ok(())
    })
    .await
}

/// Creates one object of each kind, and uses a token of Kubernetes.
async fn prepare(service: &Service<'_>, ada: &ApiClient) -> anyhow::Result<()> {
    let client = &service.plane.client;
    for (kind, name, spec) in [("Team", "team", json!({"members": ["ada"]})), ("DevServerUser", "bob", json!({}))] {
        let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        manifests::apply(client, &object).await?;
    }
    for (path, body) in [("/disks", json!({"name": "home", "size": "1Gi"})), ("/devservers", server("box"))] {
        let request = ada.change(Method::POST, path, Some(&body)).await?;
        anyhow::ensure!(request["state"] == "Succeeded", "{request}");
    }
    let point = json!({"name": "point", "reason": "OnDemand", "consistency": "Clean", "ready": true});
    let status = Patch::Merge(json!({"status": {"points": [point]}}));
    let disks: Api<Disk> = Api::namespaced(client.clone(), "dev-ada");
    disks.patch_status("home", &PatchParams::default(), &status).await?;
    let by_token = ada.with_credential(&service.token("ada").await?);
    wait::until("restore point", TIMEOUT, async || {
        let points = by_token.get("/disks/home/points").await?.body;
        anyhow::ensure!(points["items"][0]["name"] == "point", "{points}");
        Ok(())
    })
    .await
}

/// Sends every operation of the `OpenAPI` document once, deletions last.
async fn send_all_operations(ada: &ApiClient) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(manifests::deploy_directory().join("openapi.json"))?;
    let document: Value = serde_json::from_str(&text)?;
    let paths = document["paths"].as_object().context("paths")?;
    let operations = paths.iter().flat_map(|(path, item)| {
        item.as_object()
            .into_iter()
            .flatten()
            .map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
    });
    let (deletions, others): (Vec<_>, Vec<_>) = operations.partition(|(method, ..)| *method == "delete");
    for (method, path, operation) in others.into_iter().chain(deletions) {
        let path = fill(path.trim_start_matches("/api/v1"));
        if path.starts_with("/events") {
            // Both streams have the same source.
            ada.events("/events").await?;
            continue;
        }
        let body = operation["requestBody"]["content"]["application/json"].get("example");
        let method = method.to_uppercase().parse()?;
        let response = ada.send(method, &path, body, &[]).await;
        let response = response.with_context(|| format!("operation {}", operation["operationId"]))?;
        anyhow::ensure!(response.status != 500, "{path}: {response:?}");
    }
    Ok(())
}

/// Replaces the parameters of a path by names of existing objects.
fn fill(path: &str) -> String {
    let name = match path.split('/').nth(1).unwrap_or_default() {
        "disks" => "home",
        "flavors" => "cpu",
        "teams" => "team",
        "users" => "bob",
        _ => "box",
    };
    let path = path.replace("{name}", name).replace("{member}", "bob").replace("{point}", "point");
    path.replace("{id}", "0197a3c4-0000-7000-8000-000000000001")
}

/// Returns the kinds of requests of a service account.
fn calls(service: &Service<'_>, account: &str) -> anyhow::Result<BTreeSet<Call>> {
    let user = format!("system:serviceaccount:odc-system:{account}");
    let requests = service.plane.requests()?.into_iter().filter(|request| request.user == user);
    Ok(requests.map(|request| (request.verb, request.group, request.resource)).collect())
}

/// Returns the table of requests in the reference of the API, which is generated from the code.
fn documented_calls() -> anyhow::Result<BTreeSet<Call>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md");
    let text = std::fs::read_to_string(page)?;
    let (_, section) = text.split_once("## Requests to Kubernetes").context("the section on requests")?;
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    let call = |(verb, rest): (&str, &str)| {
        let resource = rest.split('`').next().unwrap_or_default();
        let (kind, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (plural, group) = kind.split_once('.').unwrap_or((kind, ""));
        let slash = if subresource.is_empty() { "" } else { "/" };
        (verb.to_owned(), group.to_owned(), format!("{plural}{slash}{subresource}"))
    };
    Ok(rows.map(call).collect())
}

/// Returns what the rules of a manifest allow.
fn allowed_calls(manifest: &str) -> anyhow::Result<BTreeSet<Call>> {
    let text = std::fs::read_to_string(manifests::deploy_directory().join(manifest))?;
    let mut calls = BTreeSet::new();
    for object in manifests::documents(&text)? {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let list = |field: &str| -> Vec<String> {
                let values = rule[field].as_array().into_iter().flatten();
                values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
            };
            for (group, resource, verb) in list("apiGroups").iter().flat_map(|group| {
                list("resources").into_iter().flat_map(move |resource| {
                    list("verbs").into_iter().map(move |verb| (group.clone(), resource.clone(), verb))
                })
            }) {
                calls.insert((verb, group, resource));
            }
        }
    }
    Ok(calls)
}
