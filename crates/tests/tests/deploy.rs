//! The manifests of `deploy/`, read from the files: whether they are what their kinds allow, who is given which right,
//! and how safely the control plane runs. Neither a cluster nor kubectl is needed.

#![expect(clippy::unwrap_used, reason = "what a manifest lacks fails the test that looks for it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use odc_api::v1alpha1::{DevServerFlavor, DevServerUser};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What people install from.
const DIRECTORIES: [&str; 3] = ["crds", "base", "local"];

struct Manifest {
    path: PathBuf,
    /// Lies over another one, and is not whole by itself.
    patch: bool,
    body: Value,
}

impl Manifest {
    fn kind(&self) -> &str {
        self.body["kind"].as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.body["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> Option<&str> {
        self.body["metadata"]["namespace"].as_str()
    }

    fn told(&self) -> String {
        format!("{} {} in {}", self.kind(), self.name(), self.path.display())
    }
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn kustomization(name: &str) -> Value {
    documents(&directory(name).join("kustomization.yaml")).remove(0)
}

/// The files that a list of a kustomization names, without directories.
fn files(kustomization: &Value, list: &str) -> BTreeSet<String> {
    let items = kustomization[list].as_array().cloned().unwrap_or_default();
    let names = items.iter().filter_map(|item| item.as_str().or(item["path"].as_str()).map(str::to_owned));
    names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "yaml")).collect()
}

fn manifests() -> Vec<Manifest> {
    let read = |name: &str| {
        let list = kustomization(name);
        let of = |file: String, patch: bool| {
            let path = directory(name).join(file);
            documents(&path)
                .into_iter()
                .map(move |body| Manifest { path: path.clone(), patch, body })
                .collect::<Vec<_>>()
        };
        let whole = files(&list, "resources").into_iter().flat_map(move |file| of(file, false));
        whole.chain(files(&list, "patches").into_iter().flat_map(move |file| of(file, true))).collect::<Vec<_>>()
    };
    DIRECTORIES.into_iter().flat_map(read).collect()
}

fn typed<K: DeserializeOwned>(manifest: &Manifest) -> K {
    serde_json::from_value(manifest.body.clone()).unwrap_or_else(|error| panic!("{}: {error}", manifest.told()))
}

fn all<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    manifests().iter().filter(|manifest| manifest.kind() == kind && !manifest.patch).map(typed).collect()
}

#[test]
fn every_file_is_used_and_there() {
    for name in DIRECTORIES {
        let list = kustomization(name);
        let named: BTreeSet<_> = files(&list, "resources").union(&files(&list, "patches")).cloned().collect();
        let found: BTreeSet<String> = std::fs::read_dir(directory(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|file| file != "kustomization.yaml")
            .collect();
        assert_eq!(named, found, "deploy/{name}/kustomization.yaml");
    }
}

/// Says what is wrong with a manifest of a kind of Kubernetes: a field of the wrong type, or one that does not exist.
fn mistake<K: Serialize + DeserializeOwned>(manifest: &Manifest) -> Option<String> {
    let typed: K = typed(manifest);
    let read = serde_json::to_value(typed).unwrap();
    lost(&manifest.body, &read, "")
}

/// The first field that was written and not read.
fn lost(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(field, value)| {
            let path = format!("{path}.{field}");
            match read.get(field) {
                Some(read) => lost(value, read, &path),
                None => Some(path),
            }
        }),
        (Value::Array(written), Value::Array(read)) if written.len() == read.len() => {
            written.iter().zip(read).find_map(|(written, read)| lost(written, read, &format!("{path}[]")))
        }
        // Amounts may be written as numbers and are read as text.
        (Value::Number(number), Value::String(text)) => (number.to_string() != *text).then(|| path.to_owned()),
        (written, read) => (written != read).then(|| path.to_owned()),
    }
}

#[test]
fn every_manifest_is_what_its_kind_allows() {
    for manifest in manifests() {
        let wrong = match manifest.kind() {
            "Namespace" => mistake::<Namespace>(&manifest),
            "ServiceAccount" => mistake::<ServiceAccount>(&manifest),
            "Role" => mistake::<Role>(&manifest),
            "RoleBinding" => mistake::<RoleBinding>(&manifest),
            "ClusterRole" => mistake::<ClusterRole>(&manifest),
            "ClusterRoleBinding" => mistake::<ClusterRoleBinding>(&manifest),
            "Deployment" => mistake::<Deployment>(&manifest),
            "PodDisruptionBudget" => mistake::<PodDisruptionBudget>(&manifest),
            "NetworkPolicy" => mistake::<NetworkPolicy>(&manifest),
            "PriorityClass" => mistake::<PriorityClass>(&manifest),
            "Service" => mistake::<Service>(&manifest),
            "APIService" => mistake::<APIService>(&manifest),
            // Generated, and compared with the types elsewhere.
            "CustomResourceDefinition" => {
                let _: CustomResourceDefinition = typed(&manifest);
                None
            }
            "DevServerFlavor" => mistake::<DevServerFlavor>(&manifest),
            "DevServerUser" => mistake::<DevServerUser>(&manifest),
            other => panic!("{other} is not known here: {}", manifest.told()),
        };
        assert_eq!(wrong, None, "{}", manifest.told());
        if manifest.body["apiVersion"] == "odc.dev/v1alpha1" {
            assert_eq!(odc_api::check::check_object(&manifest.body, None), Ok(()), "{}", manifest.told());
        }
    }
}

#[test]
fn everything_says_where_it_goes_and_nothing_comes_twice() {
    let mut seen = BTreeSet::new();
    for manifest in manifests().iter().filter(|manifest| !manifest.patch) {
        let namespaced =
            ["ServiceAccount", "Role", "RoleBinding", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service"];
        assert_eq!(manifest.namespace().is_some(), namespaced.contains(&manifest.kind()), "{}", manifest.told());
        // default only for events of objects without a namespace, kube-system only to learn who the front proxy is.
        assert!(manifest.namespace().is_none_or(|namespace| {
            namespace == odc_api::namespace::SYSTEM
                || (namespace == "default" && manifest.name() == "odc-operator-events")
                || (namespace == "kube-system" && manifest.name() == "odc-operator-front-proxy")
        }));
        let key = (manifest.kind().to_owned(), manifest.namespace().map(str::to_owned), manifest.name().to_owned());
        assert!(seen.insert(key), "twice: {}", manifest.told());
    }
}

/// All roles: whether of the whole cluster, name, rules.
fn roles() -> Vec<(bool, String, Vec<PolicyRule>)> {
    let cluster = all::<ClusterRole>("ClusterRole").into_iter().map(|role| (true, role.metadata, role.rules));
    let local = all::<Role>("Role").into_iter().map(|role| (false, role.metadata, role.rules));
    cluster.chain(local).map(|(whole, meta, rules)| (whole, meta.name.unwrap(), rules.unwrap())).collect()
}

fn rules(role: &str) -> Vec<PolicyRule> {
    roles().into_iter().find(|(whole, name, _)| *whole && name == role).unwrap_or_else(|| panic!("no role {role}")).2
}

/// As the API server would answer. A request that carries no name is none that a rule with names allows.
fn allows(rules: &[PolicyRule], verb: &str, group: &str, resource: &str, name: Option<&str>) -> bool {
    let has = |list: Option<&Vec<String>>, wanted: &str| list.is_some_and(|all| all.iter().any(|item| item == wanted));
    rules.iter().any(|rule| {
        let named =
            rule.resource_names.as_ref().is_none_or(|names| names.iter().any(|other| Some(other.as_str()) == name));
        rule.verbs.iter().any(|item| item == verb)
            && has(rule.api_groups.as_ref(), group)
            && has(rule.resources.as_ref(), resource)
            && named
    })
}

#[test]
fn no_right_is_wider_than_it_looks() {
    for (_, role, rules) in roles() {
        for rule in rules {
            let words =
                rule.verbs.iter().chain(rule.api_groups.iter().flatten()).chain(rule.resources.iter().flatten());
            let words: Vec<&String> = words.chain(rule.resource_names.iter().flatten()).collect();
            assert!(!words.iter().any(|word| word.contains('*')), "{role} has a wildcard: {rule:?}");
            assert_eq!(rule.non_resource_urls, None, "{role}");
            for verb in ["escalate", "impersonate", "deletecollection", "approve", "sign"] {
                assert!(!rule.verbs.iter().any(|other| other == verb), "{role} may {verb}");
            }
            if rule.verbs.iter().any(|verb| verb == "bind") {
                let limited = rule.resource_names.clone().unwrap_or_default();
                assert_eq!(limited, ["odc-user", "odc-operator-tenant"], "{role} may bind more than it should");
                assert_eq!(rule.resources.as_deref(), Some(["clusterroles".to_owned()].as_slice()), "{role}");
            }
            for resource in rule.resources.iter().flatten() {
                let forbidden = [
                    "pods/exec",
                    "pods/attach",
                    "pods/ephemeralcontainers",
                    "pods/eviction",
                    "nodes/proxy",
                    "serviceaccounts/token",
                    "clusterrolebindings",
                    "users",
                    "groups",
                ];
                assert!(!forbidden.contains(&resource.as_str()), "{role} reaches {resource}");
            }
        }
    }
}

#[test]
fn nobody_reads_secrets_of_the_whole_cluster() {
    for binding in all::<ClusterRoleBinding>("ClusterRoleBinding") {
        let role = binding.role_ref.name;
        for rule in rules(&role) {
            let resources = rule.resources.unwrap_or_default();
            assert!(!resources.iter().any(|resource| resource.starts_with("secrets")), "{role} is bound everywhere");
        }
    }
    // And what the operator binds in namespaces is bound by nobody else.
    let bound: BTreeSet<String> =
        all::<ClusterRoleBinding>("ClusterRoleBinding").into_iter().map(|binding| binding.role_ref.name).collect();
    assert_eq!(bound, ["odc-operator".to_owned(), "odc-reader".to_owned()].into());
}

#[test]
fn rights_are_these() {
    const NO: bool = false;
    let roles = roles();
    let rbac = "rbac.authorization.k8s.io";
    for (role, verb, group, resource, name, expect) in [
        // People.
        ("odc-user", "create", "odc.dev", "devservers", None, true),
        ("odc-user", "patch", "odc.dev", "devservers/status", None, NO),
        ("odc-user", "list", "", "pods", None, true),
        ("odc-user", "create", "", "pods", None, NO),
        ("odc-user", "delete", "", "pods", None, NO),
        ("odc-user", "get", "", "pods/portforward", None, true),
        ("odc-user", "create", "", "pods/portforward", None, true),
        ("odc-user", "get", "", "secrets", None, NO),
        ("odc-user", "delete", "", "persistentvolumeclaims", None, NO),
        ("odc-user", "patch", "", "namespaces", None, NO),
        ("odc-user", "list", "events.k8s.io", "events", None, true),
        ("odc-user", "list", "", "events", None, true),
        ("odc-reader", "list", "odc.dev", "devserverflavors", None, true),
        ("odc-reader", "list", "odc.dev", "devservers", None, NO),
        ("odc-reader", "get", "odc.dev", "devserverusers", None, NO),
        ("odc-reader", "get", "odc.dev", "teams", None, NO),
        // The operator, everywhere.
        ("odc-operator", "patch", "odc.dev", "devservers/status", None, true),
        ("odc-operator", "patch", "odc.dev", "devservers", None, NO),
        ("odc-operator", "update", "odc.dev", "devserverusers", None, NO),
        ("odc-operator", "delete", "odc.dev", "devservers", None, true),
        ("odc-operator", "create", "", "namespaces", None, true),
        ("odc-operator", "create", "", "pods", None, NO),
        ("odc-operator", "delete", "", "persistentvolumeclaims", None, NO),
        ("odc-operator", "create", rbac, "rolebindings", Some("odc-operator-tenant"), true),
        ("odc-operator", "create", rbac, "rolebindings", Some("odc-user"), NO),
        ("odc-operator", "create", rbac, "rolebindings", None, NO),
        ("odc-operator", "create", rbac, "clusterrolebindings", None, NO),
        ("odc-operator", "bind", rbac, "clusterroles", Some("odc-user"), true),
        ("odc-operator", "bind", rbac, "clusterroles", Some("cluster-admin"), NO),
        // The operator, in users' namespaces.
        ("odc-operator-tenant", "create", "", "pods", None, true),
        ("odc-operator-tenant", "get", "", "secrets", None, true),
        ("odc-operator-tenant", "list", "", "secrets", None, NO),
        ("odc-operator-tenant", "create", rbac, "rolebindings", Some("odc-user"), true),
        ("odc-operator-tenant", "create", rbac, "rolebindings", Some("other"), NO),
        ("odc-operator-tenant", "create", "", "serviceaccounts", Some("odc-user"), true),
        ("odc-operator-tenant", "patch", "", "serviceaccounts", Some("default"), NO),
        ("odc-operator-tenant", "delete", "", "persistentvolumeclaims", None, NO),
        ("odc-operator-tenant", "delete", "networking.k8s.io", "networkpolicies", Some("odc"), NO),
    ] {
        let (_, _, given) = roles.iter().find(|(whole, other, _)| *whole && other == role).unwrap();
        assert_eq!(allows(given, verb, group, resource, name), expect, "{role}: {verb} {resource} {name:?}");
    }
}

#[test]
fn every_rule_says_what_it_is_for() {
    for entry in std::fs::read_dir(directory("base")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let said = pair[0].starts_with('#') || !pair[1].starts_with("- apiGroups:");
            assert!(said, "{}:{}: a rule without its reason", path.display(), number + 2);
        }
    }
}

#[test]
fn the_control_plane_runs_as_restricted_as_it_can() {
    let namespaces: Vec<Namespace> = all("Namespace");
    for namespace in &namespaces {
        let labels = namespace.metadata.labels.clone().unwrap();
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    }
    let deployments: Vec<Deployment> = all("Deployment");
    assert!(!deployments.is_empty());
    for deployment in deployments {
        let spec = deployment.spec.unwrap();
        let labels = spec.template.metadata.unwrap().labels.unwrap();
        let selected = spec.selector.match_labels.unwrap();
        assert!(selected.iter().all(|(name, value)| labels.get(name) == Some(value)), "selects its own pods");
        let pod = spec.template.spec.unwrap();
        let security = pod.security_context.unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert!(security.run_as_user.is_some_and(|user| user > 0), "an image without users needs a number");
        assert!(!pod.host_network.unwrap_or_default() && !pod.host_pid.unwrap_or_default());
        assert!(pod.volumes.unwrap_or_default().iter().all(|volume| volume.host_path.is_none()));
        assert!(pod.service_account_name.is_some());
        for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
            let security = container.security_context.clone().unwrap();
            assert_eq!(security.allow_privilege_escalation, Some(false));
            assert_eq!(security.read_only_root_filesystem, Some(true));
            assert!(!security.privileged.unwrap_or_default());
            let capabilities = security.capabilities.unwrap();
            assert_eq!((capabilities.drop.unwrap(), capabilities.add), (vec!["ALL".to_owned()], None));
            let resources = container.resources.clone().unwrap();
            let (requests, limits) = (resources.requests.unwrap(), resources.limits.unwrap());
            assert!(requests.contains_key("cpu") && requests.contains_key("memory") && limits.contains_key("memory"));
            assert!(container.image.as_ref().is_some_and(|image| !image.is_empty()));
            let probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
            let paths = probes.map(|probe| probe.clone().unwrap().http_get.unwrap().path.unwrap());
            assert_eq!(paths, ["/livez", "/livez", "/readyz"]);
            let env = container.env.iter().flatten();
            assert!(env.clone().all(|variable| variable.name.starts_with("ODC_")));
        }
    }
}

#[test]
fn everything_is_closed_before_something_is_opened() {
    let policies: Vec<NetworkPolicy> = all("NetworkPolicy");
    let closes_all = |policy: &NetworkPolicy| {
        let spec = policy.spec.as_ref().unwrap();
        let everything = spec.pod_selector.as_ref().is_some_and(|selector| *selector == LabelSelector::default());
        everything && spec.ingress.is_none() && spec.egress.is_none()
    };
    assert!(policies.iter().any(closes_all));
    for policy in &policies {
        assert_eq!(policy.spec.as_ref().unwrap().policy_types, Some(vec!["Ingress".to_owned(), "Egress".to_owned()]));
        let ingress = policy.spec.as_ref().unwrap().ingress.iter().flatten();
        // A rule without peers is open to people's servers.
        assert!(ingress.clone().all(|rule| rule.from.as_ref().is_some_and(|from| !from.is_empty())));
    }
}

#[test]
fn dev_servers_push_nobody_out() {
    let classes: Vec<PriorityClass> = all("PriorityClass");
    assert_eq!(classes.len(), 1);
    assert_eq!(classes[0].metadata.name.as_deref(), Some("odc-devserver"));
    assert_eq!(classes[0].preemption_policy.as_deref(), Some("Never"));
    assert!(!classes[0].global_default.unwrap_or_default() && classes[0].value > 0);
}

/// `odc local` replaces these words, wherever one is a whole value.
#[test]
fn a_local_cloud_can_fill_in_its_images() {
    fn count(value: &Value, word: &str) -> usize {
        match value {
            Value::String(text) => usize::from(text == word),
            Value::Array(items) => items.iter().map(|item| count(item, word)).sum(),
            Value::Object(fields) => fields.values().map(|item| count(item, word)).sum(),
            _ => 0,
        }
    }
    let mut local = vec![kustomization("local")];
    local.extend(
        manifests().into_iter().filter(|manifest| manifest.path.starts_with(directory("local"))).map(|it| it.body),
    );
    for word in ["odc-image", "odc-agent-image", "odc-default-image"] {
        assert_eq!(local.iter().map(|value| count(value, word)).sum::<usize>(), 1, "{word}");
    }
    // What the overlay changes is there to be changed.
    let base: Deployment = all("Deployment").remove(0);
    let container = base.spec.unwrap().template.spec.unwrap().containers.remove(0);
    assert_eq!(container.image.as_deref(), Some("odc"));
    let patch = manifests().into_iter().find(|manifest| manifest.patch).unwrap();
    let laid_over = &patch.body["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(laid_over["name"], container.name.as_str());
    let known: BTreeSet<String> = container.env.into_iter().flatten().map(|variable| variable.name).collect();
    for variable in laid_over["env"].as_array().unwrap() {
        let (name, value) = (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
        assert!(name.starts_with("ODC_"), "{name}");
        // A misspelt name would leave the base's image in place.
        assert!(!value.ends_with("-image") || known.contains(name), "{name} is not in the base");
    }
}

#[test]
fn a_local_cloud_has_one_default_flavor() {
    let flavors: Vec<DevServerFlavor> = all("DevServerFlavor");
    assert_eq!(flavors.iter().filter(|flavor| flavor.spec.default).count(), 1);
    assert!(flavors.iter().all(|flavor| flavor.spec.node_selector.contains_key("odc.dev/local-node")));
}
