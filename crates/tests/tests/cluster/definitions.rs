//! The custom resources before a real API server: it takes the definitions, and its verdict on every case is ours.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use odc_api::fixtures::case::{Case, cases};
use odc_tests::with_control_plane;
use serde_json::{Value, json};

use crate::LIMIT;

#[tokio::test]
async fn the_api_server_judges_every_case_as_we_do() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let definitions: Api<CustomResourceDefinition> = Api::all(plane.client.clone());
        for definition in odc_api::crd::crds() {
            definitions.create(&PostParams::default(), &definition).await?;
            let name = definition.name_any();
            let served = conditions::is_crd_established();
            tokio::time::timeout(LIMIT, await_condition(definitions.clone(), &name, served)).await??;
        }
        let namespaces: Api<Namespace> = Api::all(plane.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "dev-ada"}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let mut wrong = Vec::new();
        for case in cases() {
            let said = verdict(&plane.client, &case).await?;
            let right = match (&said, case.refused) {
                (None, None) => true,
                (Some(said), Some(expected)) => said.contains(expected),
                _ => false,
            };
            if !right {
                wrong.push(format!("{}: expected {:?}, the API server says {said:?}", case.about, case.refused));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
    .await
}

/// What the API server says against it. Nothing that is asked stays: new objects are only tried, old ones are deleted.
async fn verdict(client: &Client, case: &Case) -> anyhow::Result<Option<String>> {
    let api = api(client, &case.object);
    let tried = PostParams { dry_run: true, ..PostParams::default() };
    let Some(old) = &case.old else { return refusal(api.create(&tried, &parse(&case.object)?).await) };

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
    let mut said = refusal(api.replace(&name, &tried, &new).await)?;
    if said.is_none() && case.object.get("status") != old.get("status") {
        said = refusal(api.replace_status(&name, &tried, &new).await)?;
    }
    api.delete(&name, &DeleteParams::default()).await?;
    Ok(said)
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

/// A refusal is an answer; anything else that goes wrong is not.
fn refusal<T>(result: kube::Result<T>) -> anyhow::Result<Option<String>> {
    match result {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}
