//! Permissions as the API server enforces them.

pub mod disk_permissions;
mod escalation;
mod operator_permissions;
mod user_permissions;

use anyhow::Context as _;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use odc_tests::apifault::Verb;
use odc_tests::{audit, operator, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

use super::fault_harness::FaultHarness;
use super::fixture::{Fixture, NAMESPACE, OPERATOR, TIMEOUT};

/// One verb on one resource that a rule allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// As in `devservers.odc.dev/status`.
    resource: String,
    verb: String,
    name: Option<String>,
}

/// Expands rules into permissions.
fn permissions(rules: &[PolicyRule]) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for rule in rules {
        let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
            None | Some([]) => vec![None],
            Some(names) => names.iter().cloned().map(Some).collect(),
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    for name in &names {
                        let resource = qualified_resource(group, resource);
                        all.insert(Permission { resource, verb: verb.clone(), name: name.clone() });
                    }
                }
            }
        }
    }
    all
}

/// Returns the requests of the operator, which has ended: the audit log has a watch only after its end.
async fn requests(harness: &FaultHarness<'_>) -> anyhow::Result<Vec<audit::Request>> {
    let mut requests = wait::until("end of all watches", TIMEOUT, async || {
        let requests = harness.fixture.plane.requests()?;
        let watches = requests.iter().filter(|request| request.user == OPERATOR && request.verb == "watch");
        let started = harness.proxy.trace().iter().filter(|entry| entry.verb == Verb::Watch).count();
        anyhow::ensure!(watches.count() >= started, "{started} were started");
        Ok(requests)
    })
    .await?;
    requests.retain(|request| request.user == OPERATOR);
    Ok(requests)
}

/// Returns the permissions of the operator that none of its requests needed, with their role and its namespace.
async fn unused_permissions(
    fixture: &Fixture<'_>,
    requests: &[audit::Request],
) -> anyhow::Result<Vec<(&'static str, &'static str, Permission)>> {
    let admin = &fixture.plane.client;
    let cluster: Api<ClusterRole> = Api::all(admin.clone());
    let requests: Vec<&audit::Request> = requests.iter().collect();
    let mut unused = Vec::new();
    // A request that a namespaced role allows does not justify the same permission in the cluster role.
    let mut remaining = requests.clone();
    for (role, namespace) in [
        ("odc-operator-tenant", "dev-"),
        ("odc-operator", "odc-system"),
        ("odc-operator-events", "default"),
        ("odc-operator", ""),
    ] {
        let rules = match namespace {
            "" | "dev-" => cluster.get(role).await?.rules,
            namespace => Api::<Role>::namespaced(admin.clone(), namespace).get(role).await?.rules,
        };
        let granted = permissions(&rules.context("the role has no rules")?);
        anyhow::ensure!(!granted.is_empty(), "{role} has no permissions");
        let in_namespace = |request: &audit::Request| request.namespace.starts_with(namespace);
        let matching: Vec<&audit::Request> =
            remaining.iter().filter(|request| in_namespace(request)).copied().collect();
        remaining
            .retain(|request| !in_namespace(request) || !granted.iter().any(|permission| permission.allowed(request)));
        // `bind` is needed in addition to the creation of the binding.
        let is_used =
            |permission: &Permission| permission.is_used(if permission.verb == "bind" { &requests } else { &matching });
        let surplus = granted.into_iter().filter(|permission| !is_used(permission));
        unused.extend(surplus.map(|permission| (role, namespace, permission)));
    }
    Ok(unused)
}

/// Returns a resource with its group.
fn qualified_resource(group: &str, resource: &str) -> String {
    match (group.is_empty(), resource.split_once('/')) {
        (true, _) => resource.to_owned(),
        (false, None) => format!("{resource}.{group}"),
        (false, Some((resource, sub))) => format!("{resource}.{group}/{sub}"),
    }
}

impl Permission {
    fn is_used(&self, requests: &[&audit::Request]) -> bool {
        requests.iter().any(|request| self.allowed(request))
    }

    /// Reports whether a successful request needed this permission.
    fn allowed(&self, request: &audit::Request) -> bool {
        // A 404 needs the permission as well.
        let succeeded = request.code < 300 || (request.verb == "get" && request.code == 404);
        if !succeeded || self.name.as_ref().is_some_and(|name| *name != request.name) {
            return false;
        }
        // Server-side apply that creates an object is logged as a patch and needs both verbs.
        let created = request.verb == "create" || (request.verb == "patch" && request.code == 201);
        let same_resource = qualified_resource(&request.group, &request.resource) == self.resource;
        match self.verb.as_str() {
            // The bindings of the operator have the names of the roles.
            "bind" => request.resource == "rolebindings" && created,
            "create" => same_resource && created,
            "patch" => same_resource && request.verb == "patch" && request.code == 200,
            verb => same_resource && request.verb == verb,
        }
    }
}

fn objects(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        NAMESPACE,
        &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
    )
}

/// Returns a client that authenticates with this token and does not retry.
pub async fn client_with_token(fixture: &Fixture<'_>, token: &str) -> anyhow::Result<Client> {
    let path = fixture.directory.join("client.kubeconfig");
    operator::write_token_kubeconfig(&fixture.plane.kubeconfig, token, &path)?;
    let mut config = config(&path).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn config(path: &Path) -> anyhow::Result<kube::Config> {
    Ok(kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?)
}

/// Sends a request and returns the status code and the message.
async fn send(client: &Client, method: &Method, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, String)> {
    let kind = if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let text = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(text.into_bytes())?;
    match client.request_text(request).await {
        Ok(text) => Ok((StatusCode::OK.as_u16(), text)),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(error) => Err(error).with_context(|| format!("{method} {path}")),
    }
}

fn binding(name: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "odc-operator", "namespace": "odc-system"}]})
}
