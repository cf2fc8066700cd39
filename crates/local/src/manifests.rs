//! The manifests in `deploy/`. They are embedded, rendered with `kubectl kustomize` and applied server-side, so a second run
//! changes nothing.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use odc_api::duration::format_seconds;
use serde_json::Value;

use crate::components::Blueprint;
use crate::process::run;

const FIELD_MANAGER: &str = "odc-local";
const CRD_TIMEOUT: Duration = Duration::from_secs(60);

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
    "base/service/api.yaml",
    "base/service/kustomization.yaml",
    "base/service/migrate.yaml",
    "base/service/network.yaml",
    "base/service/role-api.yaml",
    "base/service/role-worker.yaml",
    "base/service/worker.yaml",
    "crds/devserverflavors.yaml",
    "crds/devservers.yaml",
    "crds/devserverusers.yaml",
    "crds/diskoperations.yaml",
    "crds/disks.yaml",
    "crds/kustomization.yaml",
    "crds/teams.yaml",
    "csi/base/classes.yaml",
    "csi/base/daemonset.yaml",
    "csi/base/driver.yaml",
    "csi/base/kustomization.yaml",
    "csi/base/namespace.yaml",
    "csi/base/roles.yaml",
    "csi/base/snapshot-controller.yaml",
    "csi/node-pools/kustomization.yaml",
    "csi/shared-pool/kustomization.yaml",
    "local/csi/kustomization.yaml",
    "local/flavors.yaml",
    "local/kustomization.yaml",
    "local/operator.yaml",
    "local/service/api.yaml",
    "local/service/kustomization.yaml",
    "local/service/service.yaml",
    "local/user.yaml",
];

/// Renders an overlay in `deploy/`.
pub async fn render(blueprint: &Blueprint, overlay: &str) -> anyhow::Result<Vec<Value>> {
    let directory = blueprint.layout.config().join("deploy");
    for (path, text) in MANIFESTS {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let kubectl = blueprint.layout.bin().join("kubectl");
    let (kubectl, overlay) = (to_str(&kubectl)?, directory.join(overlay));
    let text = run(kubectl, &["kustomize", to_str(&overlay)?]).await.context("rendering the manifests")?;
    parse(&text).context("parsing the rendered manifests")
}

/// Parses all objects of a YAML file.
pub fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn to_str(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))
}

/// Replaces every string that equals an image placeholder by the image reference.
pub fn substitute_images(objects: &mut [Value], images: &[(&str, String)]) {
    for object in objects {
        substitute(object, images);
    }
}

fn substitute(value: &mut Value, images: &[(&str, String)]) {
    match value {
        Value::String(text) => {
            if let Some((_, image)) = images.iter().find(|(name, _)| text == name) {
                text.clone_from(image);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, images)),
        Value::Object(fields) => fields.values_mut().for_each(|field| substitute(field, images)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Applies the CRDs, waits until they are established, and applies the other objects.
pub async fn apply_all(client: &Client, objects: &[Value]) -> anyhow::Result<()> {
    let (crds, others): (Vec<&Value>, Vec<&Value>) =
        objects.iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    for crd in &crds {
        apply(client, crd).await?;
    }
    for crd in &crds {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let crd_api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let established = await_condition(crd_api, name, conditions::is_crd_established());
        tokio::time::timeout(CRD_TIMEOUT, established).await.with_context(|| {
            format!("CRD {name} was not established within {}", format_seconds(CRD_TIMEOUT.as_secs()))
        })??;
    }
    for object in others {
        apply(client, object).await?;
    }
    Ok(())
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
        let (mut on_disk, mut directories) = (BTreeSet::new(), vec![deploy.clone()]);
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "yaml") {
                    on_disk.insert(path.strip_prefix(&deploy).unwrap().display().to_string());
                }
            }
        }
        let embedded: BTreeSet<String> = MANIFESTS.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(embedded, on_disk);
    }

    #[test]
    fn only_whole_values_are_replaced_by_images() {
        let mut object =
            json!({"image": "odc-image", "env": [{"value": "odc-agent-image"}], "note": "about odc-image"});
        substitute(&mut object, &[("odc-image", "r/odc:1".into()), ("odc-agent-image", "r/agent:2".into())]);
        assert_eq!(object, json!({"image": "r/odc:1", "env": [{"value": "r/agent:2"}], "note": "about odc-image"}));
    }
}
