//! Decisions about users, played through against an API server in miniature.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::object::Object;
use crate::plan::Target;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn settings() -> Settings {
    Settings {
        namespace: "odc-system".into(),
        account: "odc-operator".into(),
        closed: vec!["10.0.0.0/8".parse().unwrap(), "fd12::/16".parse().unwrap()],
    }
}

/// `ada` with a limit on everything, so that there is one object of each kind.
fn limited() -> DevServerUser {
    DevServerUser::test().quota(odc_api::v1alpha1::Quota {
        servers: Some(3),
        devices: Some(4),
        cpu: Some("8".parse().unwrap()),
        memory: Some("32Gi".parse().unwrap()),
        storage: Some("1Ti".parse().unwrap()),
        ..odc_api::v1alpha1::Quota::default()
    })
}

/// What is stored: the namespace and what is in it.
#[derive(Clone, Debug, Default)]
struct Cluster {
    objects: Vec<Child>,
    made: usize,
}

impl Cluster {
    /// A cluster in which everything was made for this user.
    fn of(user: &DevServerUser) -> Self {
        let mut cluster = Self::default();
        cluster.settle(user);
        cluster
    }

    fn decide(&self, user: &DevServerUser) -> Plan {
        let teams = [Team::test()];
        let seen = Seen {
            namespace: self.objects.iter().find(|child| child.kind == Kind::Namespace),
            children: self.objects.iter().filter(|child| child.kind != Kind::Namespace).collect(),
            teams: teams.iter().collect(),
            devices: ["nvidia.com/gpu".to_owned()].into(),
        };
        decide(user, &seen, &settings(), NOW)
    }

    /// Decides and writes until nothing is left to write. Says what was written.
    fn settle(&mut self, user: &DevServerUser) -> Vec<Write> {
        let mut all = vec![];
        for _ in 0..3 {
            let plan = self.decide(user);
            if plan.writes.is_empty() {
                let ready = condition::find(&plan.status.conditions, Type::Ready).unwrap();
                assert_eq!(ready.reason, Reason::Reconciled.as_str(), "{}", ready.message);
                return all;
            }
            for write in &plan.writes {
                self.write(write);
            }
            all.extend(plan.writes);
        }
        panic!("still writing after three times: {all:#?}");
    }

    fn find(&self, kind: Kind, name: &str) -> Option<&Child> {
        self.objects.iter().find(|child| child.kind == kind && child.name == name)
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Create(object) => {
                assert!(self.find(object.kind, &object.name).is_none(), "{} exists", object.name);
                self.store(object);
            }
            Write::Apply(object) => {
                let there =
                    self.objects.iter_mut().find(|child| child.kind == object.kind && child.name == object.name);
                match there {
                    Some(there) => {
                        let mut wanted = object.body.clone();
                        let metadata = wanted["metadata"].as_object_mut().unwrap();
                        assert!(metadata.remove("uid").is_none_or(|uid| uid == there.uid.as_str()));
                        let fixed = there.kind == Kind::RoleBinding && there.body["roleRef"] != wanted["roleRef"];
                        assert!(!fixed, "cannot change roleRef");
                        merge(&mut there.body, &wanted);
                        let both = |spec: &Value| spec["minAvailable"].is_i64() && spec["maxUnavailable"].is_i64();
                        assert!(!both(&there.body["spec"]), "minAvailable and maxUnavailable exclude each other");
                    }
                    None => self.store(object),
                }
            }
            Write::Delete(target) => {
                let before = self.objects.len();
                self.objects.retain(|child| child.uid != target.uid);
                assert_eq!(self.objects.len() + 1, before, "{target:?} is not there");
            }
            Write::Adopt { .. } => panic!("nobody has an owner here"),
        }
    }

    fn store(&mut self, object: &Object) {
        self.made += 1;
        let mut stored = object.body.clone();
        stored["metadata"]["uid"] = format!("uid-{}", self.made).into();
        self.objects.push(Child::of(object.kind, stored));
    }
}

/// What server-side apply does: maps grow together and keep what others have set, lists and selectors are replaced.
fn merge(stored: &mut Value, wanted: &Value) {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            for (field, wanted) in wanted {
                let atomic = ["selector", "podSelector", "roleRef"].contains(&field.as_str());
                match stored.get_mut(field) {
                    Some(stored) if !atomic => merge(stored, wanted),
                    _ => drop(stored.insert(field.clone(), wanted.clone())),
                }
            }
        }
        (stored, wanted) => *stored = wanted.clone(),
    }
}

/// Every value that differs from this one by one edit.
fn edits(value: &Value) -> Vec<Value> {
    let mut all = vec![match value {
        Value::Bool(bool) => json!(!bool),
        Value::Number(_) => json!(1),
        _ => json!("edited"),
    }];
    match value {
        Value::Object(fields) => {
            for (field, inner) in fields {
                let mut without = fields.clone();
                without.remove(field);
                all.push(Value::Object(without));
                for inner in edits(inner) {
                    let mut changed = fields.clone();
                    changed.insert(field.clone(), inner);
                    all.push(Value::Object(changed));
                }
            }
            for (added, inner) in [
                ("added", json!("1")),
                ("namespaceSelector", json!({})),
                ("podSelector", json!({})),
                ("matchLabels", json!({"a": "b"})),
                ("endPort", json!(9999)),
                ("max", json!({"cpu": "1"})),
                ("scopes", json!(["BestEffort"])),
            ] {
                let mut more = fields.clone();
                more.entry(added).or_insert(inner);
                all.push(Value::Object(more));
            }
        }
        Value::Array(items) => {
            all.push(items.iter().chain(items.first()).cloned().collect());
            for (at, inner) in items.iter().enumerate() {
                all.push(
                    items.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, item)| item.clone()).collect(),
                );
                all.extend(edits(inner).into_iter().map(|inner| {
                    let mut changed = items.clone();
                    changed[at] = inner;
                    Value::Array(changed)
                }));
            }
        }
        _ => {}
    }
    all
}

/// The object as the API server would keep it, if it would: fields of the wrong type are refused, unknown ones dropped.
fn possible(kind: Kind, body: Value) -> Option<Value> {
    fn read<K: serde::Serialize + serde::de::DeserializeOwned>(body: Value) -> Option<Value> {
        serde_json::to_value(serde_json::from_value::<K>(body).ok()?).ok()
    }
    match kind {
        Kind::Namespace => read::<k8s_openapi::api::core::v1::Namespace>(body),
        Kind::ServiceAccount => read::<k8s_openapi::api::core::v1::ServiceAccount>(body),
        Kind::RoleBinding => read::<k8s_openapi::api::rbac::v1::RoleBinding>(body),
        Kind::ResourceQuota => read::<k8s_openapi::api::core::v1::ResourceQuota>(body),
        Kind::LimitRange => read::<k8s_openapi::api::core::v1::LimitRange>(body),
        Kind::NetworkPolicy => read::<k8s_openapi::api::networking::v1::NetworkPolicy>(body),
        Kind::PodDisruptionBudget => read::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(body),
        Kind::Secret | Kind::Service | Kind::Pod | Kind::DevServer => None,
    }
}

/// The parts of an object that do something.
fn meaning(child: &Child) -> Value {
    let body = &child.body;
    match child.kind {
        Kind::Namespace => json!([
            body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            body["metadata"]["labels"]["pod-security.kubernetes.io/enforce-version"],
            body["metadata"]["labels"][label::OWNER],
        ]),
        Kind::ServiceAccount => body["automountServiceAccountToken"].clone(),
        Kind::RoleBinding => json!([body["subjects"], body["roleRef"]]),
        Kind::NetworkPolicy => {
            let mut spec = body["spec"].clone();
            // Every pod, whether it is written or not.
            spec.as_object_mut().unwrap().entry("podSelector").or_insert(json!({}));
            spec
        }
        _ => body["spec"].clone(),
    }
}

fn meanings(cluster: &Cluster) -> BTreeMap<(Kind, String), Value> {
    cluster.objects.iter().map(|child| ((child.kind, child.name.clone()), meaning(child))).collect()
}

fn place(write: &Write) -> &str {
    let (kind, namespace, name) = match write {
        Write::Apply(object) | Write::Create(object) => (object.kind, &object.namespace, &object.name),
        Write::Delete(target) | Write::Adopt { target, .. } => (target.kind, &target.namespace, &target.name),
    };
    if kind == Kind::Namespace { name } else { namespace.as_deref().unwrap_or_default() }
}

fn described(writes: &[Write]) -> Vec<String> {
    writes.iter().map(upkeep::described).collect()
}

fn ready(plan: &Plan) -> (&str, &str) {
    let ready = condition::find(&plan.status.conditions, Type::Ready).unwrap();
    (&ready.reason, &ready.message)
}

#[test]
fn a_new_user_gets_walls_before_rights() {
    let mut cluster = Cluster::default();
    let first = cluster.decide(&limited());
    assert_eq!(described(&first.writes), ["Created Namespace dev-ada", "Wrote RoleBinding odc-operator-tenant"]);
    assert_eq!(ready(&first), ("Incomplete", "Namespace dev-ada is being set up."));
    assert_eq!(first.events, []);
    assert_eq!(
        described(&cluster.settle(&limited()))[2..],
        [
            "Wrote LimitRange odc",
            "Wrote ResourceQuota odc",
            "Wrote NetworkPolicy odc",
            "Wrote PodDisruptionBudget odc",
            "Wrote ServiceAccount odc-user",
            "Wrote RoleBinding odc-user",
        ]
    );
}

#[test]
fn the_objects_are_these() {
    let cluster = Cluster::of(&limited());
    let spec = |kind| cluster.find(kind, WALL).unwrap().body["spec"].clone();
    let namespace = &cluster.find(Kind::Namespace, "dev-ada").unwrap().body["metadata"];
    assert_eq!(
        namespace["labels"],
        json!({
            "odc.dev/owner": "ada",
            "app.kubernetes.io/name": "odc",
            "app.kubernetes.io/instance": "ada",
            "app.kubernetes.io/component": "user",
            "app.kubernetes.io/part-of": "odc",
            "app.kubernetes.io/managed-by": "odc-operator",
            "pod-security.kubernetes.io/enforce": "baseline",
            "pod-security.kubernetes.io/enforce-version": "latest",
            "pod-security.kubernetes.io/audit": "restricted",
        })
    );
    assert_eq!(namespace["ownerReferences"], Value::Null);
    assert_eq!(
        spec(Kind::ResourceQuota),
        json!({"hard": {
            "requests.cpu": "8", "requests.memory": "32Gi", "requests.storage": "1Ti", "requests.nvidia.com/gpu": "4",
        }})
    );
    assert_eq!(
        spec(Kind::LimitRange),
        json!({"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "128Mi"}}]})
    );
    assert_eq!(
        spec(Kind::PodDisruptionBudget),
        json!({
            "minAvailable": i32::MAX,
            "selector": {"matchExpressions": [{"key": "odc.dev/server", "operator": "Exists"}]},
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        })
    );
    let binding = |name| meaning(cluster.find(Kind::RoleBinding, name).unwrap());
    let role = |name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    assert_eq!(
        binding("odc-operator-tenant"),
        json!([[{"kind": "ServiceAccount", "name": "odc-operator", "namespace": "odc-system"}], role("odc-operator-tenant")])
    );
    assert_eq!(
        binding("odc-user"),
        json!([
            [
                {"kind": "ServiceAccount", "name": "odc-user", "namespace": "dev-ada"},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "odc:ada"},
            ],
            role("odc-user"),
        ])
    );
    assert_eq!(meaning(cluster.find(Kind::ServiceAccount, "odc-user").unwrap()), json!(false));
}

#[test]
fn every_edit_of_every_object_is_repaired() {
    let user = limited();
    let pristine = Cluster::of(&user);
    let mut tried = 0;
    for (at, child) in pristine.objects.iter().enumerate() {
        let mut parts: Vec<Value> = vec![];
        for (field, value) in child.body.as_object().unwrap() {
            if ["apiVersion", "kind", "metadata"].contains(&field.as_str()) {
                continue;
            }
            for edit in edits(value).into_iter().chain([Value::Null]) {
                let mut body = child.body.clone();
                body[field] = edit;
                parts.push(body);
            }
        }
        for edit in edits(&child.body["metadata"]["labels"]).into_iter().chain([Value::Null]) {
            let mut body = child.body.clone();
            body["metadata"]["labels"] = edit;
            // Without our label a namespace is not ours any more.
            let is_ours = body["metadata"]["labels"][label::OWNER] == "ada";
            if child.kind != Kind::Namespace || is_ours {
                parts.push(body);
            }
        }
        for body in parts.into_iter().filter_map(|body| possible(child.kind, body)) {
            let mut cluster = pristine.clone();
            cluster.objects[at].body = body.clone();
            cluster.settle(&user);
            assert_eq!(meanings(&cluster), meanings(&pristine), "after an edit to {body:#}");
            tried += 1;
        }
        if child.kind != Kind::Namespace {
            let mut cluster = pristine.clone();
            cluster.objects.remove(at);
            cluster.settle(&user);
            assert_eq!(meanings(&cluster), meanings(&pristine), "without {} {}", child.kind.as_str(), child.name);
        }
    }
    assert!(tried > 250, "{tried} edits are too few to mean anything");
}

#[test]
fn a_budget_written_the_other_way_is_made_anew() {
    let user = limited();
    let mut cluster = Cluster::of(&user);
    let before = meanings(&cluster);
    let budget = cluster.objects.iter_mut().find(|child| child.kind == Kind::PodDisruptionBudget).unwrap();
    let spec = budget.body["spec"].as_object_mut().unwrap();
    spec.remove("minAvailable");
    spec.insert("maxUnavailable".into(), json!("100%"));
    assert_eq!(described(&cluster.settle(&user)), ["Deleted PodDisruptionBudget odc", "Wrote PodDisruptionBudget odc"]);
    assert_eq!(meanings(&cluster), before);
}

#[test]
fn a_field_of_a_newer_kubernetes_is_left_alone() {
    let user = limited();
    let mut cluster = Cluster::of(&user);
    for child in &mut cluster.objects {
        if let Some(spec) = child.body["spec"].as_object_mut() {
            spec.insert("fieldOfTheFuture".into(), "Default".into());
        }
    }
    assert_eq!(cluster.settle(&user), []);
}

#[test]
fn what_others_add_beside_is_left_alone() {
    let user = limited();
    let mut cluster = Cluster::of(&user);
    for child in &mut cluster.objects {
        child.body["metadata"]["labels"]["example.org/cost"] = "42".into();
        child.body["metadata"]["annotations"] = json!({"example.org/note": "kept"});
    }
    assert_eq!(cluster.settle(&user), []);
}

#[test]
fn a_limit_that_is_taken_away_goes_from_the_quota() {
    let mut user = limited();
    let mut cluster = Cluster::of(&user);
    user.spec.quota.cpu = None;
    assert_eq!(described(&cluster.settle(&user)), ["Deleted ResourceQuota odc", "Wrote ResourceQuota odc"]);
    assert_eq!(cluster.find(Kind::ResourceQuota, WALL).unwrap().body["spec"]["hard"]["requests.cpu"], Value::Null);
    user.spec.quota.memory = Some("64Gi".parse().unwrap());
    assert_eq!(described(&cluster.settle(&user)), ["Wrote ResourceQuota odc"]);
    user.spec.quota = odc_api::v1alpha1::Quota::default();
    assert_eq!(described(&cluster.settle(&user)), ["Deleted ResourceQuota odc"]);
    assert_eq!(cluster.find(Kind::ResourceQuota, WALL), None);
}

#[test]
fn an_auditor_has_no_rights_to_change_anything() {
    let mut user = limited();
    let mut cluster = Cluster::of(&user);
    user.spec.role = Role::Auditor;
    assert_eq!(described(&cluster.settle(&user)), ["Deleted RoleBinding odc-user", "Deleted ServiceAccount odc-user"]);
}

#[test]
fn a_namespace_of_somebody_else_is_left_alone() {
    let taken = |labels: Value| {
        let stored = json!({"metadata": {"name": "dev-ada", "uid": "uid-foreign", "labels": labels}});
        let mut cluster = Cluster { objects: vec![Child::of(Kind::Namespace, stored)], made: 0 };
        let mut user = limited();
        let plan = cluster.decide(&user);
        assert_eq!((plan.writes.len(), ready(&plan).0, plan.status.namespace.as_ref()), (0, "NamespaceTaken", None));
        assert_eq!(plan.events.len(), 1);
        // Said once.
        user.status = Some(plan.status);
        assert_eq!(cluster.decide(&user).events, []);
        // Handed over.
        cluster.objects[0].body["metadata"]["labels"] = json!({"odc.dev/owner": "ada"});
        let writes = cluster.settle(&user);
        assert_eq!(described(&writes[..1]), ["Wrote Namespace dev-ada"]);
        assert!(matches!(&writes[0], Write::Apply(object) if object.body["metadata"]["uid"] == "uid-foreign"));
    };
    taken(Value::Null);
    taken(json!({"odc.dev/owner": "bob"}));
}

#[test]
fn what_is_being_deleted_is_waited_for() {
    let user = limited();
    for at in 0..Cluster::of(&user).objects.len() {
        let mut cluster = Cluster::of(&user);
        cluster.objects[at].deleting = true;
        let plan = cluster.decide(&user);
        assert_eq!((plan.writes.len(), ready(&plan).0), (0, "Incomplete"), "{}", cluster.objects[at].name);
    }
}

#[test]
fn a_user_on_the_way_out_is_left_as_it_is() {
    let mut user = limited();
    user.metadata.deletion_timestamp = Some(stored(NOW));
    let plan = Cluster::default().decide(&user);
    assert_eq!((plan.writes, plan.status), (vec![], DevServerUserStatus::default()));
}

#[test]
fn a_name_no_namespace_can_have_is_told() {
    let mut user = limited();
    user.metadata.name = Some("a".repeat(60));
    let plan = Cluster::default().decide(&user);
    assert_eq!((plan.writes.len(), ready(&plan).0, &plan.status.namespace), (0, "Invalid", &None));
}

#[test]
fn the_status_names_the_teams_and_keeps_the_use() {
    let team = |name: &str, members: &[&str]| {
        let mut team = Team::test();
        team.metadata.name = Some(name.into());
        team.spec.members = members.iter().map(|name| name.parse().unwrap()).collect();
        team
    };
    let teams = [team("zebra", &["bob", "ada"]), team("apple", &["ada"]), team("melon", &["bob"])];
    let usage = odc_api::v1alpha1::Usage { device_seconds: 7, at: stored(NOW) };
    let mut user = limited();
    user.metadata.generation = Some(5);
    user.status = Some(DevServerUserStatus { usage: Some(usage.clone()), ..DevServerUserStatus::default() });
    let seen = Seen { teams: teams.iter().collect(), ..Seen::default() };
    let status = decide(&user, &seen, &settings(), NOW).status;
    assert_eq!(status.teams.iter().map(TeamName::as_str).collect::<Vec<_>>(), ["apple", "zebra"]);
    assert_eq!((status.usage, status.observed_generation), (Some(usage), Some(5)));
    assert_eq!(status.namespace, Some("dev-ada".into()));
}

#[test]
fn the_same_state_gives_the_same_status_at_any_time() {
    let mut user = limited();
    let mut cluster = Cluster::of(&user);
    let first = cluster.decide(&user);
    assert_eq!(
        first.events.iter().map(|event| event.note.as_str()).collect::<Vec<_>>(),
        ["Prepared namespace dev-ada"]
    );
    user.status = Some(first.status.clone());
    let seen = Seen {
        namespace: cluster.find(Kind::Namespace, "dev-ada"),
        children: cluster.objects.iter().collect(),
        teams: vec![],
        devices: ["nvidia.com/gpu".to_owned()].into(),
    };
    let later = decide(&user, &seen, &settings(), "2026-01-31T09:00:00.5Z".parse().unwrap());
    assert_eq!(later.status.conditions, first.status.conditions);
    assert_eq!((later.events, later.writes), (vec![], vec![]));

    cluster.objects.retain(|child| child.kind != Kind::NetworkPolicy);
    let repair = cluster.decide(&user);
    assert_eq!(repair.status, user.status.clone().unwrap());
    assert_eq!(repair.events[0].note, "Wrote NetworkPolicy odc in namespace dev-ada");
}

fn server(name: &str) -> Target {
    Target {
        kind: Kind::DevServer,
        namespace: Some("dev-ada".into()),
        name: name.into(),
        uid: format!("uid-{name}"),
        grace: None,
    }
}

fn left(cluster: &Cluster, holds: &Holds) -> Vec<Write> {
    let namespace = cluster.find(Kind::Namespace, "dev-ada").unwrap();
    let children: Vec<&Child> = cluster.objects.iter().filter(|child| child.kind != Kind::Namespace).collect();
    abandoned(namespace, holds, &children)
}

#[test]
fn a_gone_user_loses_rights_then_servers_then_the_empty_namespace() {
    let mut cluster = Cluster::of(&limited());
    let mut holds = Holds { servers: vec![server("one"), server("two")], claims: 1, ..Holds::default() };
    let writes = left(&cluster, &holds);
    assert_eq!(
        described(&writes),
        [
            "Deleted RoleBinding odc-user",
            "Deleted ServiceAccount odc-user",
            "Deleted DevServer one",
            "Deleted DevServer two",
        ]
    );
    writes[..2].iter().for_each(|write| cluster.write(write));
    holds.leaving = std::mem::take(&mut holds.servers).len();
    assert_eq!(left(&cluster, &holds), []);
    holds.leaving = 0;
    assert_eq!(left(&cluster, &holds), [], "a claim holds the namespace");
    (holds.claims, holds.pods) = (0, 1);
    assert_eq!(left(&cluster, &holds), [], "a pod that still stops needs its walls");
    holds.pods = 0;
    let namespace = cluster.find(Kind::Namespace, "dev-ada").unwrap();
    assert_eq!(left(&cluster, &holds), [Write::Delete(upkeep::target(namespace))]);
}

#[test]
fn a_user_who_comes_back_finds_everything_again() {
    let user = limited();
    let mut cluster = Cluster::of(&user);
    let before = meanings(&cluster);
    for write in &left(&cluster, &Holds { claims: 1, ..Holds::default() }) {
        cluster.write(write);
    }
    assert_ne!(meanings(&cluster), before);
    cluster.settle(&user);
    assert_eq!(meanings(&cluster), before);
}

#[test]
fn nothing_of_somebody_else_is_abandoned() {
    let holds = Holds { servers: vec![server("one")], ..Holds::default() };
    let check = |name: &str, labels: Value| {
        let stored = json!({"metadata": {"name": name, "uid": "u", "labels": labels}});
        assert_eq!(abandoned(&Child::of(Kind::Namespace, stored), &holds, &[]), [], "{name} {labels}");
    };
    check("dev-ada", json!({}));
    check("dev-ada", json!({"odc.dev/owner": "bob"}));
    check("kube-system", json!({"odc.dev/owner": "ada"}));
    check("kube-system", json!({"odc.dev/owner": "kube-system"}));
    check("dev-", json!({"odc.dev/owner": ""}));
}

fn any_quota() -> impl Strategy<Value = odc_api::v1alpha1::Quota> {
    let amount = || proptest::option::of((0..1_000_000_i64).prop_map(odc_api::quantity::Quantity::bytes));
    (proptest::option::of(0..9_u32), proptest::option::of(0..9_u32), amount(), amount(), amount()).prop_map(
        |(servers, devices, cpu, memory, storage)| {
            let flavors = BTreeMap::new();
            odc_api::v1alpha1::Quota { servers, devices, flavors, cpu, memory, storage }
        },
    )
}

fn any_role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::User), Just(Role::Admin), Just(Role::Auditor)]
}

proptest! {
    /// From anything one user had to anything else: it settles, stays settled, and never leaves the namespace.
    #[test]
    fn every_change_settles_inside_the_namespace(
        name in "[a-z0-9]([-a-z0-9]{0,57}[a-z0-9])?",
        quotas in (any_quota(), any_quota()),
        roles in (any_role(), any_role()),
    ) {
        let mut user = DevServerUser::test().quota(quotas.0);
        user.metadata.name = Some(name.clone());
        user.spec.role = roles.0;
        let mut cluster = Cluster::default();
        let mut writes = cluster.settle(&user);
        (user.spec.quota, user.spec.role) = (quotas.1, roles.1);
        writes.extend(cluster.settle(&user));
        prop_assert_eq!(meanings(&cluster), meanings(&Cluster::of(&user)));
        for write in &writes {
            prop_assert_eq!(place(write), format!("dev-{name}"));
        }
    }

    /// Stopping after any number of writes, as a crash would, loses nothing: the next run goes on from there.
    #[test]
    fn any_prefix_of_a_plan_is_a_fine_place_to_go_on_from(quota in any_quota(), stop in 0..8_usize) {
        let user = DevServerUser::test().quota(quota);
        let mut cluster = Cluster::default();
        let all = cluster.settle(&user);
        let expect = meanings(&cluster);
        let mut crashed = Cluster::default();
        all.iter().take(stop).for_each(|write| crashed.write(write));
        crashed.settle(&user);
        prop_assert_eq!(meanings(&crashed), expect);
    }

    /// Whatever else is true, a namespace with a claim, a pod, a server or rights in it is not deleted.
    #[test]
    fn a_namespace_that_holds_something_is_never_deleted(
        claims in 0..3_usize, pods in 0..2_usize, servers in 0..3_usize, leaving in 0..2_usize, rights: bool,
    ) {
        let mut user = limited();
        user.spec.role = if rights { Role::User } else { Role::Auditor };
        let servers: Vec<Target> = (0..servers).map(|number| server(&format!("server-{number}"))).collect();
        let holds = Holds { claims, pods, servers, leaving };
        let writes = left(&Cluster::of(&user), &holds);
        let deletes_namespace =
            writes.iter().any(|write| matches!(write, Write::Delete(target) if target.kind == Kind::Namespace));
        let is_empty = holds == Holds::default() && !rights;
        prop_assert_eq!(deletes_namespace, is_empty);
        for write in &writes {
            prop_assert!(matches!(write, Write::Delete(_)));
            prop_assert_eq!(place(write), "dev-ada");
        }
    }
}
