//! Checks of the manifests in `deploy/`: schema, permissions and hardening. They need neither a cluster nor kubectl.

#![expect(clippy::unwrap_used, reason = "a missing field fails the test")]

#[path = "deploy/csi.rs"]
mod csi;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
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

/// Kustomizations to install from.
const DIRECTORIES: [&str; 5] = ["crds", "base", "base/service", "local", "local/service"];

struct Manifest {
    path: PathBuf,
    /// A patch for another manifest.
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

    fn describe(&self) -> String {
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

/// Returns the files in a list of a kustomization, without directories.
fn files(kustomization: &Value, list: &str) -> BTreeSet<String> {
    let items = kustomization[list].as_array().cloned().unwrap_or_default();
    let names = items.iter().filter_map(|item| item.as_str().or(item["path"].as_str()).map(str::to_owned));
    names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "yaml")).collect()
}

fn manifests() -> Vec<Manifest> {
    read_manifests(&DIRECTORIES)
}

fn read_manifests(directories: &[&str]) -> Vec<Manifest> {
    let read = |name: &str| {
        let list = kustomization(name);
        let read_file = |file: String, patch: bool| {
            let path = directory(name).join(file);
            documents(&path)
                .into_iter()
                .map(move |body| Manifest { path: path.clone(), patch, body })
                .collect::<Vec<_>>()
        };
        let resources = files(&list, "resources").into_iter().flat_map(move |file| read_file(file, false));
        resources
            .chain(files(&list, "patches").into_iter().flat_map(move |file| read_file(file, true)))
            .collect::<Vec<_>>()
    };
    directories.iter().copied().flat_map(read).collect()
}

fn typed<K: DeserializeOwned>(manifest: &Manifest) -> K {
    serde_json::from_value(manifest.body.clone()).unwrap_or_else(|error| panic!("{}: {error}", manifest.describe()))
}

fn all<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    manifests().iter().filter(|manifest| manifest.kind() == kind && !manifest.patch).map(typed).collect()
}

#[test]
fn kustomizations_list_every_file() {
    for name in DIRECTORIES {
        let list = kustomization(name);
        let listed: BTreeSet<_> = files(&list, "resources").union(&files(&list, "patches")).cloned().collect();
        let found: BTreeSet<String> = std::fs::read_dir(directory(name))
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.path().is_file())
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|file| file != "kustomization.yaml")
            .collect();
        assert_eq!(listed, found, "deploy/{name}/kustomization.yaml");
    }
}

/// Returns the path of a field with a wrong type or an unknown name.
fn invalid_field<K: Serialize + DeserializeOwned>(manifest: &Manifest) -> Option<String> {
    let typed: K = typed(manifest);
    let parsed = serde_json::to_value(typed).unwrap();
    lost_field(&manifest.body, &parsed, "")
}

/// Returns the first field of the manifest that the type does not contain.
fn lost_field(written: &Value, parsed: &Value, path: &str) -> Option<String> {
    match (written, parsed) {
        (Value::Object(written), Value::Object(parsed)) => written.iter().find_map(|(field, value)| {
            let path = format!("{path}.{field}");
            match parsed.get(field) {
                Some(parsed) => lost_field(value, parsed, &path),
                None => Some(path),
            }
        }),
        (Value::Array(written), Value::Array(parsed)) if written.len() == parsed.len() => {
            written.iter().zip(parsed).find_map(|(written, parsed)| lost_field(written, parsed, &format!("{path}[]")))
        }
        // Quantities may be numbers and parse as strings.
        (Value::Number(number), Value::String(text)) => (number.to_string() != *text).then(|| path.to_owned()),
        (written, parsed) => (written != parsed).then(|| path.to_owned()),
    }
}

#[test]
fn manifests_match_their_types() {
    for manifest in manifests() {
        let invalid = match manifest.kind() {
            "Namespace" => invalid_field::<Namespace>(&manifest),
            "ServiceAccount" => invalid_field::<ServiceAccount>(&manifest),
            "Role" => invalid_field::<Role>(&manifest),
            "RoleBinding" => invalid_field::<RoleBinding>(&manifest),
            "ClusterRole" => invalid_field::<ClusterRole>(&manifest),
            "ClusterRoleBinding" => invalid_field::<ClusterRoleBinding>(&manifest),
            "Deployment" => invalid_field::<Deployment>(&manifest),
            "Job" => invalid_field::<Job>(&manifest),
            "PodDisruptionBudget" => invalid_field::<PodDisruptionBudget>(&manifest),
            "NetworkPolicy" => invalid_field::<NetworkPolicy>(&manifest),
            "PriorityClass" => invalid_field::<PriorityClass>(&manifest),
            "Service" => invalid_field::<Service>(&manifest),
            "APIService" => invalid_field::<APIService>(&manifest),
            "ValidatingAdmissionPolicy" => invalid_field::<ValidatingAdmissionPolicy>(&manifest),
            "ValidatingAdmissionPolicyBinding" => invalid_field::<ValidatingAdmissionPolicyBinding>(&manifest),
            // Generated from the types, and compared with them elsewhere.
            "CustomResourceDefinition" => {
                let _: CustomResourceDefinition = typed(&manifest);
                None
            }
            "DevServerFlavor" => invalid_field::<DevServerFlavor>(&manifest),
            "DevServerUser" => invalid_field::<DevServerUser>(&manifest),
            other => panic!("unknown kind {other}: {}", manifest.describe()),
        };
        assert_eq!(invalid, None, "{}", manifest.describe());
        if manifest.body["apiVersion"] == "odc.dev/v1alpha1" {
            assert_eq!(odc_api::check::check_object(&manifest.body, None), Ok(()), "{}", manifest.describe());
        }
    }
}

#[test]
fn manifests_have_a_namespace_and_are_unique() {
    let mut unique = BTreeSet::new();
    for manifest in manifests().iter().filter(|manifest| !manifest.patch) {
        let namespaced = [
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "Deployment",
            "Job",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "Service",
        ];
        assert_eq!(manifest.namespace().is_some(), namespaced.contains(&manifest.kind()), "{}", manifest.describe());
        // `default` is for events of cluster-scoped objects, `kube-system` for the CA of the front proxy.
        assert!(manifest.namespace().is_none_or(|namespace| {
            namespace == odc_api::namespace::SYSTEM
                || (namespace == "default" && manifest.name() == "odc-operator-events")
                || (namespace == "kube-system" && manifest.name() == "odc-operator-front-proxy")
        }));
        let key = (manifest.kind().to_owned(), manifest.namespace().map(str::to_owned), manifest.name().to_owned());
        assert!(unique.insert(key), "duplicate: {}", manifest.describe());
    }
}

/// Returns all roles: cluster-scoped or not, name, rules.
fn roles() -> Vec<(bool, String, Vec<PolicyRule>)> {
    let cluster = all::<ClusterRole>("ClusterRole").into_iter().map(|role| (true, role.metadata, role.rules));
    let local = all::<Role>("Role").into_iter().map(|role| (false, role.metadata, role.rules));
    cluster
        .chain(local)
        .map(|(cluster_scoped, meta, rules)| (cluster_scoped, meta.name.unwrap(), rules.unwrap()))
        .collect()
}

fn rules(role: &str) -> Vec<PolicyRule> {
    roles()
        .into_iter()
        .find(|(cluster_scoped, name, _)| *cluster_scoped && name == role)
        .unwrap_or_else(|| panic!("no role {role}"))
        .2
}

/// Reports whether the API server would allow a request. Rules with names do not allow requests without one.
fn allows(rules: &[PolicyRule], verb: &str, group: &str, resource: &str, name: Option<&str>) -> bool {
    let has = |list: Option<&Vec<String>>, value: &str| list.is_some_and(|all| all.iter().any(|item| item == value));
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
fn roles_have_no_wildcards_or_dangerous_verbs() {
    for (_, role, rules) in roles() {
        for rule in rules {
            let values =
                rule.verbs.iter().chain(rule.api_groups.iter().flatten()).chain(rule.resources.iter().flatten());
            let values: Vec<&String> = values.chain(rule.resource_names.iter().flatten()).collect();
            assert!(!values.iter().any(|value| value.contains('*')), "{role} has a wildcard: {rule:?}");
            assert_eq!(rule.non_resource_urls, None, "{role}");
            for verb in ["escalate", "impersonate", "deletecollection", "approve", "sign"] {
                assert!(!rule.verbs.iter().any(|other| other == verb), "{role} may {verb}");
            }
            if rule.verbs.iter().any(|verb| verb == "bind") {
                let limited = rule.resource_names.clone().unwrap_or_default();
                assert_eq!(limited, ["odc-user", "odc-operator-tenant"], "{role} may bind other roles");
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
                assert!(!forbidden.contains(&resource.as_str()), "{role} has {resource}");
            }
        }
    }
}

#[test]
fn no_cluster_role_binding_grants_secrets() {
    for binding in all::<ClusterRoleBinding>("ClusterRoleBinding") {
        let role = binding.role_ref.name;
        for rule in rules(&role) {
            let resources = rule.resources.unwrap_or_default();
            assert!(!resources.iter().any(|resource| resource.starts_with("secrets")), "{role} is bound cluster-wide");
        }
    }
    // Roles that the operator binds in namespaces have no cluster-wide binding.
    let bound: BTreeSet<String> =
        all::<ClusterRoleBinding>("ClusterRoleBinding").into_iter().map(|binding| binding.role_ref.name).collect();
    assert_eq!(bound, ["odc-api", "odc-operator", "odc-reader", "odc-worker"].map(str::to_owned).into());
}

#[test]
fn roles_grant_exactly_these_permissions() {
    const NO: bool = false;
    let roles = roles();
    let rbac = "rbac.authorization.k8s.io";
    for (role, verb, group, resource, name, expected) in [
        // Users.
        ("odc-user", "create", "odc.dev", "devservers", None, true),
        ("odc-user", "patch", "odc.dev", "devservers/status", None, NO),
        ("odc-user", "create", "odc.dev", "disks", None, true),
        ("odc-user", "patch", "odc.dev", "disks/status", None, NO),
        ("odc-user", "patch", "odc.dev", "diskoperations", None, NO),
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
        // The operator, cluster-wide.
        ("odc-operator", "patch", "odc.dev", "devservers/status", None, true),
        ("odc-operator", "patch", "odc.dev", "devservers", None, NO),
        ("odc-operator", "update", "odc.dev", "devserverusers", None, NO),
        ("odc-operator", "delete", "odc.dev", "devservers", None, true),
        ("odc-operator", "create", "", "namespaces", None, true),
        ("odc-operator", "create", "", "pods", None, NO),
        ("odc-operator", "delete", "", "persistentvolumeclaims", None, NO),
        ("odc-operator", "patch", "", "persistentvolumes", None, true),
        ("odc-operator", "delete", "", "persistentvolumes", None, NO),
        ("odc-operator", "delete", "snapshot.storage.k8s.io", "volumesnapshotcontents", None, NO),
        ("odc-operator", "create", rbac, "rolebindings", Some("odc-operator-tenant"), true),
        ("odc-operator", "create", rbac, "rolebindings", Some("odc-user"), NO),
        ("odc-operator", "create", rbac, "rolebindings", None, NO),
        ("odc-operator", "create", rbac, "clusterrolebindings", None, NO),
        ("odc-operator", "bind", rbac, "clusterroles", Some("odc-user"), true),
        ("odc-operator", "bind", rbac, "clusterroles", Some("cluster-admin"), NO),
        // The operator, in the namespaces of users.
        ("odc-operator-tenant", "create", "", "pods", None, true),
        ("odc-operator-tenant", "get", "", "secrets", None, true),
        ("odc-operator-tenant", "list", "", "secrets", None, NO),
        ("odc-operator-tenant", "create", rbac, "rolebindings", Some("odc-user"), true),
        ("odc-operator-tenant", "create", rbac, "rolebindings", Some("other"), NO),
        ("odc-operator-tenant", "create", "", "serviceaccounts", Some("odc-user"), true),
        ("odc-operator-tenant", "patch", "", "serviceaccounts", Some("default"), NO),
        // A policy confines it to claims of disks.
        ("odc-operator-tenant", "delete", "", "persistentvolumeclaims", None, true),
        ("odc-operator-tenant", "create", "odc.dev", "disks", None, true),
        ("odc-operator-tenant", "patch", "snapshot.storage.k8s.io", "volumesnapshots", None, true),
        ("odc-operator-tenant", "create", "", "configmaps", None, true),
        ("odc-operator-tenant", "list", "", "configmaps", None, NO),
        ("odc-operator-tenant", "delete", "networking.k8s.io", "networkpolicies", Some("odc"), NO),
        // The API only reads.
        ("odc-api", "watch", "odc.dev", "devservers", None, true),
        ("odc-api", "create", "odc.dev", "devservers", None, NO),
        ("odc-api", "patch", "odc.dev", "devservers", None, NO),
        ("odc-api", "create", "queue.odc.dev", "heartbeats", None, true),
        ("odc-api", "create", "", "pods", None, NO),
        ("odc-api", "list", "", "configmaps", None, NO),
        // The worker writes specs. It ends servers by their spec, and deletes finished ones.
        ("odc-worker", "create", "odc.dev", "devservers", None, true),
        ("odc-worker", "delete", "odc.dev", "devservers", None, true),
        ("odc-worker", "patch", "odc.dev", "devservers/status", None, NO),
        ("odc-worker", "patch", "odc.dev", "diskoperations", None, NO),
        ("odc-worker", "create", "", "pods", None, NO),
    ] {
        let (_, _, granted) = roles.iter().find(|(cluster_scoped, other, _)| *cluster_scoped && other == role).unwrap();
        assert_eq!(allows(granted, verb, group, resource, name), expected, "{role}: {verb} {resource} {name:?}");
    }
}

#[test]
fn every_rule_has_a_comment() {
    check_rule_comments("base");
    check_rule_comments("base/service");
}

fn check_rule_comments(name: &str) {
    for entry in std::fs::read_dir(directory(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let documented = pair[0].starts_with('#') || !pair[1].starts_with("- apiGroups:");
            assert!(documented, "{}:{}: a rule without a comment", path.display(), number + 2);
        }
    }
}

#[test]
fn deployments_meet_the_restricted_pod_security_standard() {
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
        assert!(
            selected.iter().all(|(name, value)| labels.get(name) == Some(value)),
            "the selector must match the pods"
        );
        let pod = spec.template.spec.unwrap();
        let security = pod.security_context.unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        assert_eq!(security.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert!(
            security.run_as_user.is_some_and(|user| user > 0),
            "the image has no users, so the uid must be numeric"
        );
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
            let known = |name: &str| name.starts_with("ODC_") || name == "DATABASE_URL";
            assert!(env.clone().all(|variable| known(&variable.name)));
        }
    }
}

#[test]
fn network_policies_deny_by_default() {
    let policies: Vec<NetworkPolicy> = all("NetworkPolicy");
    let denies_all = |policy: &NetworkPolicy| {
        let spec = policy.spec.as_ref().unwrap();
        let everything = spec.pod_selector.as_ref().is_some_and(|selector| *selector == LabelSelector::default());
        everything && spec.ingress.is_none() && spec.egress.is_none()
    };
    assert!(policies.iter().any(denies_all));
    for policy in &policies {
        assert_eq!(policy.spec.as_ref().unwrap().policy_types, Some(vec!["Ingress".to_owned(), "Egress".to_owned()]));
        let ingress = policy.spec.as_ref().unwrap().ingress.iter().flatten();
        // A rule without peers would admit traffic of servers.
        assert!(ingress.clone().all(|rule| rule.from.as_ref().is_some_and(|from| !from.is_empty())));
    }
}

#[test]
fn priority_class_never_preempts() {
    let classes: Vec<PriorityClass> = all("PriorityClass");
    assert_eq!(classes.len(), 1);
    assert_eq!(classes[0].metadata.name.as_deref(), Some("odc-devserver"));
    assert_eq!(classes[0].preemption_policy.as_deref(), Some("Never"));
    assert!(!classes[0].global_default.unwrap_or_default() && classes[0].value > 0);
}

/// `odc local` replaces these placeholders where one is an entire value.
#[test]
fn local_overlay_has_every_image_placeholder() {
    fn count(value: &Value, placeholder: &str) -> usize {
        match value {
            Value::String(text) => usize::from(text == placeholder),
            Value::Array(items) => items.iter().map(|item| count(item, placeholder)).sum(),
            Value::Object(fields) => fields.values().map(|item| count(item, placeholder)).sum(),
            _ => 0,
        }
    }
    let mut local = vec![kustomization("local")];
    local.extend(
        manifests()
            .into_iter()
            .filter(|manifest| manifest.path.parent() == Some(&*directory("local")))
            .map(|manifest| manifest.body),
    );
    for placeholder in ["odc-image", "odc-agent-image", "odc-default-image"] {
        assert_eq!(local.iter().map(|value| count(value, placeholder)).sum::<usize>(), 1, "{placeholder}");
    }
    // The overlay patches fields that exist in the base.
    let mut deployments: Vec<Deployment> = all("Deployment");
    deployments.retain(|deployment| deployment.metadata.name.as_deref() == Some("odc-operator"));
    let base = deployments.remove(0);
    let container = base.spec.unwrap().template.spec.unwrap().containers.remove(0);
    assert_eq!(container.image.as_deref(), Some("odc"));
    let patch = manifests().into_iter().find(|manifest| manifest.patch && manifest.name() == "odc-operator").unwrap();
    let patched = &patch.body["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(patched["name"], container.name.as_str());
    let known: BTreeSet<String> = container.env.into_iter().flatten().map(|variable| variable.name).collect();
    for variable in patched["env"].as_array().unwrap() {
        let (name, value) = (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
        assert!(name.starts_with("ODC_"), "{name}");
        // A wrong name would keep the image of the base.
        assert!(!value.ends_with("-image") || known.contains(name), "{name} is not in the base");
    }
}

#[test]
fn local_overlay_has_one_default_flavor() {
    let flavors: Vec<DevServerFlavor> = all("DevServerFlavor");
    assert_eq!(flavors.iter().filter(|flavor| flavor.spec.default).count(), 1);
    assert!(flavors.iter().all(|flavor| flavor.spec.node_selector.contains_key("odc.dev/local-node")));
}
