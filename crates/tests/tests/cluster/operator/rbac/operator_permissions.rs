//! The operator is denied nothing and has no permission that it does not use.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Secret, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::{DevServerUser, Phase};
use odc_tests::apifault::{Action, EventAction, Fault, Pattern, Verb};
use odc_tests::{manifests, wait};
use serde_json::{Value, json};

use super::super::fault_harness::FaultHarness;
use super::super::fixture::{Fixture, NAMESPACE, TIMEOUT, is_bound, user, wait_absent, wait_for, with_fixture};
use super::super::queue_api;
use super::disk_permissions::is_of_disks;
use super::{objects, requests, unused_permissions};

/// Exercises nearly everything the operator does. Each step is there for a rule that no other step uses.
async fn exercise_operator(harness: &FaultHarness<'_>) -> anyhow::Result<()> {
    let fixture = harness.fixture;
    let admin = &fixture.plane.client;
    let users: Api<DevServerUser> = Api::all(admin.clone());
    manifests::apply(
        admin,
        &json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"}, "spec": {"members": ["ada"]}}),
    )
    .await?;
    // First, because it also removes permissions of the operator, which would fail other requests.
    break_namespace_objects(fixture).await?;
    fixture.wait_idle().await?;
    // The pod of this node never starts, so that its Secret is missing.
    fixture.plane.pause_node("paused");
    // Capacity for one server.
    let capacity = [("cpu", "150m"), ("memory", "1Gi"), ("ephemeral-storage", "10Gi")];
    fixture.plane.add_node("paused", &capacity).await?;
    fixture.create("unplaced", json!({"scheduling": {"nodeLabels": {"kubernetes.io/hostname": "paused"}}})).await?;
    fixture.wait_for_pod("unplaced-0", "bound", is_bound).await?;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    let secret_name = fixture.secret_name("unplaced").await?;
    let secret = secrets.get(&secret_name).await?;
    secrets.delete(&secret_name, &DeleteParams::default()).await?;

    exercise_servers(harness).await?;

    // Creations whose responses are lost, so that the objects seem to belong to another client.
    let held = |resource: &str, name: &str| {
        Fault::event(1, Pattern::resource(resource).with_name(name), None, EventAction::Hold)
    };
    harness.proxy.add(held("namespaces", "dev-bob"));
    harness.proxy.add(Fault::write(1).matching(Pattern::verb(Verb::Create, "namespaces")).after(Action::HangUp));
    manifests::apply(admin, &user("bob")).await?;
    wait_read(harness, "namespaces", "dev-bob").await?;
    harness.proxy.release();
    fixture.wait_user_ready("bob").await?;
    harness.proxy.add(held("pods", "lost-0"));
    for resource in ["pods", "secrets"] {
        let of = Pattern::verb(Verb::Create, resource).with_name_prefix("lost-");
        harness.proxy.add(Fault::write(1).matching(of).after(Action::HangUp));
    }
    fixture.create("lost", json!({"flavor": "cpu"})).await?;
    wait_read(harness, "secrets", &fixture.secret_name("lost").await?).await?;
    wait_read(harness, "pods", "lost-0").await?;
    harness.proxy.release();
    fixture.wait_for_phase("lost", Phase::Running).await?;

    // When the operator gives up the pod, the node recovers and removes it at the next change.
    fixture
        .wait_for_pod("unplaced-0", "terminating", |pod| {
            pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await?;
    fixture.plane.recover_node("paused").await?;
    let change = json!({"metadata": {"annotations": {"example.org/touched": "yes"}}});
    // It may be deleted already.
    match fixture.pods.patch("unplaced-0", &PatchParams::default(), &Patch::Merge(&change)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => drop(result?),
    }
    wait_for(&secrets, &secret_name, "recreated", |current| {
        current.is_some_and(|current| current.uid() != secret.uid())
    })
    .await?;
    fixture.servers.delete("unplaced", &DeleteParams::default()).await?;

    let bad = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
        "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"home": 5}});
    fixture.store_invalid(&bad).await?;
    wait_read(harness, "devservers.odc.dev", "bad").await?;
    fixture.servers.delete("bad", &DeleteParams::default()).await?;

    // All users are deleted.
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    users.delete("bob", &DeleteParams::default()).await?;
    wait_absent(&namespaces, "dev-bob").await?;
    users.delete("ada", &DeleteParams::default()).await?;
    fixture.wait_deleted("lost").await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), NAMESPACE);
    claims.delete("home", &DeleteParams::default()).await?;
    wait_absent(&namespaces, NAMESPACE).await
}

/// Waits until the operator has read an object by name.
async fn wait_read(harness: &FaultHarness<'_>, resource: &str, name: &str) -> anyhow::Result<()> {
    wait::until(&format!("read of {resource} {name}"), TIMEOUT, async || {
        let trace = harness.proxy.trace();
        let read = trace.iter().any(|entry| {
            entry.verb == Verb::Get
                && entry.resource == resource
                && entry.name == name
                && entry.server_code == Some(200)
        });
        anyhow::ensure!(read, "no such request");
        Ok(())
    })
    .await
}

/// Runs several leaders that serve the aggregated API.
async fn exercise_queue_api(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    manifests::apply(&fixture.plane.client, &user("ada")).await?;
    queue_api::register(&fixture.plane.client).await?;
    let secrets: Api<Secret> = Api::namespaced(fixture.plane.client.clone(), "odc-system");
    for _ in 0..2 {
        fixture.release_lease().await?;
        queue_api::start_queue_server(fixture).await?.operator.kill().await?;
        // The next leader finds a key that does not match the certificate.
        let other = json!({"stringData": {"tls.key": rcgen::KeyPair::generate()?.serialize_pem()}});
        secrets.patch("odc-queue-tls", &PatchParams::default(), &Patch::Merge(&other)).await?;
    }
    Ok(())
}

/// Breaks every object in the namespace of a user and waits for the repair.
async fn break_namespace_objects(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    let admin = &fixture.plane.client;
    let rbac = "rbac.authorization.k8s.io";
    let users: Api<DevServerUser> = Api::all(admin.clone());
    let quota = |cpu: Value| json!({"spec": {"quota": {"cpu": cpu}}});
    let quotas = objects(admin, "", "v1", "ResourceQuota");
    for cpu in ["50", "60"] {
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota(cpu.into()))).await?;
        wait_for(&quotas, "odc", cpu, |quota| {
            quota.is_some_and(|quota| quota.data["spec"]["hard"]["requests.cpu"] == cpu)
        })
        .await?;
    }
    users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota(Value::Null))).await?;
    wait_absent(&quotas, "odc").await?;

    // The second round updates the series of the existing Events.
    for _ in 0..2 {
        for (group, version, kind, name, field, wrong) in [
            ("", "v1", "ServiceAccount", "odc-user", "/automountServiceAccountToken", json!(true)),
            ("", "v1", "LimitRange", "odc", "/spec/limits", json!([])),
            ("networking.k8s.io", "v1", "NetworkPolicy", "odc", "/spec/ingress", json!([{}])),
            ("policy", "v1", "PodDisruptionBudget", "odc", "/spec/selector", json!({})),
            (rbac, "v1", "RoleBinding", "odc-user", "/subjects", json!([])),
            (rbac, "v1", "RoleBinding", "odc-operator-tenant", "/subjects", json!([])),
        ] {
            let api = objects(admin, group, version, kind);
            let mut object = api.get(name).await?;
            let original = object.data.pointer(field).cloned();
            *object.data.pointer_mut(field).with_context(|| format!("{kind} has {field}"))? = wrong;
            api.replace(name, &PostParams::default(), &object).await?;
            wait_for(&api, name, "repaired", |object| {
                object.is_some_and(|object| object.data.pointer(field) == original.as_ref())
            })
            .await?;
        }
    }
    let budgets = objects(admin, "policy", "v1", "PodDisruptionBudget");
    let inverted = json!({"spec": {"minAvailable": null, "maxUnavailable": 1}});
    budgets.patch("odc", &PatchParams::default(), &Patch::Merge(&inverted)).await?;
    wait_for(&budgets, "odc", "repaired", |budget| {
        budget.is_some_and(|budget| budget.data["spec"]["minAvailable"] == i32::MAX)
    })
    .await?;
    for (name, labelled) in
        [("odc-user", true), ("odc-operator-tenant", true), ("odc-user", false), ("odc-operator-tenant", false)]
    {
        let bindings = objects(admin, rbac, "v1", "RoleBinding");
        let mut other = bindings.get(name).await?;
        other.data["roleRef"]["name"] = "view".into();
        other.metadata.labels = other.metadata.labels.filter(|_| labelled);
        (other.metadata.resource_version, other.metadata.uid) = (None, None);
        wait::until("replaced RoleBinding", TIMEOUT, async || {
            bindings.delete(name, &DeleteParams::default()).await?;
            bindings.create(&PostParams::default(), &other).await?;
            Ok(())
        })
        .await?;
        wait_for(&bindings, name, "repaired", |binding| {
            binding.is_some_and(|binding| binding.data["roleRef"]["name"] == name)
        })
        .await?;
    }
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let label = "pod-security.kubernetes.io/enforce";
    let privileged = json!({"metadata": {"labels": {label: "privileged"}}});
    namespaces.patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(&privileged)).await?;
    wait_for(&namespaces, NAMESPACE, "repaired", |namespace| {
        namespace.is_some_and(|namespace| namespace.labels().get(label).map(String::as_str) == Some("baseline"))
    })
    .await?;
    Ok(())
}

/// Runs servers of every kind through their lifecycle.
async fn exercise_servers(harness: &FaultHarness<'_>) -> anyhow::Result<()> {
    let fixture = harness.fixture;
    fixture.create_claim("home").await?;
    fixture.create("home", json!({"home": {"claim": "home"}, "team": "vision"})).await?;
    fixture.create("gpu", json!({"flavor": "gpu", "count": 2})).await?;
    fixture.create("short", json!({"lifetime": "1s"})).await?;
    fixture.create("gang", json!({"nodes": 2})).await?;
    for name in ["home", "gpu", "gang"] {
        fixture.wait_for_phase(name, Phase::Running).await?;
    }

    let stripped = json!({"metadata": {"ownerReferences": null, "labels": {"odc.dev/server": null}}});
    fixture.pods.patch("gpu-0", &PatchParams::default(), &Patch::Merge(&stripped)).await?;
    fixture
        .wait_for_pod("gpu-0", "adopted", |pod| pod.is_some_and(|pod| pod.metadata.owner_references.is_some()))
        .await?;
    let services: Api<Service> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
    let other = json!({"spec": {"selector": {"odc.dev/server": "other"}}});
    services.patch("gang", &PatchParams::default(), &Patch::Merge(&other)).await?;
    wait_for(&services, "gang", "repaired", |service| {
        let selector = service.and_then(|service| service.spec.as_ref()?.selector.as_ref());
        selector.is_some_and(|selector| selector["odc.dev/server"] == "gang")
    })
    .await?;

    // Twice, to update the series of the Events.
    for _ in 0..2 {
        fixture.patch_spec("home", json!({"desired": "Hibernated"})).await?;
        fixture.wait_for_phase("home", Phase::Hibernated).await?;
        fixture.patch_spec("home", json!({"desired": "Running"})).await?;
        fixture.wait_for_phase("home", Phase::Running).await?;
    }
    fixture.patch_spec("gpu", json!({"desired": "Ended"})).await?;
    // Finished servers are deleted after a while.
    for name in ["short", "gpu"] {
        fixture.wait_deleted(name).await?;
    }
    fixture.servers.delete("gang", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn operator_has_exactly_the_permissions_it_uses() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start_with(fixture, &[("ODC_TTL_AFTER_FINISHED", "1s")]).await?;
        exercise_operator(&harness).await.with_context(|| harness.operator.log_tail())?;
        // The audit log has a watch only after its end.
        harness.operator.kill().await?;
        exercise_queue_api(fixture).await?;
        let requests = requests(&harness).await?;
        let denied: Vec<_> = requests.iter().filter(|request| matches!(request.code, 401 | 403)).collect();
        assert!(denied.is_empty(), "{denied:#?}");
        let mut unused = unused_permissions(fixture, &requests).await?;
        unused.retain(|(_, _, permission)| !is_of_disks(permission));
        assert!(unused.is_empty(), "{unused:#?}");
        Ok(())
    })
    .await
}
