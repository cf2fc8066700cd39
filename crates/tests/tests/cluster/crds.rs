//! CRDs on a real API server: it accepts them, and validates every case as our own checks do.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use odc_api::fixtures::case::{Case, cases};
use odc_tests::with_control_plane;
use serde_json::{Value, json};

#[tokio::test]
async fn api_server_validates_every_case_like_our_checks() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let namespaces: Api<Namespace> = Api::all(plane.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "dev-ada"}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let mut mismatches = Vec::new();
        for case in cases() {
            let error = validation_error(&plane.client, &case).await?;
            let matches = match (&error, case.rejected_by) {
                (None, None) => true,
                (Some(error), Some(expected)) => error.contains(expected),
                _ => false,
            };
            if !matches {
                mismatches.push(format!("{}: expected {:?}, got {error:?}", case.name, case.rejected_by));
            }
        }
        assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
        Ok(())
    })
    .await
}

/// Returns the validation error of a case. New objects are created as a dry run, and old ones are deleted.
async fn validation_error(client: &Client, case: &Case) -> anyhow::Result<Option<String>> {
    let api = api(client, &case.object);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let Some(old) = &case.old else { return rejection(api.create(&dry_run, &parse(&case.object)?).await) };

    let stored = api.create(&PostParams::default(), &parse(old)?).await?;
    let name = stored.name_any();
    let mut version = stored.resource_version();
    if let Some(status) = old.get("status") {
        let mut with_status = parse(old)?;
        with_status.data["status"] = status.clone();
        with_status.metadata.resource_version = version;
        version = api.replace_status(&name, &PostParams::default(), &with_status).await?.resource_version();
    }
    let mut new = parse(&case.object)?;
    new.metadata.resource_version = version;
    let mut error = rejection(api.replace(&name, &dry_run, &new).await)?;
    if error.is_none() && case.object.get("status") != old.get("status") {
        error = rejection(api.replace_status(&name, &dry_run, &new).await)?;
    }
    if case.object["kind"] == "Disk" {
        let confirm = json!({"metadata": {"annotations": {"odc.dev/confirm-delete": name}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(confirm)).await?;
    }
    api.delete(&name, &DeleteParams::default()).await?;
    Ok(error)
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("odc.dev", "v1alpha1", kind));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn parse(object: &Value) -> anyhow::Result<DynamicObject> {
    Ok(serde_json::from_value(object.clone())?)
}

/// Returns the message of a validation error. Other errors are failures of the test.
fn rejection<T>(result: kube::Result<T>) -> anyhow::Result<Option<String>> {
    match result {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}
