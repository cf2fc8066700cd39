//! Reconciliation of users against a minimal API server.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::manifest::Object;
use crate::plan::Target;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn settings() -> Settings {
    Settings {
        namespace: "odc-system".into(),
        service_account: "odc-operator".into(),
        blocked_cidrs: vec!["10.0.0.0/8".parse().unwrap(), "fd12::/16".parse().unwrap()],
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

/// The stored objects: the namespace and its contents.
#[derive(Clone, Debug, Default)]
struct Cluster {
    objects: Vec<ManagedObject>,
    created: usize,
}

impl Cluster {
    /// A cluster with all objects of this user.
    fn with(user: &DevServerUser) -> Self {
        let mut cluster = Self::default();
        cluster.settle(user);
        cluster
    }

    fn reconcile(&self, user: &DevServerUser) -> Plan {
        let teams = [Team::test()];
        let observed = Observed {
            namespace: self.objects.iter().find(|object| object.kind == Kind::Namespace),
            objects: self.objects.iter().filter(|object| object.kind != Kind::Namespace).collect(),
            teams: teams.iter().collect(),
            devices: ["nvidia.com/gpu".to_owned()].into(),
            has_snapshots: true,
        };
        reconcile(user, &observed, &settings(), NOW)
    }

    /// Reconciles until there is nothing to write, and returns all writes.
    fn settle(&mut self, user: &DevServerUser) -> Vec<Write> {
        let mut all = vec![];
        for _ in 0..3 {
            let plan = self.reconcile(user);
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
        panic!("does not converge: {all:#?}");
    }

    fn find(&self, kind: Kind, name: &str) -> Option<&ManagedObject> {
        self.objects.iter().find(|object| object.kind == kind && object.name == name)
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Create(object) | Write::CreateWithKeys { secret: object, .. } => {
                assert!(self.find(object.kind, &object.name).is_none(), "{} exists", object.name);
                self.store(object);
            }
            Write::Apply(object) => {
                let existing =
                    self.objects.iter_mut().find(|stored| stored.kind == object.kind && stored.name == object.name);
                match existing {
                    Some(existing) => {
                        let mut desired = object.body.clone();
                        let metadata = desired["metadata"].as_object_mut().unwrap();
                        assert!(metadata.remove("uid").is_none_or(|uid| uid == existing.uid.as_str()));
                        let fixed =
                            existing.kind == Kind::RoleBinding && existing.body["roleRef"] != desired["roleRef"];
                        assert!(!fixed, "cannot change roleRef");
                        merge(&mut existing.body, &desired);
                        count(existing);
                        let both = |spec: &Value| spec["minAvailable"].is_i64() && spec["maxUnavailable"].is_i64();
                        assert!(!both(&existing.body["spec"]), "minAvailable and maxUnavailable exclude each other");
                    }
                    None => self.store(object),
                }
            }
            Write::Delete(target) => {
                let before = self.objects.len();
                self.objects.retain(|object| object.uid != target.uid);
                assert_eq!(self.objects.len() + 1, before, "{target:?} does not exist");
            }
            Write::Adopt { .. } => panic!("objects here have no owner"),
        }
    }

    fn store(&mut self, object: &Object) {
        self.created += 1;
        let mut stored = object.body.clone();
        stored["metadata"]["uid"] = format!("uid-{}", self.created).into();
        let mut object = ManagedObject::from_api(object.kind, stored);
        count(&mut object);
        self.objects.push(object);
    }
}

/// Counts all resources of a quota, as the controller manager does.
fn count(object: &mut ManagedObject) {
    let hard = object.body["spec"]["hard"].as_object();
    let counted = hard.into_iter().flat_map(|hard| hard.keys().cloned()).collect();
    if let Some(quota) = &mut object.quota {
        quota.counted = counted;
    }
}

/// Server-side apply: maps are merged, lists and selectors are replaced.
fn merge(stored: &mut Value, desired: &Value) {
    match (stored, desired) {
        (Value::Object(stored), Value::Object(desired)) => {
            for (field, desired) in desired {
                let atomic = ["selector", "podSelector", "roleRef"].contains(&field.as_str());
                match stored.get_mut(field) {
                    Some(stored) if !atomic => merge(stored, desired),
                    _ => drop(stored.insert(field.clone(), desired.clone())),
                }
            }
        }
        (stored, desired) => *stored = desired.clone(),
    }
}

/// Returns all values that differ from this one by one edit.
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

/// Returns the object as the API server would store it: unknown fields are dropped, and invalid types rejected.
fn normalize(kind: Kind, body: Value) -> Option<Value> {
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
        Kind::Secret
        | Kind::ConfigMap
        | Kind::Service
        | Kind::Pod
        | Kind::PersistentVolumeClaim
        | Kind::PersistentVolume
        | Kind::VolumeSnapshot
        | Kind::VolumeSnapshotContent
        | Kind::DevServer
        | Kind::Disk
        | Kind::DiskOperation => None,
    }
}

/// Returns the fields of an object that have an effect.
fn effective_fields(object: &ManagedObject) -> Value {
    let body = &object.body;
    match object.kind {
        Kind::Namespace => json!([
            body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            body["metadata"]["labels"]["pod-security.kubernetes.io/enforce-version"],
            body["metadata"]["labels"][label::OWNER],
        ]),
        Kind::ServiceAccount => body["automountServiceAccountToken"].clone(),
        Kind::RoleBinding => json!([body["subjects"], body["roleRef"]]),
        Kind::NetworkPolicy => {
            let mut spec = body["spec"].clone();
            // An absent selector selects all pods.
            spec.as_object_mut().unwrap().entry("podSelector").or_insert(json!({}));
            spec
        }
        _ => body["spec"].clone(),
    }
}

fn effective_state(cluster: &Cluster) -> BTreeMap<(Kind, String), Value> {
    cluster.objects.iter().map(|object| ((object.kind, object.name.clone()), effective_fields(object))).collect()
}

fn namespace_of(write: &Write) -> &str {
    let (kind, namespace, name) = match write {
        Write::Apply(object) | Write::Create(object) | Write::CreateWithKeys { secret: object, .. } => {
            (object.kind, &object.namespace, &object.name)
        }
        Write::Delete(target) | Write::Adopt { target, .. } => (target.kind, &target.namespace, &target.name),
    };
    if kind == Kind::Namespace { name } else { namespace.as_deref().unwrap_or_default() }
}

fn describe(writes: &[Write]) -> Vec<String> {
    writes.iter().map(ensure::describe_write).collect()
}

fn ready(plan: &Plan) -> (&str, &str) {
    let ready = condition::find(&plan.status.conditions, Type::Ready).unwrap();
    (&ready.reason, &ready.message)
}

#[test]
fn namespace_is_restricted_before_user_gets_access() {
    let mut cluster = Cluster::default();
    let first = cluster.reconcile(&limited());
    assert_eq!(describe(&first.writes), ["created Namespace dev-ada", "applied RoleBinding odc-operator-tenant"]);
    assert_eq!(ready(&first), ("Incomplete", "Namespace dev-ada is being set up."));
    assert_eq!(first.events, []);
    assert_eq!(
        describe(&cluster.settle(&limited()))[2..],
        [
            "applied LimitRange odc",
            "applied ResourceQuota odc",
            "applied NetworkPolicy odc",
            "applied PodDisruptionBudget odc",
            "applied ServiceAccount odc-user",
            "applied RoleBinding odc-user",
        ]
    );
}

#[test]
fn objects_have_expected_content() {
    let cluster = Cluster::with(&limited());
    let spec = |kind| cluster.find(kind, OBJECT_NAME).unwrap().body["spec"].clone();
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
            "requests.cpu": "8", "requests.memory": "32Gi", "requests.storage": "3Ti", "requests.nvidia.com/gpu": "4",
            "count/disks.odc.dev": "50", "count/diskoperations.odc.dev": "200",
            "count/volumesnapshots.snapshot.storage.k8s.io": "500",
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
    let binding = |name| effective_fields(cluster.find(Kind::RoleBinding, name).unwrap());
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
    assert_eq!(effective_fields(cluster.find(Kind::ServiceAccount, "odc-user").unwrap()), json!(false));
}

#[test]
fn every_edit_of_every_object_is_repaired() {
    let user = limited();
    let pristine = Cluster::with(&user);
    let mut tried = 0;
    for (at, object) in pristine.objects.iter().enumerate() {
        let mut parts: Vec<Value> = vec![];
        for (field, value) in object.body.as_object().unwrap() {
            if ["apiVersion", "kind", "metadata"].contains(&field.as_str()) {
                continue;
            }
            for edit in edits(value).into_iter().chain([Value::Null]) {
                let mut body = object.body.clone();
                body[field] = edit;
                parts.push(body);
            }
        }
        for edit in edits(&object.body["metadata"]["labels"]).into_iter().chain([Value::Null]) {
            let mut body = object.body.clone();
            body["metadata"]["labels"] = edit;
            // Without the label, the namespace does not belong to the user.
            let is_labelled = body["metadata"]["labels"][label::OWNER] == "ada";
            if object.kind != Kind::Namespace || is_labelled {
                parts.push(body);
            }
        }
        for body in parts.into_iter().filter_map(|body| normalize(object.kind, body)) {
            let mut cluster = pristine.clone();
            cluster.objects[at].body = body.clone();
            cluster.settle(&user);
            assert_eq!(effective_state(&cluster), effective_state(&pristine), "after an edit to {body:#}");
            tried += 1;
        }
        if object.kind != Kind::Namespace {
            let mut cluster = pristine.clone();
            cluster.objects.remove(at);
            cluster.settle(&user);
            assert_eq!(
                effective_state(&cluster),
                effective_state(&pristine),
                "without {} {}",
                object.kind.as_str(),
                object.name
            );
        }
    }
    assert!(tried > 250, "only {tried} edits were tested");
}

#[test]
fn budget_with_max_unavailable_is_recreated() {
    let user = limited();
    let mut cluster = Cluster::with(&user);
    let before = effective_state(&cluster);
    let budget = cluster.objects.iter_mut().find(|object| object.kind == Kind::PodDisruptionBudget).unwrap();
    let spec = budget.body["spec"].as_object_mut().unwrap();
    spec.remove("minAvailable");
    spec.insert("maxUnavailable".into(), json!("100%"));
    assert_eq!(
        describe(&cluster.settle(&user)),
        ["deleted PodDisruptionBudget odc", "applied PodDisruptionBudget odc"]
    );
    assert_eq!(effective_state(&cluster), before);
}

#[test]
fn unknown_spec_field_is_kept() {
    let user = limited();
    let mut cluster = Cluster::with(&user);
    for object in &mut cluster.objects {
        if let Some(spec) = object.body["spec"].as_object_mut() {
            spec.insert("fieldOfTheFuture".into(), "Default".into());
        }
    }
    assert_eq!(cluster.settle(&user), []);
}

#[test]
fn foreign_labels_and_annotations_are_kept() {
    let user = limited();
    let mut cluster = Cluster::with(&user);
    for object in &mut cluster.objects {
        object.body["metadata"]["labels"]["example.org/cost"] = "42".into();
        object.body["metadata"]["annotations"] = json!({"example.org/note": "kept"});
    }
    assert_eq!(cluster.settle(&user), []);
}

#[test]
fn removed_limit_is_removed_from_quota() {
    let mut user = limited();
    let mut cluster = Cluster::with(&user);
    user.spec.quota.cpu = None;
    assert_eq!(describe(&cluster.settle(&user)), ["deleted ResourceQuota odc", "applied ResourceQuota odc"]);
    assert_eq!(
        cluster.find(Kind::ResourceQuota, OBJECT_NAME).unwrap().body["spec"]["hard"]["requests.cpu"],
        Value::Null
    );
    user.spec.quota.memory = Some("64Gi".parse().unwrap());
    assert_eq!(describe(&cluster.settle(&user)), ["applied ResourceQuota odc"]);
    user.spec.quota = odc_api::v1alpha1::Quota::default();
    assert_eq!(describe(&cluster.settle(&user)), ["deleted ResourceQuota odc", "applied ResourceQuota odc"]);
    let quota = &cluster.find(Kind::ResourceQuota, OBJECT_NAME).unwrap().body["spec"]["hard"];
    assert!(quota.as_object().unwrap().keys().all(|resource| resource.starts_with("count/")), "{quota}");
}

#[test]
fn auditor_has_no_write_access() {
    let mut user = limited();
    let mut cluster = Cluster::with(&user);
    user.spec.role = Role::Auditor;
    assert_eq!(describe(&cluster.settle(&user)), ["deleted RoleBinding odc-user", "deleted ServiceAccount odc-user"]);
}

#[test]
fn foreign_namespace_is_not_changed() {
    let taken = |labels: Value| {
        let stored = json!({"metadata": {"name": "dev-ada", "uid": "uid-foreign", "labels": labels}});
        let mut cluster = Cluster { objects: vec![ManagedObject::from_api(Kind::Namespace, stored)], created: 0 };
        let mut user = limited();
        let plan = cluster.reconcile(&user);
        assert_eq!((plan.writes.len(), ready(&plan).0, plan.status.namespace.as_ref()), (0, "NamespaceConflict", None));
        assert_eq!(plan.events.len(), 1);
        // The event is published once.
        user.status = Some(plan.status);
        assert_eq!(cluster.reconcile(&user).events, []);
        // Assigned by label.
        cluster.objects[0].body["metadata"]["labels"] = json!({"odc.dev/owner": "ada"});
        let writes = cluster.settle(&user);
        assert_eq!(describe(&writes[..1]), ["applied Namespace dev-ada"]);
        assert!(matches!(&writes[0], Write::Apply(object) if object.body["metadata"]["uid"] == "uid-foreign"));
    };
    taken(Value::Null);
    taken(json!({"odc.dev/owner": "bob"}));
}

#[test]
fn deletion_of_object_is_awaited() {
    let user = limited();
    for at in 0..Cluster::with(&user).objects.len() {
        let mut cluster = Cluster::with(&user);
        cluster.objects[at].is_deleting = true;
        let plan = cluster.reconcile(&user);
        assert_eq!((plan.writes.len(), ready(&plan).0), (0, "Incomplete"), "{}", cluster.objects[at].name);
    }
}

#[test]
fn deleted_user_is_not_reconciled() {
    let mut user = limited();
    user.metadata.deletion_timestamp = Some(to_api_precision(NOW));
    let plan = Cluster::default().reconcile(&user);
    assert_eq!((plan.writes, plan.status), (vec![], DevServerUserStatus::default()));
}

#[test]
fn invalid_user_name_is_reported() {
    let mut user = limited();
    user.metadata.name = Some("a".repeat(60));
    let plan = Cluster::default().reconcile(&user);
    assert_eq!((plan.writes.len(), ready(&plan).0, &plan.status.namespace), (0, "Invalid", &None));
}

#[test]
fn status_lists_teams_and_keeps_usage() {
    let team = |name: &str, members: &[&str]| {
        let mut team = Team::test();
        team.metadata.name = Some(name.into());
        team.spec.members = members.iter().map(|name| name.parse().unwrap()).collect();
        team
    };
    let teams = [team("zebra", &["bob", "ada"]), team("apple", &["ada"]), team("melon", &["bob"])];
    let usage = odc_api::v1alpha1::Usage { device_seconds: 7, at: to_api_precision(NOW) };
    let mut user = limited();
    user.metadata.generation = Some(5);
    user.status = Some(DevServerUserStatus { usage: Some(usage.clone()), ..DevServerUserStatus::default() });
    let observed = Observed { teams: teams.iter().collect(), ..Observed::default() };
    let status = reconcile(&user, &observed, &settings(), NOW).status;
    assert_eq!(status.teams.iter().map(TeamName::as_str).collect::<Vec<_>>(), ["apple", "zebra"]);
    assert_eq!((status.usage, status.observed_generation), (Some(usage), Some(5)));
    assert_eq!(status.namespace, Some("dev-ada".into()));
}

#[test]
fn status_does_not_depend_on_time() {
    let mut user = limited();
    let mut cluster = Cluster::with(&user);
    let first = cluster.reconcile(&user);
    assert_eq!(
        first.events.iter().map(|event| event.note.as_str()).collect::<Vec<_>>(),
        ["Prepared namespace dev-ada"]
    );
    user.status = Some(first.status.clone());
    let observed = Observed {
        namespace: cluster.find(Kind::Namespace, "dev-ada"),
        objects: cluster.objects.iter().collect(),
        teams: vec![],
        devices: ["nvidia.com/gpu".to_owned()].into(),
        has_snapshots: true,
    };
    let later = reconcile(&user, &observed, &settings(), "2026-01-31T09:00:00.5Z".parse().unwrap());
    assert_eq!(later.status.conditions, first.status.conditions);
    assert_eq!((later.events, later.writes), (vec![], vec![]));

    cluster.objects.retain(|object| object.kind != Kind::NetworkPolicy);
    let repair = cluster.reconcile(&user);
    assert_eq!(repair.status, user.status.clone().unwrap());
    assert_eq!(repair.events[0].note, "Applied NetworkPolicy odc in namespace dev-ada");
}

fn server(name: &str) -> Target {
    Target::new(Kind::DevServer, Some("dev-ada"), name, &format!("uid-{name}"))
}

fn clean_up(cluster: &Cluster, contents: &NamespaceContents) -> Vec<Write> {
    let namespace = cluster.find(Kind::Namespace, "dev-ada").unwrap();
    let objects: Vec<&ManagedObject> = cluster.objects.iter().filter(|object| object.kind != Kind::Namespace).collect();
    cleanup(namespace, contents, &objects)
}

#[test]
fn cleanup_deletes_access_then_servers_then_empty_namespace() {
    let mut cluster = Cluster::with(&limited());
    let mut contents =
        NamespaceContents { servers: vec![server("one"), server("two")], claims: 1, ..NamespaceContents::default() };
    let writes = clean_up(&cluster, &contents);
    assert_eq!(
        describe(&writes),
        [
            "deleted RoleBinding odc-user",
            "deleted ServiceAccount odc-user",
            "deleted DevServer one",
            "deleted DevServer two",
        ]
    );
    writes[..2].iter().for_each(|write| cluster.write(write));
    contents.terminating_servers = std::mem::take(&mut contents.servers).len();
    assert_eq!(clean_up(&cluster, &contents), []);
    contents.terminating_servers = 0;
    assert_eq!(clean_up(&cluster, &contents), [], "the namespace contains a claim");
    (contents.claims, contents.pods) = (0, 1);
    assert_eq!(clean_up(&cluster, &contents), [], "the namespace contains a terminating pod");
    (contents.pods, contents.disks) = (0, 1);
    assert_eq!(clean_up(&cluster, &contents), [], "the namespace contains a disk");
    (contents.disks, contents.snapshots) = (0, 1);
    assert_eq!(clean_up(&cluster, &contents), [], "the namespace contains a snapshot");
    contents.snapshots = 0;
    let namespace = cluster.find(Kind::Namespace, "dev-ada").unwrap();
    assert_eq!(clean_up(&cluster, &contents), [Write::Delete(ensure::target(namespace))]);
}

#[test]
fn recreated_user_gets_all_objects_again() {
    let user = limited();
    let mut cluster = Cluster::with(&user);
    let before = effective_state(&cluster);
    for write in &clean_up(&cluster, &NamespaceContents { claims: 1, ..NamespaceContents::default() }) {
        cluster.write(write);
    }
    assert_ne!(effective_state(&cluster), before);
    cluster.settle(&user);
    assert_eq!(effective_state(&cluster), before);
}

#[test]
fn cleanup_ignores_foreign_namespaces() {
    let contents = NamespaceContents { servers: vec![server("one")], ..NamespaceContents::default() };
    let check = |name: &str, labels: Value| {
        let stored = json!({"metadata": {"name": name, "uid": "u", "labels": labels}});
        assert_eq!(cleanup(&ManagedObject::from_api(Kind::Namespace, stored), &contents, &[]), [], "{name} {labels}");
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
    /// Any change of quota and role converges and stays within the namespace.
    #[test]
    fn every_change_converges_within_namespace(
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
        prop_assert_eq!(effective_state(&cluster), effective_state(&Cluster::with(&user)));
        for write in &writes {
            prop_assert_eq!(namespace_of(write), format!("dev-{name}"));
        }
    }

    /// After a crash following any write, the next reconciliation continues.
    #[test]
    fn reconciliation_continues_after_any_prefix_of_plan(quota in any_quota(), stop in 0..8_usize) {
        let user = DevServerUser::test().quota(quota);
        let mut cluster = Cluster::default();
        let all = cluster.settle(&user);
        let expect = effective_state(&cluster);
        let mut crashed = Cluster::default();
        all.iter().take(stop).for_each(|write| crashed.write(write));
        crashed.settle(&user);
        prop_assert_eq!(effective_state(&crashed), expect);
    }

    /// A namespace with a claim, a pod, a server or a role binding is never deleted.
    #[test]
    fn non_empty_namespace_is_never_deleted(
        claims in 0..3_usize, pods in 0..2_usize, servers in 0..3_usize, terminating_servers in 0..2_usize, access: bool,
    ) {
        let mut user = limited();
        user.spec.role = if access { Role::User } else { Role::Auditor };
        let servers: Vec<Target> = (0..servers).map(|number| server(&format!("server-{number}"))).collect();
        let contents = NamespaceContents { claims, pods, servers, terminating_servers, ..NamespaceContents::default() };
        let writes = clean_up(&Cluster::with(&user), &contents);
        let deletes_namespace =
            writes.iter().any(|write| matches!(write, Write::Delete(target) if target.kind == Kind::Namespace));
        let is_empty = contents == NamespaceContents::default() && !access;
        prop_assert_eq!(deletes_namespace, is_empty);
        for write in &writes {
            prop_assert!(matches!(write, Write::Delete(_)));
            prop_assert_eq!(namespace_of(write), "dev-ada");
        }
    }
}
