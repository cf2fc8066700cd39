//! Contents of the namespace of a user: created, repaired, and not written otherwise.

use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use odc_api::v1alpha1::DevServerUser;
use odc_api::v1alpha1::condition::{Reason, Type};
use odc_tests::operator::Operator;
use odc_tests::{manifests, wait};
use serde_json::{Value, json};

use super::super::fixture::{NAMESPACE, TIMEOUT, flavor, user, wait_for, with_fixture};
use super::{NAMESPACE_OBJECTS, RBAC, managed_fields, objects, reason_and_message, wait_user_reason};

#[tokio::test]
async fn new_user_gets_a_namespace_with_limits_and_permissions() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let mut bob = user("bob");
        bob["spec"]["quota"] = json!({"servers": 3, "devices": 2, "cpu": "4", "memory": "8Gi", "storage": "1Ti"});
        manifests::apply(client, &bob).await?;
        fixture.wait_user_ready("bob").await?;

        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = namespaces.get("dev-bob").await?;
        for (label, value) in [
            ("odc.dev/owner", "bob"),
            ("app.kubernetes.io/managed-by", "odc-operator"),
            ("app.kubernetes.io/part-of", "odc"),
            ("pod-security.kubernetes.io/enforce", "baseline"),
            ("pod-security.kubernetes.io/enforce-version", "latest"),
            ("pod-security.kubernetes.io/audit", "restricted"),
        ] {
            assert_eq!(namespace.labels().get(label).map(String::as_str), Some(value), "{label}");
        }
        assert_eq!(namespace.metadata.owner_references, None, "the namespace must outlive its user");

        let account = json!({"kind": "ServiceAccount", "name": "odc-user", "namespace": "dev-bob"});
        let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "odc:bob"});
        let operator = json!({"kind": "ServiceAccount", "name": "odc-operator", "namespace": "odc-system"});
        let same_namespace = json!({"podSelector": {}});
        let system = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "odc-system"}}});
        for (kind, name, field, expected) in [
            ("ServiceAccount", "odc-user", "/automountServiceAccountToken", json!(false)),
            ("RoleBinding", "odc-user", "/subjects", json!([account, user])),
            ("RoleBinding", "odc-user", "/roleRef/name", json!("odc-user")),
            ("RoleBinding", "odc-operator-tenant", "/subjects", json!([operator])),
            ("RoleBinding", "odc-operator-tenant", "/roleRef/name", json!("odc-operator-tenant")),
            (
                "ResourceQuota",
                "odc",
                "/spec/hard",
                json!({"requests.cpu": "4", "requests.memory": "8Gi", "requests.storage": "3Ti", "requests.nvidia.com/gpu": "2", "count/disks.odc.dev": "50", "count/diskoperations.odc.dev": "200"}),
            ),
            (
                "LimitRange",
                "odc",
                "/spec/limits",
                json!([{"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "128Mi"}}]),
            ),
            ("NetworkPolicy", "odc", "/spec/podSelector", json!({})),
            ("NetworkPolicy", "odc", "/spec/policyTypes", json!(["Ingress", "Egress"])),
            (
                "NetworkPolicy",
                "odc",
                "/spec/ingress",
                json!([{"from": [same_namespace]}, {"from": [system], "ports": [{"port": 2222, "protocol": "TCP"}]}]),
            ),
            ("NetworkPolicy", "odc", "/spec/egress/2/to/0/ipBlock/except/0", json!("169.254.0.0/16")),
            ("PodDisruptionBudget", "odc", "/spec/minAvailable", json!(i32::MAX)),
            (
                "PodDisruptionBudget",
                "odc",
                "/spec/selector",
                json!({"matchExpressions": [{"key": "odc.dev/server", "operator": "Exists"}]}),
            ),
        ] {
            let version = NAMESPACE_OBJECTS.iter().find(|object| object.1 == kind).map_or("v1", |object| object.0);
            let object = objects(client, version, kind, Some("dev-bob")).get(name).await?;
            assert_eq!(object.data.pointer(field), Some(&expected), "{kind} {name} {field}");
            assert_eq!(object.labels().get("odc.dev/owner").map(String::as_str), Some("bob"), "{kind} {name}");
        }

        let users: Api<DevServerUser> = Api::all(client.clone());
        let status = users.get("bob").await?.status.unwrap_or_default();
        assert_eq!(status.namespace.as_ref().map(odc_api::text::Text::as_str), Some("dev-bob"));
        let expected = (Reason::Reconciled.to_string(), "Namespace dev-bob is ready.".to_owned());
        assert_eq!(reason_and_message(&status.conditions, Type::Ready), expected);
        wait::until("event of the user", TIMEOUT, async || {
            let events: Api<Event> = Api::namespaced(client.clone(), "default");
            let selector = ListParams::default().fields("involvedObject.kind=DevServerUser,involvedObject.name=bob");
            let notes: Vec<String> = events.list(&selector).await?.into_iter().filter_map(|event| event.message).collect();
            anyhow::ensure!(notes == ["Prepared namespace dev-bob"], "{notes:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn namespace_limits_are_enforced() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let quota = json!({"spec": {"quota": {"memory": "1Gi"}}});
        let users: Api<DevServerUser> = Api::all(fixture.plane.client.clone());
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota)).await?;
        fixture.create_running("box", json!({})).await?;

        // Without retries: a rejected eviction has a Retry-After header, and the client would follow it forever.
        let kubeconfig = kube::config::Kubeconfig::read_from(&fixture.plane.kubeconfig)?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, NAMESPACE);
        // A controller computes the budget asynchronously.
        wait::until("rejected eviction", TIMEOUT, async || {
            let params = EvictParams {
                post_options: PostParams { dry_run: true, ..PostParams::default() },
                ..EvictParams::default()
            };
            match pods.evict("box-0", &params).await {
                Err(kube::Error::Api(status)) if status.code == 429 && status.message.contains("disruption budget") => {
                    Ok(())
                }
                other => anyhow::bail!("{other:?}"),
            }
        })
        .await?;
        let pod = |name: &str, container: Value| {
            let container = json!({"name": "main", "image": "any", "resources": container["resources"]});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"containers": [container]}}))
        };
        let large: Pod = pod("large", json!({"resources": {"requests": {"memory": "2Gi"}}}))?;
        let mut privileged: Pod = pod("privileged", json!({}))?;
        if let Some(spec) = privileged.spec.as_mut() {
            spec.host_network = Some(true);
        }
        for (pod, expected) in
            [(large, "exceeded quota: odc"), (privileged, "violates PodSecurity \"baseline:latest\"")]
        {
            // The quota admission plugin reads the quota asynchronously.
            wait::until("rejected pod", TIMEOUT, async || {
                let dry_run = PostParams { dry_run: true, ..PostParams::default() };
                let error =
                    fixture.pods.create(&dry_run, &pod).await.err().map(|error| error.to_string()).unwrap_or_default();
                anyhow::ensure!(error.contains(expected), "expected {expected:?}: {error}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// Returns the number of reconciles of users.
async fn reconcile_count(operator: &Operator) -> anyhow::Result<u64> {
    let metrics = operator.get("/metrics").await?;
    let line =
        metrics.lines().find_map(|line| line.strip_prefix("odc_controller_reconcile_total{controller=\"user\"} "));
    Ok(line.map_or(Ok(0), str::parse)?)
}

#[tokio::test]
async fn edited_and_deleted_objects_are_repaired_and_then_not_written() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let quota = json!({"spec": {"quota": {"devices": 4, "cpu": "64"}}});
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota)).await?;
        wait_for(&objects(client, "v1", "ResourceQuota", Some(NAMESPACE)), "odc", "created", |quota| quota.is_some())
            .await?;

        let other_user = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]);
        for (kind, name, edit) in [
            (
                "Namespace",
                NAMESPACE,
                json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
            ),
            ("Namespace", NAMESPACE, json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}})),
            ("ServiceAccount", "odc-user", json!({"automountServiceAccountToken": true})),
            ("RoleBinding", "odc-user", json!({"subjects": other_user})),
            ("RoleBinding", "odc-operator-tenant", json!({"subjects": null})),
            ("ResourceQuota", "odc", json!({"spec": {"hard": {"requests.cpu": "9999"}}})),
            ("ResourceQuota", "odc", json!({"spec": {"hard": {"pods": "0"}}})),
            ("LimitRange", "odc", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1m"}}]}})),
            ("NetworkPolicy", "odc", json!({"spec": {"ingress": [{}]}})),
            ("PodDisruptionBudget", "odc", json!({"spec": {"minAvailable": null, "maxUnavailable": 1}})),
            ("PodDisruptionBudget", "odc", json!({"spec": {"selector": {"matchLabels": {"none": "such"}}}})),
        ] {
            let version = NAMESPACE_OBJECTS.iter().find(|object| object.1 == kind).map_or("v1", |object| object.0);
            let api = objects(client, version, kind, (kind != "Namespace").then_some(NAMESPACE));
            check_repair(&api, name, &edit).await?;
        }
        for (version, kind, name) in NAMESPACE_OBJECTS {
            let api = objects(client, version, kind, Some(NAMESPACE));
            // Without labels the object is outside the label-selected watch.
            check_repair(&api, name, &json!({"metadata": {"labels": null}})).await?;
            let before = api.get(name).await?;
            api.delete(name, &DeleteParams::default()).await?;
            wait_for(&api, name, "recreated", |object| {
                object.is_some_and(|object| {
                    object.uid() != before.uid() && managed_fields(object) == managed_fields(&before)
                })
            })
            .await?;
        }
        // The role of a binding is immutable, but a binding can be replaced, also by one outside the label-selected watch.
        for (name, labelled) in
            [("odc-user", true), ("odc-operator-tenant", true), ("odc-user", false), ("odc-operator-tenant", false)]
        {
            let api = objects(client, RBAC, "RoleBinding", Some(NAMESPACE));
            let original = api.get(name).await?;
            let mut wrong = original.clone();
            wrong.data["roleRef"]["name"] = "view".into();
            wrong.metadata.labels = wrong.metadata.labels.filter(|_| labelled);
            (wrong.metadata.resource_version, wrong.metadata.uid) = (None, None);
            // The operator recreates a deleted binding, so the creation may conflict.
            wait::until("replaced RoleBinding", TIMEOUT, async || {
                api.delete(name, &DeleteParams::default()).await?;
                api.create(&PostParams::default(), &wrong).await?;
                Ok(())
            })
            .await?;
            wait_for(&api, name, "repaired", |object| {
                object.is_some_and(|object| managed_fields(object) == managed_fields(&original))
            })
            .await?;
        }
        wait_user_reason(fixture, "ada", Reason::Reconciled).await?;

        // A change of a foreign field causes a reconcile without writes.
        let mark = fixture.wait_idle().await?;
        let mut count = reconcile_count(&operator).await?;
        let note = json!({"metadata": {"annotations": {"example.org/note": "changed"}}});
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&note)).await?;
        for (version, kind, name) in NAMESPACE_OBJECTS {
            let api = objects(client, version, kind, Some(NAMESPACE));
            api.patch(name, &PatchParams::default(), &Patch::Merge(&note)).await?;
            count = wait::until("another reconcile", TIMEOUT, async || {
                let current = reconcile_count(&operator).await?;
                anyhow::ensure!(current > count, "no reconcile after a change of {kind} {name}");
                Ok(current)
            })
            .await?;
        }
        fixture.wait_idle().await?;
        assert_eq!(fixture.writes_since(mark)?, Vec::<String>::new());
        Ok(())
    })
    .await
}

/// Edits an object and waits until the operator has restored it.
async fn check_repair(api: &Api<DynamicObject>, name: &str, edit: &Value) -> anyhow::Result<()> {
    let before = managed_fields(&api.get(name).await?);
    let edited = api.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    assert_ne!(managed_fields(&edited), before, "{edit} changes nothing");
    wait_for(api, name, &format!("repaired after {edit}"), |object| {
        object.is_some_and(|object| managed_fields(object) == before)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn terminating_objects_and_namespaces_are_recreated() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        // A foreign finalizer delays the deletion of an object: the user reports it.
        let limits = objects(client, "v1", "LimitRange", Some(NAMESPACE));
        let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        limits.patch("odc", &PatchParams::default(), &Patch::Merge(&hold(json!(["example.org/hold"])))).await?;
        limits.delete("odc", &DeleteParams::default()).await?;
        let message = wait_user_reason(fixture, "ada", Reason::Incomplete).await?;
        assert_eq!(message, "LimitRange odc in namespace dev-ada is being deleted. It will be recreated afterwards.");
        limits.patch("odc", &PatchParams::default(), &Patch::Merge(&hold(json!(null)))).await?;
        wait_user_reason(fixture, "ada", Reason::Reconciled).await?;

        let namespaces: Api<Namespace> = Api::all(client.clone());
        let before = namespaces.get(NAMESPACE).await?;
        namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
        wait_for(&namespaces, NAMESPACE, "recreated", |current| {
            current.is_some_and(|current| current.uid() != before.uid())
        })
        .await?;
        fixture.wait_user_ready("ada").await?;
        for (version, kind, name) in NAMESPACE_OBJECTS.into_iter().filter(|object| object.1 != "ResourceQuota") {
            let api = objects(client, version, kind, Some(NAMESPACE));
            wait_for(&api, name, "created", |object| object.is_some()).await?;
        }
        fixture.create_running("box", json!({})).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn resource_quota_follows_the_user_and_the_flavors() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let quotas = objects(client, "v1", "ResourceQuota", Some(NAMESPACE));
        // Always limited.
        let counts = json!({"count/disks.odc.dev": "50", "count/diskoperations.odc.dev": "200"});
        let wait_limits = |mut hard: Value| {
            let quotas = quotas.clone();
            if let (Some(hard), Some(counts)) = (hard.as_object_mut(), counts.as_object()) {
                hard.extend(counts.clone());
            }
            async move {
                wait_for(&quotas, "odc", &hard.to_string(), |quota| {
                    quota.is_some_and(|quota| quota.data["spec"]["hard"] == hard)
                })
                .await
            }
        };
        let set_quota = async |quota: Value| {
            let patch = json!({"spec": {"quota": quota}});
            users.patch("ada", &PatchParams::default(), &Patch::Merge(&patch)).await
        };
        wait_limits(json!({})).await?;
        set_quota(json!({"cpu": "2", "devices": 1})).await?;
        wait_limits(json!({"requests.cpu": "2", "requests.nvidia.com/gpu": "1"})).await?;
        set_quota(json!({"cpu": "2500m"})).await?;
        wait_limits(json!({"requests.cpu": "2500m", "requests.nvidia.com/gpu": "1"})).await?;
        // A removed limit is deleted from the ResourceQuota.
        set_quota(json!({"cpu": null})).await?;
        wait_limits(json!({"requests.nvidia.com/gpu": "1"})).await?;
        let mut other = flavor("gpu", false);
        other["metadata"]["name"] = "mig".into();
        other["spec"]["device"]["resource"] = "nvidia.com/mig-1g.10gb".into();
        manifests::apply(client, &other).await?;
        wait_limits(json!({"requests.nvidia.com/gpu": "1", "requests.nvidia.com/mig-1g.10gb": "1"})).await?;
        set_quota(json!({"devices": null})).await?;
        wait_limits(json!({})).await.map(drop)
    })
    .await
}
