//! Checks of `deploy/csi`: the driver is the only privileged container, and no class deletes data.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Manifest, check_rule_comments, directory, files, invalid_field, kustomization, read_manifests, typed};

const BASE: &str = "csi/base";
const LOCAL: &str = "local/csi";
const VARIANTS: [&str; 3] = ["csi/shared-pool", "csi/node-pools", LOCAL];
const DRIVER: &str = "csi.odc.dev";
const NAMESPACE: &str = "odc-csi";

fn one<K: DeserializeOwned>(kind: &str) -> K {
    let manifests = read_manifests(&[BASE]);
    let of_kind: Vec<&Manifest> = manifests.iter().filter(|manifest| manifest.kind() == kind).collect();
    assert_eq!(of_kind.len(), 1, "{kind}");
    typed(of_kind[0])
}

#[test]
fn kustomizations_list_every_file() {
    for name in [BASE].iter().chain(&VARIANTS) {
        let list = kustomization(name);
        let found: BTreeSet<String> = std::fs::read_dir(directory(name))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|file| file != "kustomization.yaml")
            .collect();
        assert_eq!(files(&list, "resources"), found, "deploy/{name}/kustomization.yaml");
    }
}

#[test]
fn manifests_match_their_types_and_are_in_the_namespace() {
    let cluster_scoped =
        ["Namespace", "ClusterRole", "ClusterRoleBinding", "CSIDriver", "StorageClass", "VolumeSnapshotClass"];
    for manifest in read_manifests(&[BASE]) {
        let invalid = match manifest.kind() {
            "Namespace" => invalid_field::<Namespace>(&manifest),
            "ServiceAccount" => invalid_field::<ServiceAccount>(&manifest),
            "Role" => invalid_field::<Role>(&manifest),
            "RoleBinding" => invalid_field::<RoleBinding>(&manifest),
            "ClusterRole" => invalid_field::<ClusterRole>(&manifest),
            "ClusterRoleBinding" => invalid_field::<ClusterRoleBinding>(&manifest),
            "DaemonSet" => invalid_field::<DaemonSet>(&manifest),
            "Deployment" => invalid_field::<Deployment>(&manifest),
            "CSIDriver" => invalid_field::<CSIDriver>(&manifest),
            "StorageClass" => invalid_field::<StorageClass>(&manifest),
            // The type of another project.
            "VolumeSnapshotClass" => None,
            other => panic!("unknown kind {other}: {}", manifest.describe()),
        };
        assert_eq!(invalid, None, "{}", manifest.describe());
        let namespace = (!cluster_scoped.contains(&manifest.kind())).then_some(NAMESPACE);
        assert_eq!(manifest.namespace(), namespace, "{}", manifest.describe());
    }
}

#[test]
fn classes_keep_data() {
    let class: StorageClass = one("StorageClass");
    assert_eq!(class.provisioner, DRIVER);
    assert_eq!(class.reclaim_policy.as_deref(), Some("Retain"));
    assert_eq!(class.volume_binding_mode.as_deref(), Some("WaitForFirstConsumer"));
    assert_eq!(class.allow_volume_expansion, Some(true));
    let snapshot: Value = one("VolumeSnapshotClass");
    assert_eq!((&snapshot["driver"], &snapshot["deletionPolicy"]), (&DRIVER.into(), &"Retain".into()));
}

#[test]
fn driver_never_changes_the_owner_of_files() {
    let driver: CSIDriver = one("CSIDriver");
    assert_eq!(driver.metadata.name.as_deref(), Some(DRIVER));
    assert_eq!(driver.spec.fs_group_policy.as_deref(), Some("None"));
    assert_eq!((driver.spec.attach_required, driver.spec.storage_capacity), (Some(false), Some(true)));
}

fn check_hardening(container: &Container) {
    let security = container.security_context.clone().unwrap();
    assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
    let resources = container.resources.clone().unwrap();
    let (requests, limits) = (resources.requests.unwrap(), resources.limits.unwrap());
    assert!(requests.contains_key("cpu") && requests.contains_key("memory") && limits.contains_key("memory"));
    if container.name == "odc-csi" {
        assert_eq!(security.privileged, Some(true));
        return;
    }
    assert!(!security.privileged.unwrap_or_default(), "{}", container.name);
    assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
    assert_eq!(security.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]), "{}", container.name);
}

#[test]
fn only_the_driver_is_privileged() {
    let pods = [
        one::<DaemonSet>("DaemonSet").spec.unwrap().template.spec.unwrap(),
        one::<Deployment>("Deployment").spec.unwrap().template.spec.unwrap(),
    ];
    for pod in pods {
        assert!(!pod.host_network.unwrap_or_default() && !pod.host_pid.unwrap_or_default());
        pod.containers.iter().for_each(check_hardening);
    }
}

#[test]
fn roles_have_no_wildcards_and_no_secrets() {
    let rules =
        |manifest: &Manifest| -> Vec<PolicyRule> { serde_json::from_value(manifest.body["rules"].clone()).unwrap() };
    for manifest in read_manifests(&[BASE]).iter().filter(|manifest| manifest.kind().ends_with("Role")) {
        for rule in rules(manifest) {
            let values =
                rule.verbs.iter().chain(rule.api_groups.iter().flatten()).chain(rule.resources.iter().flatten());
            assert!(!values.clone().any(|value| value.contains('*')), "{}", manifest.describe());
            let forbidden =
                ["escalate", "bind", "impersonate", "deletecollection", "secrets", "pods/exec", "nodes/proxy"];
            assert!(!values.clone().any(|value| forbidden.contains(&value.as_str())), "{}", manifest.describe());
        }
    }
    check_rule_comments(BASE);
}

/// The index of a container in a patch must be that of the base; kubectl is not needed to notice.
#[test]
fn patches_of_the_variants_name_the_containers_of_the_base() {
    let containers = |kind: &str| -> Vec<String> {
        let manifests = read_manifests(&[BASE]);
        let manifest = manifests.iter().find(|manifest| manifest.kind() == kind).unwrap();
        let list = manifest.body["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
        list.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
    };
    for variant in VARIANTS {
        for patch in kustomization(variant)["patches"].as_array().unwrap() {
            let text = patch["patch"].as_str().unwrap();
            let mut operations: Vec<Value> = serde_saphyr::from_str(text).unwrap();
            operations.retain(|operation| operation["path"].as_str().unwrap().contains("/containers/"));
            if operations.is_empty() {
                continue;
            }
            let names = containers(patch["target"]["kind"].as_str().unwrap());
            let index = |operation: &Value| -> usize {
                let path = operation["path"].as_str().unwrap().to_owned();
                path.split('/').nth(5).unwrap().parse().unwrap()
            };
            let (tests, additions): (Vec<_>, Vec<_>) =
                operations.iter().partition(|operation| operation["op"] == "test");
            for test in &tests {
                assert_eq!(test["value"], names[index(test)].as_str(), "{variant}");
            }
            let tested: BTreeSet<usize> = tests.iter().map(|test| index(test)).collect();
            assert!(additions.iter().all(|addition| tested.contains(&index(addition))), "{variant}");
        }
    }
}

/// `odc local` replaces the placeholders where one is an entire value.
#[test]
fn local_overlay_replaces_every_image() {
    let containers = |kind: &str| -> Vec<Container> {
        let manifests = read_manifests(&[BASE]);
        let manifest = manifests.iter().find(|manifest| manifest.kind() == kind).unwrap();
        serde_json::from_value(manifest.body["spec"]["template"]["spec"]["containers"].clone()).unwrap()
    };
    let all = containers("DaemonSet").into_iter().chain(containers("Deployment"));
    let used: BTreeSet<String> = all.map(|container| container.image.unwrap()).collect();
    let images = kustomization(LOCAL)["images"].as_array().unwrap().clone();
    let replaced: BTreeSet<String> = images.iter().map(|image| image["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(replaced, used);
    for image in images {
        let placeholder = if image["name"] == "odc-csi" { "odc-csi-image" } else { "csi-sidecars-image" };
        assert_eq!(image["newName"], placeholder);
    }
}
