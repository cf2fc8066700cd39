//! A person's place in the cluster: made, kept as it should be, and taken away without ever taking data.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::KubeConfigOptions;
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use odc_api::v1alpha1::condition::{self, Condition, Reason, Type};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Phase, Team};
use odc_tests::{odc, wait};
use serde_json::{Value, json};

use super::stage::{LIMIT, NAMESPACE, Stage, server, until, until_none, user, with_stage};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// What is in every user's namespace: version, kind, name.
const PARTS: [(&str, &str, &str); 7] = [
    (RBAC, "RoleBinding", "odc-operator-tenant"),
    ("v1", "LimitRange", "odc"),
    ("v1", "ResourceQuota", "odc"),
    ("networking.k8s.io/v1", "NetworkPolicy", "odc"),
    ("policy/v1", "PodDisruptionBudget", "odc"),
    ("v1", "ServiceAccount", "odc-user"),
    (RBAC, "RoleBinding", "odc-user"),
];

/// Objects of any kind, in a namespace or in none.
fn objects(client: &Client, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// What an object says, without what the API server and controllers add.
fn essence(object: &DynamicObject) -> Value {
    let mut all = object.data.clone();
    if let Some(fields) = all.as_object_mut() {
        fields.remove("status");
        // Kept by a controller, and of an older kind of token.
        fields.remove("secrets");
    }
    json!({"labels": object.metadata.labels, "owners": object.metadata.owner_references, "rest": all})
}

fn is_ready(conditions: Option<&Vec<Condition>>) -> bool {
    conditions.is_some_and(|conditions| condition::holds(conditions, Type::Ready))
}

/// What the condition says: its reason and its message.
fn told(conditions: &[Condition], kind: Type) -> (String, String) {
    condition::find(conditions, kind)
        .map(|told| (told.reason.to_string(), told.message.to_string()))
        .unwrap_or_default()
}

fn has_reason(conditions: Option<&Vec<Condition>>, kind: Type, reason: Reason) -> bool {
    conditions.is_some_and(|conditions| told(conditions, kind).0 == reason.as_str())
}

/// Waits until a user's condition Ready has this reason; gives its message.
async fn until_user_is(stage: &Stage<'_>, name: &str, reason: Reason) -> anyhow::Result<String> {
    let users: Api<DevServerUser> = Api::all(stage.plane.client.clone());
    let is = |user: Option<&DevServerUser>| {
        let status = user.and_then(|user| user.status.as_ref());
        has_reason(status.map(|status| &status.conditions), Type::Ready, reason)
    };
    let user = until(&users, name, reason.as_str(), is).await?;
    let status = user.and_then(|user| user.status).unwrap_or_default();
    Ok(told(&status.conditions, Type::Ready).1)
}

/// Waits until a server's condition Accepted has this reason; gives its message.
async fn until_refused(servers: &Api<DevServer>, name: &str, reason: Reason) -> anyhow::Result<String> {
    let is = |server: Option<&DevServer>| {
        let status = server.and_then(|server| server.status.as_ref());
        has_reason(status.map(|status| &status.conditions), Type::Accepted, reason)
    };
    let server = until(servers, name, reason.as_str(), is).await?;
    let status = server.and_then(|server| server.status).unwrap_or_default();
    Ok(told(&status.conditions, Type::Accepted).1)
}

#[tokio::test]
async fn a_new_user_gets_a_place_with_walls_and_rights() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let mut bob = user("bob");
        bob["spec"]["quota"] = json!({"servers": 3, "devices": 2, "cpu": "4", "memory": "8Gi", "storage": "1Ti"});
        odc::apply(client, &bob).await?;
        stage.user_ready("bob").await?;

        let namespaces: Api<Namespace> = Api::all(client.clone());
        let place = namespaces.get("dev-bob").await?;
        for (label, value) in [
            ("odc.dev/owner", "bob"),
            ("app.kubernetes.io/managed-by", "odc-operator"),
            ("app.kubernetes.io/part-of", "odc"),
            ("pod-security.kubernetes.io/enforce", "baseline"),
            ("pod-security.kubernetes.io/enforce-version", "latest"),
            ("pod-security.kubernetes.io/audit", "restricted"),
        ] {
            assert_eq!(place.labels().get(label).map(String::as_str), Some(value), "{label}");
        }
        assert_eq!(place.metadata.owner_references, None, "data outlives its user");

        let account = json!({"kind": "ServiceAccount", "name": "odc-user", "namespace": "dev-bob"});
        let person = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "odc:bob"});
        let operator = json!({"kind": "ServiceAccount", "name": "odc-operator", "namespace": "odc-system"});
        let all = json!({"podSelector": {}});
        let system = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "odc-system"}}});
        for (kind, name, field, expect) in [
            ("ServiceAccount", "odc-user", "/automountServiceAccountToken", json!(false)),
            ("RoleBinding", "odc-user", "/subjects", json!([account, person])),
            ("RoleBinding", "odc-user", "/roleRef/name", json!("odc-user")),
            ("RoleBinding", "odc-operator-tenant", "/subjects", json!([operator])),
            ("RoleBinding", "odc-operator-tenant", "/roleRef/name", json!("odc-operator-tenant")),
            (
                "ResourceQuota",
                "odc",
                "/spec/hard",
                json!({"requests.cpu": "4", "requests.memory": "8Gi", "requests.storage": "1Ti", "requests.nvidia.com/gpu": "2"}),
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
                json!([{"from": [all]}, {"from": [system], "ports": [{"port": 2222, "protocol": "TCP"}]}]),
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
            let version = PARTS.iter().find(|part| part.1 == kind).map_or("v1", |part| part.0);
            let object = objects(client, version, kind, Some("dev-bob")).get(name).await?;
            assert_eq!(object.data.pointer(field), Some(&expect), "{kind} {name} {field}");
            assert_eq!(object.labels().get("odc.dev/owner").map(String::as_str), Some("bob"), "{kind} {name}");
        }

        let users: Api<DevServerUser> = Api::all(client.clone());
        let status = users.get("bob").await?.status.unwrap_or_default();
        assert_eq!(status.namespace.as_ref().map(odc_api::text::Text::as_str), Some("dev-bob"));
        let said = (Reason::Reconciled.to_string(), "Namespace dev-bob is ready.".to_owned());
        assert_eq!(told(&status.conditions, Type::Ready), said);
        wait::until("the event", LIMIT, async || {
            let events: Api<Event> = Api::namespaced(client.clone(), "default");
            let about = ListParams::default().fields("involvedObject.kind=DevServerUser,involvedObject.name=bob");
            let notes: Vec<String> = events.list(&about).await?.into_iter().filter_map(|event| event.message).collect();
            anyhow::ensure!(notes == ["Prepared namespace dev-bob"], "{notes:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn the_walls_of_a_place_really_hold() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let quota = json!({"spec": {"quota": {"memory": "1Gi"}}});
        let users: Api<DevServerUser> = Api::all(stage.plane.client.clone());
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota)).await?;
        stage.create("box", json!({})).await?;
        stage.until_phase("box", Phase::Running).await?;

        // A refused eviction says when to come again, and a client that does so would wait for ever.
        let kubeconfig = kube::config::Kubeconfig::read_from(&stage.plane.kubeconfig)?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, NAMESPACE);
        // The budget is computed by a controller, which takes its time.
        wait::until("an eviction is refused", LIMIT, async || {
            let how = EvictParams {
                post_options: PostParams { dry_run: true, ..PostParams::default() },
                ..EvictParams::default()
            };
            match pods.evict("box-0", &how).await {
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
        let much: Pod = pod("much", json!({"resources": {"requests": {"memory": "2Gi"}}}))?;
        let mut privileged: Pod = pod("privileged", json!({}))?;
        if let Some(spec) = privileged.spec.as_mut() {
            spec.host_network = Some(true);
        }
        for (pod, says) in [(much, "exceeded quota: odc"), (privileged, "violates PodSecurity \"baseline:latest\"")] {
            // The API server learns of a new quota a moment after it stored it.
            wait::until("a pod is refused", LIMIT, async || {
                let how = PostParams { dry_run: true, ..PostParams::default() };
                let said = stage.pods.create(&how, &pod).await.err().map(|error| error.to_string()).unwrap_or_default();
                anyhow::ensure!(said.contains(says), "{says}: {said}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// How often the operator looked at a user.
async fn looks(operator: &odc::Operator) -> anyhow::Result<u64> {
    let metrics = operator.get("/metrics").await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("odc_reconciles_total{controller=\"user\"} "));
    Ok(line.map_or(Ok(0), str::parse)?)
}

#[tokio::test]
async fn what_is_edited_or_deleted_is_put_right_and_then_left_alone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let operator = stage.operator().await?;
        let client = &stage.plane.client;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let quota = json!({"spec": {"quota": {"devices": 4, "cpu": "64"}}});
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota)).await?;
        until(&objects(client, "v1", "ResourceQuota", Some(NAMESPACE)), "odc", "there", |quota| quota.is_some())
            .await?;

        let stranger = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]);
        for (kind, name, edit) in [
            (
                "Namespace",
                NAMESPACE,
                json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
            ),
            ("Namespace", NAMESPACE, json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}})),
            ("ServiceAccount", "odc-user", json!({"automountServiceAccountToken": true})),
            ("RoleBinding", "odc-user", json!({"subjects": stranger})),
            ("RoleBinding", "odc-operator-tenant", json!({"subjects": null})),
            ("ResourceQuota", "odc", json!({"spec": {"hard": {"requests.cpu": "9999"}}})),
            ("ResourceQuota", "odc", json!({"spec": {"hard": {"pods": "0"}}})),
            ("LimitRange", "odc", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1m"}}]}})),
            ("NetworkPolicy", "odc", json!({"spec": {"ingress": [{}]}})),
            ("PodDisruptionBudget", "odc", json!({"spec": {"minAvailable": null, "maxUnavailable": 1}})),
            ("PodDisruptionBudget", "odc", json!({"spec": {"selector": {"matchLabels": {"none": "such"}}}})),
        ] {
            let version = PARTS.iter().find(|part| part.1 == kind).map_or("v1", |part| part.0);
            let api = objects(client, version, kind, (kind != "Namespace").then_some(NAMESPACE));
            check_repair(&api, name, &edit).await?;
        }
        for (version, kind, name) in PARTS {
            let api = objects(client, version, kind, Some(NAMESPACE));
            // Out of sight of a watch by labels.
            check_repair(&api, name, &json!({"metadata": {"labels": null}})).await?;
            let before = api.get(name).await?;
            api.delete(name, &DeleteParams::default()).await?;
            until(&api, name, "back", |object| {
                object.is_some_and(|object| object.uid() != before.uid() && essence(object) == essence(&before))
            })
            .await?;
        }
        // The role of a binding cannot be edited, but a binding can be replaced, also by one that no watch by labels shows.
        for (name, labelled) in
            [("odc-user", true), ("odc-operator-tenant", true), ("odc-user", false), ("odc-operator-tenant", false)]
        {
            let api = objects(client, RBAC, "RoleBinding", Some(NAMESPACE));
            let right = api.get(name).await?;
            let mut wrong = right.clone();
            wrong.data["roleRef"]["name"] = "view".into();
            wrong.metadata.labels = wrong.metadata.labels.filter(|_| labelled);
            (wrong.metadata.resource_version, wrong.metadata.uid) = (None, None);
            // The operator makes it anew as soon as it is gone; whoever is faster has the name.
            wait::until("the binding is replaced", LIMIT, async || {
                api.delete(name, &DeleteParams::default()).await?;
                api.create(&PostParams::default(), &wrong).await?;
                Ok(())
            })
            .await?;
            until(&api, name, "right again", |object| object.is_some_and(|object| essence(object) == essence(&right)))
                .await?;
        }
        until_user_is(stage, "ada", Reason::Reconciled).await?;

        // It looks again when something changed that is not its business, and writes nothing.
        let mark = stage.quiet().await?;
        let mut seen = looks(&operator).await?;
        let note = json!({"metadata": {"annotations": {"example.org/note": "seen"}}});
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&note)).await?;
        for (version, kind, name) in PARTS {
            let api = objects(client, version, kind, Some(NAMESPACE));
            api.patch(name, &PatchParams::default(), &Patch::Merge(&note)).await?;
            seen = wait::until("another look", LIMIT, async || {
                let now = looks(&operator).await?;
                anyhow::ensure!(now > seen, "{kind} {name} was not looked at");
                Ok(now)
            })
            .await?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(stage.written_since(mark)?, Vec::<String>::new());
        Ok(())
    })
    .await
}

/// Edits an object and waits until it says again what it said.
async fn check_repair(api: &Api<DynamicObject>, name: &str, edit: &Value) -> anyhow::Result<()> {
    let before = essence(&api.get(name).await?);
    let edited = api.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    assert_ne!(essence(&edited), before, "{edit} changes nothing");
    until(api, name, &format!("repaired after {edit}"), |object| {
        object.is_some_and(|object| essence(object) == before)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_place_that_is_being_deleted_is_made_anew_when_it_is_gone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        // Somebody else's finalizer holds a part back: it is said, and nothing is written over it.
        let limits = objects(client, "v1", "LimitRange", Some(NAMESPACE));
        let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        limits.patch("odc", &PatchParams::default(), &Patch::Merge(&hold(json!(["example.org/hold"])))).await?;
        limits.delete("odc", &DeleteParams::default()).await?;
        let said = until_user_is(stage, "ada", Reason::Incomplete).await?;
        assert_eq!(said, "LimitRange odc in dev-ada is being deleted; a new one follows when it is gone.");
        limits.patch("odc", &PatchParams::default(), &Patch::Merge(&hold(json!(null)))).await?;
        until_user_is(stage, "ada", Reason::Reconciled).await?;

        let namespaces: Api<Namespace> = Api::all(client.clone());
        let before = namespaces.get(NAMESPACE).await?;
        namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
        until(&namespaces, NAMESPACE, "new", |now| now.is_some_and(|now| now.uid() != before.uid())).await?;
        stage.user_ready("ada").await?;
        for (version, kind, name) in PARTS.into_iter().filter(|part| part.1 != "ResourceQuota") {
            let api = objects(client, version, kind, Some(NAMESPACE));
            until(&api, name, "there", |object| object.is_some()).await?;
        }
        stage.create("box", json!({})).await?;
        stage.until_phase("box", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_quota_follows_its_user_and_the_flavors() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let quotas = objects(client, "v1", "ResourceQuota", Some(NAMESPACE));
        assert!(quotas.get_opt("odc").await?.is_none(), "no limit is no quota");
        let limits = |hard: Value| {
            let quotas = quotas.clone();
            async move {
                until(&quotas, "odc", &hard.to_string(), |quota| {
                    quota.is_some_and(|quota| quota.data["spec"]["hard"] == hard)
                })
                .await
            }
        };
        let ask = async |quota: Value| {
            let patch = json!({"spec": {"quota": quota}});
            users.patch("ada", &PatchParams::default(), &Patch::Merge(&patch)).await
        };
        ask(json!({"cpu": "2", "devices": 1})).await?;
        limits(json!({"requests.cpu": "2", "requests.nvidia.com/gpu": "1"})).await?;
        ask(json!({"cpu": "2500m"})).await?;
        limits(json!({"requests.cpu": "2500m", "requests.nvidia.com/gpu": "1"})).await?;
        // A limit that is taken away is gone, and does not stay because nobody writes it any more.
        ask(json!({"cpu": null})).await?;
        limits(json!({"requests.nvidia.com/gpu": "1"})).await?;
        let mut other = super::stage::flavor("gpu", false);
        other["metadata"]["name"] = "mig".into();
        other["spec"]["device"]["resource"] = "nvidia.com/mig-1g.10gb".into();
        odc::apply(client, &other).await?;
        limits(json!({"requests.nvidia.com/gpu": "1", "requests.nvidia.com/mig-1g.10gb": "1"})).await?;
        ask(json!({"devices": null})).await?;
        until_none(&quotas, "odc").await
    })
    .await
}

#[tokio::test]
async fn a_namespace_of_somebody_else_is_left_alone() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let theirs = json!({"metadata": {"name": "dev-eve", "labels": {"team": "others"}}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "dev-eve");
        let map = serde_json::from_value(json!({"metadata": {"name": "theirs"}}))?;
        maps.create(&PostParams::default(), &map).await?;
        let before = namespaces.get("dev-eve").await?;
        let mark = stage.quiet().await?;

        odc::apply(client, &user("eve")).await?;
        let said = until_user_is(stage, "eve", Reason::NamespaceTaken).await?;
        let advice = "kubectl label --overwrite namespace dev-eve odc.dev/owner=eve";
        assert!(said.contains(advice), "{said}");
        // A server there is nobody's, though there is a user of that name.
        let servers: Api<DevServer> = Api::namespaced(client.clone(), "dev-eve");
        let mut stray = server("stray", &json!({}))?;
        stray.metadata.namespace = Some("dev-eve".into());
        servers.create(&PostParams::default(), &stray).await?;
        until_refused(&servers, "stray", Reason::NoOwner).await?;

        // And when its user goes, it stays.
        let users: Api<DevServerUser> = Api::all(client.clone());
        users.delete("eve", &DeleteParams::default()).await?;
        until_none(&users, "eve").await?;
        stage.quiet().await?;
        let there: Vec<String> =
            stage.written_since(mark)?.into_iter().filter(|line| line.contains("dev-eve")).collect();
        assert!(there.iter().all(|line| line.starts_with("patch devservers/status")), "{there:#?}");
        assert_eq!(namespaces.get("dev-eve").await?.resource_version(), before.resource_version());
        assert!(maps.get_opt("theirs").await?.is_some());
        assert!(servers.get_opt("stray").await?.is_some());

        // Handed over as the message said, it becomes theirs, with what is in it.
        odc::apply(client, &user("eve")).await?;
        until_user_is(stage, "eve", Reason::NamespaceTaken).await?;
        let over = json!({"metadata": {"labels": {"odc.dev/owner": "eve"}}});
        namespaces.patch("dev-eve", &PatchParams::default(), &Patch::Merge(&over)).await?;
        stage.user_ready("eve").await?;
        let running = |server: Option<&DevServer>| {
            server.and_then(|server| server.status.as_ref()?.phase) == Some(Phase::Running)
        };
        until(&servers, "stray", "running", running).await?;
        assert!(maps.get_opt("theirs").await?.is_some());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_user_who_goes_loses_rights_and_servers_but_no_data() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
        let bindings = objects(client, RBAC, "RoleBinding", Some(NAMESPACE));
        let accounts = objects(client, "v1", "ServiceAccount", Some(NAMESPACE));
        stage.claim("home").await?;
        stage.create("box", json!({"home": {"claim": "home"}})).await?;
        stage.create("gang", json!({"flavor": "gpu", "nodes": 2})).await?;
        for name in ["box", "gang"] {
            stage.until_phase(name, Phase::Running).await?;
        }
        let place = namespaces.get(NAMESPACE).await?;

        users.delete("ada", &DeleteParams::default()).await?;
        until_none(&bindings, "odc-user").await?;
        until_none(&accounts, "odc-user").await?;
        for name in ["box", "gang"] {
            stage.until_gone(name).await?;
        }
        for pod in ["box-0", "gang-0", "gang-1"] {
            stage.until_pod(pod, "gone", |pod| pod.is_none()).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        for secret in ["box-keys", "gang-keys"] {
            until_none(&secrets, secret).await?;
        }
        // Longer than it takes until a namespace that could not be cleared is tried again.
        tokio::time::sleep(Duration::from_secs(7)).await;
        let kept = namespaces.get(NAMESPACE).await?;
        assert_eq!((kept.uid(), &kept.metadata.deletion_timestamp), (place.uid(), &None));
        let claim = claims.get("home").await?;
        assert_eq!(claim.status.and_then(|status| status.phase).as_deref(), Some("Bound"));
        assert_eq!(claim.metadata.deletion_timestamp, None);

        // Whoever comes back finds it.
        odc::apply(client, &user("ada")).await?;
        stage.user_ready("ada").await?;
        until(&bindings, "odc-user", "back", |binding| binding.is_some()).await?;
        stage.create("again", json!({"home": {"claim": "home"}})).await?;
        stage.until_phase("again", Phase::Running).await?;
        assert_eq!(namespaces.get(NAMESPACE).await?.uid(), place.uid());

        users.delete("ada", &DeleteParams::default()).await?;
        stage.until_gone("again").await?;
        claims.delete("home", &DeleteParams::default()).await?;
        until_none(&namespaces, NAMESPACE).await?;
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        assert!(volumes.get_opt("volume-home").await?.is_some(), "a volume that is to be retained is");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_only_an_administrator_can_mend_is_told() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let flavors: Api<DevServerFlavor> = Api::all(client.clone());
        let ready = |flavor: Option<&DevServerFlavor>| {
            is_ready(flavor.and_then(|flavor| flavor.status.as_ref()).map(|status| &status.conditions))
        };
        for name in ["cpu", "gpu"] {
            until(&flavors, name, "ready", ready).await?;
        }

        // Two flavors that are both the default: servers that name none wait, others do not.
        let default = |is: bool| json!({"spec": {"default": is}});
        flavors.patch("gpu", &PatchParams::default(), &Patch::Merge(&default(true))).await?;
        for name in ["cpu", "gpu"] {
            let several = |flavor: Option<&DevServerFlavor>| {
                let status = flavor.and_then(|flavor| flavor.status.as_ref());
                has_reason(status.map(|status| &status.conditions), Type::Ready, Reason::SeveralDefaultFlavors)
            };
            let flavor = until(&flavors, name, "told", several).await?;
            let status = flavor.and_then(|flavor| flavor.status).unwrap_or_default();
            let said = told(&status.conditions, Type::Ready).1;
            assert!(said.starts_with("2 flavors say default: true") && said.contains("set it to false"), "{said}");
        }
        stage.create("any", json!({})).await?;
        stage.create("named", json!({"flavor": "cpu"})).await?;
        let said = until_refused(&stage.servers, "any", Reason::SeveralDefaultFlavors).await?;
        assert!(said.contains("Flavors cpu, gpu all claim to be the default: name one in spec.flavor"), "{said}");
        stage.until_phase("named", Phase::Running).await?;
        flavors.patch("gpu", &PatchParams::default(), &Patch::Merge(&default(false))).await?;
        stage.until_phase("any", Phase::Running).await?;
        for name in ["cpu", "gpu"] {
            until(&flavors, name, "ready again", ready).await?;
        }

        // A team with a member nobody knows.
        let teams: Api<Team> = Api::all(client.clone());
        let vision = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
            "spec": {"members": ["ada", "zoe"]}});
        odc::apply(client, &vision).await?;
        let unknown = |team: Option<&Team>| {
            let status = team.and_then(|team| team.status.as_ref());
            has_reason(status.map(|status| &status.conditions), Type::Ready, Reason::UnknownMember)
        };
        let team = until(&teams, "vision", "told", unknown).await?;
        let said = told(&team.and_then(|team| team.status).unwrap_or_default().conditions, Type::Ready).1;
        assert!(said.starts_with("No users are called zoe: create a DevServerUser of that name"), "{said}");
        odc::apply(client, &user("zoe")).await?;
        let ready =
            |team: Option<&Team>| is_ready(team.and_then(|team| team.status.as_ref()).map(|status| &status.conditions));
        until(&teams, "vision", "ready", ready).await?;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let member = |user: Option<&DevServerUser>| {
            let teams = user.and_then(|user| user.status.as_ref()).map(|status| status.teams.as_slice());
            teams.unwrap_or_default().iter().any(|team| team.as_str() == "vision")
        };
        for name in ["ada", "zoe"] {
            until(&users, name, "told of its team", member).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_in_nobodys_namespace_gets_nothing() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let client = &stage.plane.client;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let place = json!({"metadata": {"name": "dev-nobody"}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(place)?).await?;
        let mark = stage.quiet().await?;
        for namespace in ["default", "dev-nobody"] {
            let servers: Api<DevServer> = Api::namespaced(client.clone(), namespace);
            let mut stray = server("stray", &json!({}))?;
            stray.metadata.namespace = Some(namespace.into());
            servers.create(&PostParams::default(), &stray).await?;
            let said = until_refused(&servers, "stray", Reason::NoOwner).await?;
            assert_eq!(
                said,
                format!("Namespace {namespace} belongs to no user of ODC: create the server in dev-<user>.")
            );
        }
        stage.quiet().await?;
        // One word to each, and nothing else.
        let told = |namespace: &str| format!("patch devservers/status {namespace}/stray 200");
        assert_eq!(stage.written_since(mark)?, [told("default"), told("dev-nobody")]);
        Ok(())
    })
    .await
}
