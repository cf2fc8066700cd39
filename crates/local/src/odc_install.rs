//! Installs ODC into a local cluster: its images, the manifests of every installation, and a demo user.
//!
//! The manifests are embedded, rendered with `kubectl kustomize` and applied server-side, so a second run changes nothing.

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
use odc_api::duration::format_seconds;
use serde_json::Value;

use crate::components::Blueprint;
use crate::image;
use crate::process::run;

const FIELD_MANAGER: &str = "odc-local";
const CRD_TIMEOUT: Duration = Duration::from_secs(60);
/// Includes pulling the operator's image on a busy machine.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(180);
pub const DEMO_USER: &str = "demo";
/// Every `up` creates a new token.
const DEMO_TOKEN_SECONDS: i64 = 30 * 24 * 3600;
/// Name of the service account that the operator creates in the namespace of a user.
const USER_SERVICE_ACCOUNT: &str = "odc-user";

macro_rules! manifests {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../deploy/", $path)))),+]
    };
}

const MANIFESTS: &[(&str, &str)] = manifests![
    "base/kustomization.yaml",
    "base/namespace.yaml",
    "base/network.yaml",
    "base/queue.yaml",
    "base/operator.yaml",
    "base/policy-disk.yaml",
    "base/priority-class.yaml",
    "base/role-operator-tenant.yaml",
    "base/role-operator.yaml",
    "base/role-reader.yaml",
    "base/role-user.yaml",
    "crds/devserverflavors.yaml",
    "crds/devservers.yaml",
    "crds/devserverusers.yaml",
    "crds/diskoperations.yaml",
    "crds/disks.yaml",
    "crds/kustomization.yaml",
    "crds/teams.yaml",
    "local/flavors.yaml",
    "local/kustomization.yaml",
    "local/operator.yaml",
    "local/user.yaml",
];

/// Runs the job `odc`.
pub async fn install(blueprint: &Blueprint) -> anyhow::Result<()> {
    let operator = image::load_binary(blueprint, &blueprint.executables.odc, None).await?;
    let agent = image::load_binary(blueprint, &blueprint.executables.agent, None).await?;
    let images =
        [("odc-image", operator), ("odc-agent-image", agent), ("odc-default-image", image::reference(image::DEV_BASE))];
    let mut objects = render(blueprint).await?;
    for object in &mut objects {
        substitute_images(object, &images);
    }
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let (crds, others): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    for crd in &crds {
        apply(&client, crd).await?;
    }
    for crd in &crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let crd_api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let established = await_condition(crd_api, name, conditions::is_crd_established());
        tokio::time::timeout(CRD_TIMEOUT, established).await.with_context(|| {
            format!("CRD {name} was not established within {}", format_seconds(CRD_TIMEOUT.as_secs()))
        })??;
    }
    for object in &others {
        apply(&client, object).await?;
    }
    Ok(())
}

/// Waits until the operator is available and has created the demo user's service account, and writes a token for it.
pub async fn wait_ready(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "odc-system");
    let rolled_out = await_condition(deployments, "odc-operator", is_rolled_out);
    tokio::time::timeout(ROLLOUT_TIMEOUT, rolled_out).await.with_context(|| {
        format!(
            "the operator did not start within {}\nhint: run `kubectl -n odc-system get pods`",
            format_seconds(ROLLOUT_TIMEOUT.as_secs())
        )
    })??;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &format!("dev-{DEMO_USER}"));
    let created =
        await_condition(accounts.clone(), USER_SERVICE_ACCOUNT, |account: Option<&ServiceAccount>| account.is_some());
    tokio::time::timeout(ROLLOUT_TIMEOUT, created)
        .await
        .with_context(|| format!(
            "the operator created no service account for user {DEMO_USER}\nhint: run `kubectl -n odc-system logs deploy/odc-operator`"
        ))??;
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(DEMO_TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let response = accounts.create_token_request(USER_SERVICE_ACCOUNT, &PostParams::default(), &request).await?;
    let token = response.status.context("the token response has a status")?.token;
    crate::fs::write_atomic(&blueprint.layout.demo_token(), token, 0o600)
}

/// Reports whether all replicas are available and of the current generation.
pub fn is_rolled_out(deployment: Option<&Deployment>) -> bool {
    deployment.is_some_and(|deployment| {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation >= deployment.metadata.generation
                && status.updated_replicas == replicas
                && status.available_replicas == replicas
                && status.replicas == replicas
        })
    })
}

async fn render(blueprint: &Blueprint) -> anyhow::Result<Vec<Value>> {
    let directory = blueprint.layout.config().join("deploy");
    for (path, text) in MANIFESTS {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let kubectl = blueprint.layout.bin().join("kubectl");
    let (kubectl, overlay) = (to_str(&kubectl)?, directory.join("local"));
    let text = run(kubectl, &["kustomize", to_str(&overlay)?]).await.context("rendering the manifests")?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).context("parsing the rendered manifests")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn to_str(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))
}

/// Replaces every string that equals an image placeholder by the image reference.
fn substitute_images(value: &mut Value, images: &[(&str, String)]) {
    match value {
        Value::String(text) => {
            if let Some((_, image)) = images.iter().find(|(name, _)| text == name) {
                text.clone_from(image);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| substitute_images(item, images)),
        Value::Object(fields) => fields.values_mut().for_each(|field| substitute_images(field, images)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone()).context("parsing a manifest")?;
    let types = object.types.clone().context("a manifest has a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.name_any();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("applying {} {name}", types.kind))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_manifest_is_embedded() {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        let mut on_disk = BTreeSet::new();
        for directory in ["base", "crds", "local"] {
            for entry in std::fs::read_dir(deploy.join(directory)).unwrap() {
                on_disk.insert(format!("{directory}/{}", entry.unwrap().file_name().to_string_lossy()));
            }
        }
        let embedded: BTreeSet<String> = MANIFESTS.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(embedded, on_disk);
    }

    #[test]
    fn only_whole_values_are_replaced_by_images() {
        let mut object =
            json!({"image": "odc-image", "env": [{"value": "odc-agent-image"}], "note": "about odc-image"});
        substitute_images(&mut object, &[("odc-image", "r/odc:1".into()), ("odc-agent-image", "r/agent:2".into())]);
        assert_eq!(object, json!({"image": "r/odc:1", "env": [{"value": "r/agent:2"}], "note": "about odc-image"}));
    }
}
