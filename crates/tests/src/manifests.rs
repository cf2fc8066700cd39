//! Objects of `deploy/`, applied as an installation does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Tests run the processes. An `APIService` without an endpoint blocks the deletion of namespaces; tests of it register it
/// themselves.
const OMITTED_KINDS: [&str; 5] = ["Kustomization", "Component", "Deployment", "Job", "APIService"];
const FIELD_MANAGER: &str = "odc-tests";

/// Returns the directory of the manifests of this clone.
pub fn deploy_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Applies the CRDs, `deploy/base` and `deploy/base/service`, without what runs pods.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    apply_directory(client, "crds").await?;
    let crds = Api::all(client.clone());
    for crd in odc_api::crd::crds() {
        let name = crd.name_any();
        let established = await_condition(crds.clone(), &name, conditions::is_crd_established());
        let finished = tokio::time::timeout(ESTABLISH_TIMEOUT, established).await;
        finished.with_context(|| format!("CRD {name} is not established"))??;
    }
    apply_directory(client, "base").await?;
    apply_directory(client, "base/service").await
}

async fn apply_directory(client: &Client, name: &str) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(deploy_directory().join(name))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|file| file.is_file());
    // The namespace before its contents.
    files.sort_by_key(|file| (file.file_name() != Some("namespace.yaml".as_ref()), file.clone()));
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        for object in documents(&text).with_context(|| format!("reading {}", file.display()))? {
            if !object["kind"].as_str().is_some_and(|kind| OMITTED_KINDS.contains(&kind)) {
                apply(client, &object).await.with_context(|| format!("applying {}", file.display()))?;
            }
        }
    }
    Ok(())
}

/// Parses the objects of a manifest.
pub fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}

/// Applies an object of any kind server-side.
pub async fn apply(client: &Client, object: &Value) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("the object has no kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    Ok(api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?)
}
