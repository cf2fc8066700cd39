//! Namespaces that belong to no user of ODC.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{DevServer, DevServerUser, Phase};
use odc_tests::manifests;
use serde_json::json;

use super::super::fixture::{server, user, wait_absent, wait_for, with_fixture};
use super::{wait_rejected, wait_user_reason};

#[tokio::test]
async fn foreign_namespace_is_not_changed() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let foreign = json!({"metadata": {"name": "dev-eve", "labels": {"team": "others"}}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "dev-eve");
        let map = serde_json::from_value(json!({"metadata": {"name": "foreign"}}))?;
        maps.create(&PostParams::default(), &map).await?;
        let before = namespaces.get("dev-eve").await?;
        let mark = fixture.wait_idle().await?;

        manifests::apply(client, &user("eve")).await?;
        let message = wait_user_reason(fixture, "eve", Reason::NamespaceConflict).await?;
        let advice = "kubectl label --overwrite namespace dev-eve odc.dev/owner=eve";
        assert!(message.contains(advice), "{message}");
        // A server there has no owner, although a user of that name exists.
        let servers: Api<DevServer> = Api::namespaced(client.clone(), "dev-eve");
        let mut stray = server("stray", &json!({}))?;
        stray.metadata.namespace = Some("dev-eve".into());
        servers.create(&PostParams::default(), &stray).await?;
        wait_rejected(&servers, "stray", Reason::NoOwner).await?;

        // It stays when the user is deleted.
        let users: Api<DevServerUser> = Api::all(client.clone());
        users.delete("eve", &DeleteParams::default()).await?;
        wait_absent(&users, "eve").await?;
        fixture.wait_idle().await?;
        let writes: Vec<String> =
            fixture.writes_since(mark)?.into_iter().filter(|line| line.contains("dev-eve")).collect();
        assert!(writes.iter().all(|line| line.starts_with("patch devservers/status")), "{writes:#?}");
        assert_eq!(namespaces.get("dev-eve").await?.resource_version(), before.resource_version());
        assert!(maps.get_opt("foreign").await?.is_some());
        assert!(servers.get_opt("stray").await?.is_some());

        // Labelled as the message says, the namespace and its contents belong to the user.
        manifests::apply(client, &user("eve")).await?;
        wait_user_reason(fixture, "eve", Reason::NamespaceConflict).await?;
        let label = json!({"metadata": {"labels": {"odc.dev/owner": "eve"}}});
        namespaces.patch("dev-eve", &PatchParams::default(), &Patch::Merge(&label)).await?;
        fixture.wait_user_ready("eve").await?;
        let running = |server: Option<&DevServer>| {
            server.and_then(|server| server.status.as_ref()?.phase) == Some(Phase::Running)
        };
        wait_for(&servers, "stray", "running", running).await?;
        assert!(maps.get_opt("foreign").await?.is_some());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_outside_a_user_namespace_is_rejected() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let unowned = json!({"metadata": {"name": "dev-unowned"}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(unowned)?).await?;
        let mark = fixture.wait_idle().await?;
        for namespace in ["default", "dev-unowned"] {
            let servers: Api<DevServer> = Api::namespaced(client.clone(), namespace);
            let mut stray = server("stray", &json!({}))?;
            stray.metadata.namespace = Some(namespace.into());
            servers.create(&PostParams::default(), &stray).await?;
            let message = wait_rejected(&servers, "stray", Reason::NoOwner).await?;
            assert_eq!(
                message,
                format!("Namespace {namespace} does not belong to a user. Create the server in dev-<user>.")
            );
        }
        fixture.wait_idle().await?;
        // One status write for each server.
        let status_write = |namespace: &str| format!("patch devservers/status {namespace}/stray 200");
        assert_eq!(fixture.writes_since(mark)?, [status_write("default"), status_write("dev-unowned")]);
        Ok(())
    })
    .await
}
