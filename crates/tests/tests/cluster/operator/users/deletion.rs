//! Deletion of a user without loss of data.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use odc_api::v1alpha1::{DevServerUser, Phase};
use odc_tests::manifests;
use serde_json::json;

use super::super::fixture::{NAMESPACE, user, wait_absent, wait_for, with_fixture};
use super::{RBAC, objects};

#[tokio::test]
async fn deleted_user_loses_permissions_and_servers_but_no_data() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
        let bindings = objects(client, RBAC, "RoleBinding", Some(NAMESPACE));
        let accounts = objects(client, "v1", "ServiceAccount", Some(NAMESPACE));
        fixture.create_claim("home").await?;
        fixture.create("box", json!({"home": {"claim": "home"}})).await?;
        fixture.create("gang", json!({"flavor": "gpu", "nodes": 2})).await?;
        for name in ["box", "gang"] {
            fixture.wait_for_phase(name, Phase::Running).await?;
        }
        let namespace = namespaces.get(NAMESPACE).await?;
        let secret_names = [fixture.secret_name("box").await?, fixture.secret_name("gang").await?];

        users.delete("ada", &DeleteParams::default()).await?;
        wait_absent(&bindings, "odc-user").await?;
        wait_absent(&accounts, "odc-user").await?;
        for name in ["box", "gang"] {
            fixture.wait_deleted(name).await?;
        }
        for pod in ["box-0", "gang-0", "gang-1"] {
            fixture.wait_pod_deleted(pod).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        for secret in &secret_names {
            wait_absent(&secrets, secret).await?;
        }
        fixture.wait_idle().await?;
        let current = namespaces.get(NAMESPACE).await?;
        assert_eq!((current.uid(), &current.metadata.deletion_timestamp), (namespace.uid(), &None));
        let claim = claims.get("home").await?;
        assert_eq!(claim.status.and_then(|status| status.phase).as_deref(), Some("Bound"));
        assert_eq!(claim.metadata.deletion_timestamp, None);

        // A user created again with that name has the claim.
        manifests::apply(client, &user("ada")).await?;
        fixture.wait_user_ready("ada").await?;
        wait_for(&bindings, "odc-user", "recreated", |binding| binding.is_some()).await?;
        fixture.create_running("again", json!({"home": {"claim": "home"}})).await?;
        assert_eq!(namespaces.get(NAMESPACE).await?.uid(), namespace.uid());

        users.delete("ada", &DeleteParams::default()).await?;
        fixture.wait_deleted("again").await?;
        claims.delete("home", &DeleteParams::default()).await?;
        wait_absent(&namespaces, NAMESPACE).await?;
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        assert!(volumes.get_opt("volume-home").await?.is_some(), "a volume with reclaim policy Retain stays");
        Ok(())
    })
    .await
}
