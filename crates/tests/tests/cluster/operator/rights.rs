//! Rights as the API server sees them: the operator is denied nothing and given nothing it does not use, it can give
//! nobody more than it should, and people can do what they need and no more.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use odc_api::v1alpha1::{DevServerUser, Phase};
use odc_tests::apifault::{Action, EventAction, Fault, Pattern, Verb};
use odc_tests::{audit, odc, wait};
use serde_json::{Value, json};

use super::queue_api;
use super::rig::Rig;
use super::stage::{LIMIT, NAMESPACE, OPERATOR, Stage, until, until_none, user, with_stage};

/// One thing a rule allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    /// As in `devservers.odc.dev/status`.
    resource: String,
    verb: String,
    name: Option<String>,
}

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut all = BTreeSet::new();
    for rule in rules {
        let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
            None | Some([]) => vec![None],
            Some(names) => names.iter().cloned().map(Some).collect(),
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    for name in &names {
                        let resource = full(group, resource);
                        all.insert(Right { resource, verb: verb.clone(), name: name.clone() });
                    }
                }
            }
        }
    }
    all
}

/// A resource with its group.
fn full(group: &str, resource: &str) -> String {
    match (group.is_empty(), resource.split_once('/')) {
        (true, _) => resource.to_owned(),
        (false, None) => format!("{resource}.{group}"),
        (false, Some((resource, sub))) => format!("{resource}.{group}/{sub}"),
    }
}

impl Right {
    fn is_used(&self, requests: &[&audit::Request]) -> bool {
        requests.iter().any(|request| self.was_used_by(request))
    }

    fn was_used_by(&self, request: &audit::Request) -> bool {
        // To be told that there is none, one must be allowed to know.
        let answered = request.code < 300 || (request.verb == "get" && request.code == 404);
        if !answered || self.name.as_ref().is_some_and(|name| *name != request.name) {
            return false;
        }
        // What server-side apply makes shows as a patch, and is checked as both.
        let made = request.verb == "create" || (request.verb == "patch" && request.code == 201);
        let of_this = full(&request.group, &request.resource) == self.resource;
        match self.verb.as_str() {
            // Our bindings are called like the roles they bind.
            "bind" => request.resource == "rolebindings" && made,
            "create" => of_this && made,
            "patch" => of_this && request.verb == "patch" && request.code == 200,
            verb => of_this && request.verb == verb,
        }
    }
}

fn objects(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        NAMESPACE,
        &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
    )
}

/// A client with nothing but this, which tells every refusal at once.
pub async fn client(stage: &Stage<'_>, token: &str) -> anyhow::Result<Client> {
    let path = stage.directory.join("client.kubeconfig");
    odc::with_token(&stage.plane.kubeconfig, token, &path)?;
    let mut config = config(&path).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn config(path: &Path) -> anyhow::Result<kube::Config> {
    Ok(kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?)
}

pub async fn token(client: &Client, namespace: &str, account: &str) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(answer.status.context("a token was asked for")?.token)
}

/// Everything an operator has to do in its life, or nearly: each part is there for a rule that nothing else uses.
async fn live(rig: &Rig<'_>) -> anyhow::Result<()> {
    let stage = rig.stage;
    let admin = &stage.plane.client;
    let users: Api<DevServerUser> = Api::all(admin.clone());
    odc::apply(
        admin,
        &json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"}, "spec": {"members": ["ada"]}}),
    )
    .await?;
    // First and alone: it takes the operator's own rights away, too, and nothing else may be asked meanwhile.
    mend(stage).await?;
    stage.quiet().await?;
    // Its pod never begins, so that its Secret is missed.
    stage.plane.ignore_node("still");
    // With room for one.
    let room = [("cpu", "150m"), ("memory", "1Gi"), ("ephemeral-storage", "10Gi")];
    stage.plane.add_node("still", &room).await?;
    stage.create("doubt", json!({"scheduling": {"nodeLabels": {"kubernetes.io/hostname": "still"}}})).await?;
    let placed =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    stage.until_pod("doubt-0", "placed", placed).await?;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    let secret = secrets.get("doubt-keys").await?;
    secrets.delete("doubt-keys", &DeleteParams::default()).await?;

    serve(rig).await?;

    // A namespace and pods that somebody seems to have made already: it was us, and the answer was lost.
    let held =
        |resource: &str, name: &str| Fault::event(1, Pattern::resource(resource).named(name), None, EventAction::Hold);
    rig.proxy.add(held("namespaces", "dev-bob"));
    rig.proxy.add(Fault::write(1).of(Pattern::verb(Verb::Create, "namespaces")).after(Action::HangUp));
    odc::apply(admin, &user("bob")).await?;
    until_read(rig, "namespaces", "dev-bob").await?;
    rig.proxy.release();
    stage.user_ready("bob").await?;
    rig.proxy.add(held("pods", "lost-0"));
    for resource in ["pods", "secrets"] {
        let of = Pattern::verb(Verb::Create, resource).prefixed("lost-");
        rig.proxy.add(Fault::write(1).of(of).after(Action::HangUp));
    }
    stage.create("lost", json!({"flavor": "cpu"})).await?;
    until_read(rig, "secrets", "lost-keys").await?;
    until_read(rig, "pods", "lost-0").await?;
    rig.proxy.release();
    stage.until_phase("lost", Phase::Running).await?;

    // When it is given up, its node comes back, and lets it go at the next change.
    stage
        .until_pod("doubt-0", "given up", |pod| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()))
        .await?;
    stage.plane.revive_node("still").await?;
    let change = json!({"metadata": {"annotations": {"example.org/seen": "yes"}}});
    // Where nobody had begun to stop it, it is gone already.
    match stage.pods.patch("doubt-0", &PatchParams::default(), &Patch::Merge(&change)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => drop(other?),
    }
    until(&secrets, "doubt-keys", "made anew", |now| now.is_some_and(|now| now.uid() != secret.uid())).await?;
    stage.servers.delete("doubt", &DeleteParams::default()).await?;

    let bad = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
        "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": {"home": 5}});
    stage.store_by_other_rules(&bad).await?;
    until_read(rig, "devservers.odc.dev", "bad").await?;
    stage.servers.delete("bad", &DeleteParams::default()).await?;

    // Everybody goes.
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    users.delete("bob", &DeleteParams::default()).await?;
    until_none(&namespaces, "dev-bob").await?;
    users.delete("ada", &DeleteParams::default()).await?;
    stage.until_gone("lost").await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), NAMESPACE);
    claims.delete("home", &DeleteParams::default()).await?;
    until_none(&namespaces, NAMESPACE).await
}

/// Waits until the operator has read one object by its name.
async fn until_read(rig: &Rig<'_>, resource: &str, name: &str) -> anyhow::Result<()> {
    wait::until(&format!("{resource} {name} is read"), LIMIT, async || {
        let trace = rig.proxy.trace();
        let read = trace.iter().any(|entry| {
            entry.verb == Verb::Get
                && entry.resource == resource
                && entry.name == name
                && entry.server_code == Some(200)
        });
        anyhow::ensure!(read, "it is not");
        Ok(())
    })
    .await
}

/// Leaders that serve the queue's own API come and go.
async fn announce(stage: &Stage<'_>) -> anyhow::Result<()> {
    odc::apply(&stage.plane.client, &user("ada")).await?;
    queue_api::register(&stage.plane.client).await?;
    let secrets: Api<Secret> = Api::namespaced(stage.plane.client.clone(), "odc-system");
    for _ in 0..2 {
        stage.forget_leader().await?;
        queue_api::serving(stage).await?.operator.kill().await?;
        // The next one finds a key that is not that of its certificate.
        let other = json!({"stringData": {"tls.key": rcgen::KeyPair::generate()?.serialize_pem()}});
        secrets.patch("odc-queue-tls", &PatchParams::default(), &Patch::Merge(&other)).await?;
    }
    Ok(())
}

/// Whatever somebody spoils in a user's namespace.
async fn mend(stage: &Stage<'_>) -> anyhow::Result<()> {
    let admin = &stage.plane.client;
    let rbac = "rbac.authorization.k8s.io";
    let users: Api<DevServerUser> = Api::all(admin.clone());
    let quota = |cpu: Value| json!({"spec": {"quota": {"cpu": cpu}}});
    let quotas = objects(admin, "", "v1", "ResourceQuota");
    for cpu in ["50", "60"] {
        users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota(cpu.into()))).await?;
        until(&quotas, "odc", cpu, |quota| {
            quota.is_some_and(|quota| quota.data["spec"]["hard"]["requests.cpu"] == cpu)
        })
        .await?;
    }
    users.patch("ada", &PatchParams::default(), &Patch::Merge(&quota(Value::Null))).await?;
    until_none(&quotas, "odc").await?;

    // The second time the same is told again, and that is a new event too.
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
            let right = object.data.pointer(field).cloned();
            *object.data.pointer_mut(field).with_context(|| format!("{kind} has {field}"))? = wrong;
            api.replace(name, &PostParams::default(), &object).await?;
            until(&api, name, "mended", |object| {
                object.is_some_and(|object| object.data.pointer(field) == right.as_ref())
            })
            .await?;
        }
    }
    let budgets = objects(admin, "policy", "v1", "PodDisruptionBudget");
    let other_way = json!({"spec": {"minAvailable": null, "maxUnavailable": 1}});
    budgets.patch("odc", &PatchParams::default(), &Patch::Merge(&other_way)).await?;
    until(&budgets, "odc", "mended", |budget| {
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
        wait::until("the binding is replaced", LIMIT, async || {
            bindings.delete(name, &DeleteParams::default()).await?;
            bindings.create(&PostParams::default(), &other).await?;
            Ok(())
        })
        .await?;
        until(&bindings, name, "mended", |binding| {
            binding.is_some_and(|binding| binding.data["roleRef"]["name"] == name)
        })
        .await?;
    }
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let label = "pod-security.kubernetes.io/enforce";
    let unsafe_one = json!({"metadata": {"labels": {label: "privileged"}}});
    namespaces.patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(&unsafe_one)).await?;
    until(&namespaces, NAMESPACE, "mended", |namespace| {
        namespace.is_some_and(|namespace| namespace.labels().get(label).map(String::as_str) == Some("baseline"))
    })
    .await?;
    Ok(())
}

/// Servers of every kind through all of their life.
async fn serve(rig: &Rig<'_>) -> anyhow::Result<()> {
    let stage = rig.stage;
    stage.claim("home").await?;
    stage.create("home", json!({"home": {"claim": "home"}, "team": "vision"})).await?;
    stage.create("gpu", json!({"flavor": "gpu", "count": 2})).await?;
    stage.create("short", json!({"lifetime": "1s"})).await?;
    stage.create("gang", json!({"nodes": 2})).await?;
    for name in ["home", "gpu", "gang"] {
        stage.until_phase(name, Phase::Running).await?;
    }

    let stripped = json!({"metadata": {"ownerReferences": null, "labels": {"odc.dev/server": null}}});
    stage.pods.patch("gpu-0", &PatchParams::default(), &Patch::Merge(&stripped)).await?;
    stage.until_pod("gpu-0", "adopted", |pod| pod.is_some_and(|pod| pod.metadata.owner_references.is_some())).await?;
    let services: Api<Service> = Api::namespaced(stage.plane.client.clone(), NAMESPACE);
    let other = json!({"spec": {"selector": {"odc.dev/server": "other"}}});
    services.patch("gang", &PatchParams::default(), &Patch::Merge(&other)).await?;
    until(&services, "gang", "mended", |service| {
        let selector = service.and_then(|service| service.spec.as_ref()?.selector.as_ref());
        selector.is_some_and(|selector| selector["odc.dev/server"] == "gang")
    })
    .await?;

    // Twice, for the same reason.
    for _ in 0..2 {
        stage.change("home", json!({"desired": "Hibernated"})).await?;
        stage.until_phase("home", Phase::Hibernated).await?;
        stage.change("home", json!({"desired": "Running"})).await?;
        stage.until_phase("home", Phase::Running).await?;
    }
    stage.change("gpu", json!({"desired": "Ended"})).await?;
    // Readable for a moment, and then gone.
    for name in ["short", "gpu"] {
        stage.until_gone(name).await?;
    }
    stage.servers.delete("gang", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn the_operator_is_denied_nothing_and_has_no_right_it_does_not_use() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut rig = Rig::start_with(stage, &[("ODC_KEEP_ENDED", "1s")]).await?;
        live(&rig).await.with_context(|| rig.operator.words())?;
        // The record has a watch when it ended.
        rig.operator.kill().await?;
        announce(stage).await?;
        let requests = wait::until("all watches have ended", LIMIT, async || {
            let requests = stage.plane.requests()?;
            let watches = requests.iter().filter(|request| request.user == OPERATOR && request.verb == "watch");
            let begun = rig.proxy.trace().iter().filter(|entry| entry.verb == Verb::Watch).count();
            anyhow::ensure!(watches.count() >= begun, "{begun} were begun");
            Ok(requests)
        })
        .await?;
        let requests: Vec<&audit::Request> = requests.iter().filter(|request| request.user == OPERATOR).collect();

        let denied: Vec<_> = requests.iter().filter(|request| matches!(request.code, 401 | 403)).collect();
        assert!(denied.is_empty(), "{denied:#?}");

        let admin = &stage.plane.client;
        let cluster: Api<ClusterRole> = Api::all(admin.clone());
        let mut unused = Vec::new();
        // What a role inside a namespace was good for is no reason to have the same everywhere.
        let mut everywhere = requests.clone();
        for (role, namespace) in [
            ("odc-operator-tenant", "dev-"),
            ("odc-operator", "odc-system"),
            ("odc-operator-events", "default"),
            ("odc-operator", ""),
        ] {
            let rules = match namespace {
                "" | "dev-" => cluster.get(role).await?.rules,
                namespace => Api::<Role>::namespaced(admin.clone(), namespace).get(role).await?.rules,
            };
            let given = rights(&rules.context("a role has rules")?);
            assert!(!given.is_empty());
            let is_there = |request: &audit::Request| request.namespace.starts_with(namespace);
            let there: Vec<&audit::Request> = everywhere.iter().filter(|request| is_there(request)).copied().collect();
            everywhere.retain(|request| !is_there(request) || !given.iter().any(|right| right.was_used_by(request)));
            // To bind a role is wanted beside the right to make the binding.
            let is_used = |right: &Right| right.is_used(if right.verb == "bind" { &requests } else { &there });
            unused.extend(given.into_iter().filter(|right| !is_used(right)).map(|right| (role, namespace, right)));
        }
        assert!(unused.is_empty(), "{unused:#?}");
        Ok(())
    })
    .await
}

/// What the API server answers to one request: its code, and what it said.
async fn answer(client: &Client, method: &Method, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, String)> {
    let kind = if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let text = body.map(ToString::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(text.into_bytes())?;
    match client.request_text(request).await {
        Ok(text) => Ok((StatusCode::OK.as_u16(), text)),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(error) => Err(error).with_context(|| format!("{method} {path}")),
    }
}

fn binding(name: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "odc-operator", "namespace": "odc-system"}]})
}

#[tokio::test]
async fn the_operator_can_give_nobody_more_than_it_should() -> anyhow::Result<()> {
    with_stage(async |stage| {
        // Its namespace, so that its own binding there is not in the way.
        let admin = &stage.plane.client;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let place = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        namespaces.create(&PostParams::default(), &place).await?;
        let operator = client(stage, &odc::token(admin).await?).await?;
        // These are put together by a controller, and what is empty yet anybody may give.
        let roles: Api<ClusterRole> = Api::all(admin.clone());
        for role in ["admin", "edit"] {
            let whole = |role: Option<&ClusterRole>| role.and_then(|role| role.rules.as_ref()).is_some_and(|rules| !rules.is_empty());
            until(&roles, role, "put together", whole).await?;
        }

        for (name, role, says) in [
            // Names it may use, and roles it may not bind.
            ("odc-operator-tenant", "cluster-admin", "is attempting to grant RBAC permissions not currently held"),
            ("odc-operator-tenant", "admin", "is attempting to grant RBAC permissions not currently held"),
            ("odc-operator-tenant", "edit", "is attempting to grant RBAC permissions not currently held"),
            // A role it may bind, under another name.
            ("mine", "odc-operator-tenant", "cannot patch resource \"rolebindings\""),
        ] {
            let refused = odc::apply(&operator, &binding(name, role)).await.unwrap_err();
            let refused = format!("{refused:#}");
            assert!(refused.contains(says) && refused.contains("orbidden"), "{name} {role}: {refused}");
        }
        let everywhere = json!({"metadata": {"name": "mine"}, "roleRef": binding("", "cluster-admin")["roleRef"]});
        let own = json!({"metadata": {"name": "odc-operator"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        for (method, path, body) in [
            (Method::POST, format!("{rbac}/clusterrolebindings"), Some(&everywhere)),
            (Method::PATCH, format!("{rbac}/clusterroles/odc-operator"), Some(&own)),
            (Method::PATCH, format!("{rbac}/clusterroles/odc-user"), Some(&own)),
            (Method::POST, format!("{rbac}/namespaces/{NAMESPACE}/roles"), Some(&own)),
            (Method::GET, "/api/v1/secrets".into(), None),
            (Method::GET, format!("/api/v1/namespaces/{NAMESPACE}/secrets"), None),
            (Method::GET, "/api/v1/namespaces/kube-system/secrets/any".into(), None),
            (Method::POST, "/api/v1/namespaces/odc-system/serviceaccounts/default/token".into(), Some(&everywhere)),
            (Method::POST, format!("/api/v1/namespaces/{NAMESPACE}/pods"), Some(&everywhere)),
        ] {
            let (code, said) = answer(&operator, &method, &path, body).await?;
            assert_eq!(code, 403, "{method} {path}: {said}");
        }

        // The same way, with the role of that name, is open.
        odc::apply(&operator, &binding("odc-operator-tenant", "odc-operator-tenant")).await?;
        wait::until("what it let itself do", LIMIT, async || {
            let made = odc::apply(&operator, &binding("odc-user", "odc-user")).await;
            made.map(drop).context("binding odc-user")
        })
        .await?;
        // And from inside it leads no further.
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), NAMESPACE);
        bindings.delete("odc-user", &DeleteParams::default()).await?;
        let refused = odc::apply(&operator, &binding("odc-user", "cluster-admin")).await.unwrap_err();
        let refused = format!("{refused:#}");
        assert!(refused.contains("is attempting to grant RBAC permissions not currently held"), "{refused}");
        let (code, _) = answer(&operator, &Method::GET, &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), None).await?;
        assert_eq!(code, 403, "it lists no Secrets");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn people_can_do_what_they_need_and_no_more() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let admin = &stage.plane.client;
        odc::apply(admin, &user("bob")).await?;
        stage.user_ready("bob").await?;
        stage.claim("home").await?;
        stage.create("box", json!({"home": {"claim": "home"}})).await?;
        stage.until_phase("box", Phase::Running).await?;

        // Her tools, and herself as the cluster's own login knows her.
        let tools = client(stage, &token(admin, NAMESPACE, "odc-user").await?).await?;
        let mut herself = config(&stage.plane.kubeconfig).await?;
        herself.auth_info.impersonate = Some("odc:ada".into());
        herself.default_retry = false;
        for ada in [tools, Client::try_from(herself)?] {
            check_person(&ada).await?;
        }
        // Nothing of the role is there that was not wanted just now.
        let requests = stage.plane.requests()?;
        let allowed: Vec<&audit::Request> = requests
            .iter()
            .filter(|request| {
                request.user == "system:serviceaccount:dev-ada:odc-user" && !matches!(request.code, 401 | 403)
            })
            .collect();
        let role = Api::<ClusterRole>::all(admin.clone()).get("odc-user").await?;
        let wanted = |right: &Right| {
            allowed
                .iter()
                .any(|request| full(&request.group, &request.resource) == right.resource && request.verb == right.verb)
        };
        let given = rights(&role.rules.context("a role has rules")?);
        let unused: Vec<&Right> = given.iter().filter(|right| !wanted(right)).collect();
        assert!(!given.is_empty() && unused.is_empty(), "{unused:#?}");

        // Whoever is signed in may choose a flavor, and sees nobody's servers.
        let anybody = client(stage, &token(admin, "dev-bob", "default").await?).await?;
        let flavors = "/apis/odc.dev/v1alpha1/devserverflavors";
        for (path, expect) in [
            (flavors.to_owned(), 200),
            (format!("{flavors}/gpu"), 200),
            ("/apis/odc.dev/v1alpha1/devservers".into(), 403),
            ("/apis/odc.dev/v1alpha1/namespaces/dev-bob/devservers".into(), 403),
            ("/apis/odc.dev/v1alpha1/devserverusers".into(), 403),
            ("/apis/odc.dev/v1alpha1/teams".into(), 403),
        ] {
            let (code, said) = answer(&anybody, &Method::GET, &path, None).await?;
            assert_eq!(code, expect, "{path}: {said}");
        }
        let (code, _) = answer(&client(stage, "nobody").await?, &Method::GET, flavors, None).await?;
        assert_eq!(code, 401);
        Ok(())
    })
    .await
}

async fn check_person(ada: &Client) -> anyhow::Result<()> {
    const YES: u16 = 200;
    const NO: u16 = 403;
    const NONE: u16 = 404;
    const UNVERSIONED: u16 = 422;
    let servers = "/apis/odc.dev/v1alpha1/namespaces/dev-ada/devservers";
    let place = "/api/v1/namespaces/dev-ada";
    let events = "/apis/events.k8s.io/v1/namespaces/dev-ada/events";
    let queue = "/apis/queue.odc.dev/v1alpha1/namespaces/dev-ada";
    let watch = "watch=true&timeoutSeconds=1";
    let mine = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": "mine"},
        "spec": {"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}}});
    let longer = json!({"spec": {"lifetime": "9h"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "main", "image": "any"}]}});
    let status = json!({"status": {"phase": "Queued"}});
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    let bind = binding("mine", "cluster-admin");
    let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
    let put = Method::PUT;
    for (method, path, body, expect) in [
        (&post, servers.to_owned(), Some(&mine), YES),
        (&get, servers.to_owned(), None, YES),
        (&get, format!("{servers}/mine"), None, YES),
        (&patch, format!("{servers}/mine"), Some(&longer), YES),
        // Allowed, and refused for another reason.
        (&put, format!("{servers}/mine"), Some(&mine), UNVERSIONED),
        (&delete, format!("{servers}/mine"), None, YES),
        (&get, format!("{place}/pods"), None, YES),
        (&get, format!("{place}/pods/box-0"), None, YES),
        (&get, format!("{place}/events"), None, YES),
        (&get, events.to_owned(), None, YES),
        (&get, format!("{place}/persistentvolumeclaims"), None, YES),
        (&get, format!("{place}/persistentvolumeclaims/home"), None, YES),
        // What waits for a change watches.
        (&get, format!("{servers}?{watch}"), None, YES),
        (&get, format!("{place}/pods?{watch}"), None, YES),
        (&get, format!("{place}/events?{watch}"), None, YES),
        (&get, format!("{events}?{watch}"), None, YES),
        (&get, format!("{place}/persistentvolumeclaims?{watch}"), None, YES),
        // Allowed, and not there: such an event, and in this test whoever answers for the queue.
        (&get, format!("{place}/events/none"), None, NONE),
        (&get, format!("{events}/none"), None, NONE),
        (&get, format!("{queue}/queueentries"), None, NONE),
        (&get, format!("{queue}/queueentries/box"), None, NONE),
        (&get, format!("{queue}/availabilities"), None, NONE),
        (&get, format!("{queue}/availabilities/gpu"), None, NONE),
        (&post, format!("{queue}/dryruns"), Some(&mine), NONE),
        (&get, "/apis/odc.dev/v1alpha1/devserverflavors".into(), None, YES),
        // What would go around the flavor's limits.
        (&post, format!("{place}/pods"), Some(&pod), NO),
        (&delete, format!("{place}/pods/box-0"), None, NO),
        (&post, format!("{place}/pods/box-0/exec?command=id"), None, NO),
        (&get, format!("{place}/pods/box-0/exec?command=id"), None, NO),
        (&post, format!("{place}/pods/box-0/attach"), None, NO),
        (&patch, format!("{place}/pods/box-0/ephemeralcontainers"), Some(&longer), NO),
        (&post, format!("{place}/pods/box-0/eviction"), Some(&pod), NO),
        // What would tell keys, or take data.
        (&get, format!("{place}/secrets"), None, NO),
        (&get, format!("{place}/secrets/box-keys"), None, NO),
        (&delete, format!("{place}/persistentvolumeclaims/home"), None, NO),
        (&post, format!("{place}/serviceaccounts/odc-user/token"), Some(&pod), NO),
        // What is the operator's.
        (&patch, format!("{servers}/box/status"), Some(&status), NO),
        (&patch, place.to_owned(), Some(&label), NO),
        (&delete, place.to_owned(), None, NO),
        (&delete, format!("{place}/resourcequotas/odc"), None, NO),
        (&delete, "/apis/networking.k8s.io/v1/namespaces/dev-ada/networkpolicies/odc".into(), None, NO),
        (&post, "/apis/rbac.authorization.k8s.io/v1/namespaces/dev-ada/rolebindings".into(), Some(&bind), NO),
        (&delete, servers.to_owned(), None, NO),
        // What is other people's.
        (&get, "/apis/odc.dev/v1alpha1/namespaces/dev-bob/devservers".into(), None, NO),
        (&post, "/apis/odc.dev/v1alpha1/namespaces/dev-bob/devservers".into(), Some(&mine), NO),
        (&get, "/api/v1/namespaces/dev-bob/pods".into(), None, NO),
        (&get, "/api/v1/namespaces/odc-system/pods".into(), None, NO),
        (&get, "/apis/odc.dev/v1alpha1/devservers".into(), None, NO),
        (&get, "/apis/odc.dev/v1alpha1/devserverusers/ada".into(), None, NO),
        (&patch, "/apis/odc.dev/v1alpha1/devserverflavors/gpu".into(), Some(&longer), NO),
        (&get, "/api/v1/nodes".into(), None, NO),
    ] {
        let (code, said) = answer(ada, method, &path, body).await?;
        assert_eq!(code, expect, "{method} {path}: {said}");
    }
    // Nobody plays a kubelet that has logs or takes connections; that the API server asks it is what counts here.
    for (method, path) in [
        (&get, format!("{place}/pods/box-0/log")),
        (&get, format!("{place}/pods/box-0/portforward?ports=2222")),
        (&post, format!("{place}/pods/box-0/portforward?ports=2222")),
    ] {
        let (code, said) = answer(ada, method, &path, None).await?;
        assert!(!matches!(code, 401 | 403), "{method} {path}: {code} {said}");
    }
    Ok(())
}
