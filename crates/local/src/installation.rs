//! ODC itself in a cloud: its images, the manifests every installation uses, and a person to try it with.
//!
//! The manifests are part of this program. They are rendered by the cloud's own kubectl, as users do it, and applied on
//! the server's side: a second run changes nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::image;
use crate::parts::Blueprint;
use crate::process::run;

const MANAGER: &str = "odc-local";
const DEFINITION_LIMIT: Duration = Duration::from_secs(60);
/// Includes pulling the operator's image on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(180);
/// The person to try it with, and how long their token lasts; every `up` makes a new one.
pub const DEMO: &str = "demo";
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

macro_rules! manifests {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../deploy/", $path)))),+]
    };
}

const FILES: &[(&str, &str)] = manifests![
    "base/kustomization.yaml",
    "base/namespace.yaml",
    "base/network.yaml",
    "base/queue.yaml",
    "base/operator.yaml",
    "base/priority-class.yaml",
    "base/role-operator-tenant.yaml",
    "base/role-operator.yaml",
    "base/role-reader.yaml",
    "base/role-user.yaml",
    "crds/devserverflavors.yaml",
    "crds/devservers.yaml",
    "crds/devserverusers.yaml",
    "crds/kustomization.yaml",
    "crds/teams.yaml",
    "local/flavors.yaml",
    "local/kustomization.yaml",
    "local/operator.yaml",
    "local/user.yaml",
];

/// The job `odc`.
pub async fn install(blueprint: &Blueprint) -> anyhow::Result<()> {
    let operator = image::load_binary(blueprint, &blueprint.executables.odc, None).await?;
    let agent = image::load_binary(blueprint, &blueprint.executables.agent, None).await?;
    let images =
        [("odc-image", operator), ("odc-agent-image", agent), ("odc-default-image", image::reference(image::DEV_BASE))];
    let mut objects = render(blueprint).await?;
    for object in &mut objects {
        fill_in(object, &images);
    }
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let (definitions, rest): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    for definition in &definitions {
        apply(&client, definition).await?;
    }
    for definition in &definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let served = await_condition(definitions, name, conditions::is_crd_established());
        tokio::time::timeout(DEFINITION_LIMIT, served)
            .await
            .with_context(|| format!("the API server does not serve {name}"))??;
    }
    for object in &rest {
        apply(&client, object).await?;
    }
    Ok(())
}

/// Waits until the operator runs and has made the demo user's place, and lets that user in.
pub async fn ready(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "odc-system");
    let there = await_condition(deployments, "odc-operator", is_rolled_out);
    tokio::time::timeout(START_LIMIT, there).await.with_context(|| {
        format!("the operator did not start within {} s; see kubectl -n odc-system get pods", START_LIMIT.as_secs())
    })??;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &format!("dev-{DEMO}"));
    let there = await_condition(accounts.clone(), ACCOUNT, |account: Option<&ServiceAccount>| account.is_some());
    tokio::time::timeout(START_LIMIT, there)
        .await
        .with_context(|| format!("user {DEMO} got no account; see kubectl -n odc-system logs deploy/odc-operator"))??;
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
    let token = answer.status.context("a token was asked for")?.token;
    crate::file::write(&blueprint.layout.demo_token(), token, 0o600)
}

/// All of it, and of this very version.
pub fn is_rolled_out(deployment: Option<&Deployment>) -> bool {
    deployment.is_some_and(|deployment| {
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation >= deployment.metadata.generation
                && status.updated_replicas == wanted
                && status.available_replicas == wanted
                && status.replicas == wanted
        })
    })
}

/// What the operator calls the account of a user's own tools.
const ACCOUNT: &str = "odc-user";

async fn render(blueprint: &Blueprint) -> anyhow::Result<Vec<Value>> {
    let directory = blueprint.layout.config().join("deploy");
    for (path, text) in FILES {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let kubectl = blueprint.layout.bin().join("kubectl");
    let (kubectl, overlay) = (as_text(&kubectl)?, directory.join("local"));
    let text = run(kubectl, &["kustomize", as_text(&overlay)?]).await.context("rendering the manifests")?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).context("reading the rendered manifests")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn as_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is no plain text", path.display()))
}

/// Puts an image wherever a value is exactly its name.
fn fill_in(value: &mut Value, images: &[(&str, String)]) {
    match value {
        Value::String(text) => {
            if let Some((_, image)) = images.iter().find(|(name, _)| text == name) {
                text.clone_from(image);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, images)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_in(field, images)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone()).context("reading a manifest")?;
    let types = object.types.clone().context("a manifest has a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.name_any();
    let how = PatchParams::apply(MANAGER).force();
    api.patch(&name, &how, &Patch::Apply(&object)).await.with_context(|| format!("applying {} {name}", types.kind))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_manifest_comes_along() {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        let mut there = BTreeSet::new();
        for directory in ["base", "crds", "local"] {
            for entry in std::fs::read_dir(deploy.join(directory)).unwrap() {
                there.insert(format!("{directory}/{}", entry.unwrap().file_name().to_string_lossy()));
            }
        }
        let known: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(known, there);
    }

    #[test]
    fn images_are_filled_in_where_they_stand_alone() {
        let mut object =
            json!({"image": "odc-image", "env": [{"value": "odc-agent-image"}], "note": "about odc-image"});
        fill_in(&mut object, &[("odc-image", "r/odc:1".into()), ("odc-agent-image", "r/agent:2".into())]);
        assert_eq!(object, json!({"image": "r/odc:1", "env": [{"value": "r/agent:2"}], "note": "about odc-image"}));
    }
}
