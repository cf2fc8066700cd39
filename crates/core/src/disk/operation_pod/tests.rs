use odc_api::label;
use odc_api::v1alpha1::{Desired, DiskAction};
use serde_json::{Value, json};

use super::super::simulation::Namespace;
use super::*;
use crate::cluster::VolumeAffinity;

/// Runs an operation and returns the manifests of the objects that are created for it.
fn manifests(namespace: &mut Namespace, action: DiskAction, path: &str) -> Vec<Value> {
    if namespace.servers.is_empty() {
        namespace.add_server("box");
        namespace.settle();
    }
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.to_string();
    namespace.add_operation("op1", action, Some(&point), None);
    let arguments = namespace.operations[0].spec.arguments.as_mut().unwrap();
    arguments.paths = vec![path.into()];
    let mut bodies = Vec::new();
    for _ in 0..20 {
        namespace.run_cluster();
        let plan = namespace.plan(&namespace.disk().clone());
        bodies.extend(plan.operation_writes.into_iter().map(|(uid, write)| {
            assert_eq!(uid, "op1");
            match write {
                Write::Create(object) | Write::CreateWithKeys { secret: object, .. } => object.body,
                other => panic!("{other:?}"),
            }
        }));
        namespace.run_operator();
    }
    let is_new = |index: &usize| !bodies[..*index].contains(&bodies[*index]);
    (0..bodies.len()).filter(is_new).map(|index| bodies[index].clone()).collect()
}

fn of_kind<'a>(bodies: &'a [Value], kind: &str) -> &'a Value {
    bodies.iter().find(|body| body["kind"] == kind).unwrap()
}

#[test]
fn browse_pod_is_restricted_and_mounts_the_point_read_only() {
    let mut namespace = Namespace::new();
    let bodies = manifests(&mut namespace, DiskAction::Browse, "");
    assert_eq!(bodies.len(), 3);
    for body in &bodies {
        assert_eq!(body["metadata"]["labels"][label::OPERATION_UID], "op1");
        assert_eq!(body["metadata"]["labels"][label::DISK_UID], "uid-disk-home");
    }
    let claim = of_kind(&bodies, "PersistentVolumeClaim");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DiskOperation");
    assert_eq!(claim["spec"]["dataSource"]["kind"], "VolumeSnapshot");
    let stored = namespace.claims.iter().find(|claim| claim.operation_uid.is_some()).unwrap();
    let secret = of_kind(&bodies, "Secret");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], stored.uid);
    assert!(secret["stringData"]["authorized_keys"].as_str().unwrap().starts_with("ssh-ed25519 "));
    let pod = of_kind(&bodies, "Pod");
    let spec = &pod["spec"];
    assert_eq!(pod["metadata"]["annotations"][annotation::HOST_KEY], "ssh-ed25519 disk-home-op1-keys");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["priorityClassName"], PRIORITY_CLASS);
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert!(spec["affinity"].is_null());
    let main = &spec["containers"][0];
    assert_eq!(main["resources"]["requests"], json!({"cpu": "100m", "memory": "128Mi"}));
    assert_eq!(main["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(main["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    let home = main["volumeMounts"].as_array().unwrap().iter().find(|mount| mount["mountPath"] == HOME).unwrap();
    assert_eq!(home["readOnly"], true);
    let volumes = spec["volumes"].as_array().unwrap();
    let claims: Vec<&Value> =
        volumes.iter().map(|volume| &volume["persistentVolumeClaim"]).filter(|source| !source.is_null()).collect();
    assert_eq!(claims, [&json!({"claimName": "disk-home-op1", "readOnly": true})]);
}

#[test]
fn pod_of_an_unbound_claim_has_the_affinity_of_the_point() {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    namespace.settle();
    let terms = json!([{"matchExpressions": [{"key": "csi.odc.dev/pool", "operator": "In", "values": ["main"]}]}]);
    let affinity = VolumeAffinity::from_annotation(&json!({"nodeSelectorTerms": terms}).to_string());
    namespace.volumes[0].affinity = affinity;
    namespace.wait_for_consumers();
    let bodies = manifests(&mut namespace, DiskAction::Browse, "");
    let nodes = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    assert_eq!(of_kind(&bodies, "Pod").pointer(nodes), Some(&terms));
}

#[test]
fn pod_tolerates_the_taints_that_flavors_tolerate() {
    let mut namespace = Namespace::new();
    let toleration = |key: &str| {
        let toleration = json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
        serde_json::from_value(toleration).unwrap()
    };
    let (mut small, mut large) = (DevServerFlavor::test(), DevServerFlavor::test());
    small.spec.tolerations = vec![toleration("gpu")];
    large.spec.tolerations = vec![toleration("gpu"), toleration("large"), toleration("node.kubernetes.io/not-ready")];
    namespace.flavors = vec![small, large];
    let bodies = manifests(&mut namespace, DiskAction::Browse, "");
    let tolerations = of_kind(&bodies, "Pod")["spec"]["tolerations"].as_array().unwrap();
    let keys: Vec<&Value> = tolerations.iter().map(|toleration| &toleration["key"]).collect();
    assert_eq!(keys, ["gpu", "large"]);
}

#[test]
fn restore_pod_writes_to_the_disk_only() {
    let mut namespace = Namespace::new();
    let bodies = manifests(&mut namespace, DiskAction::Restore, "$(HOME)/a b");
    let spec = &of_kind(&bodies, "Pod")["spec"];
    let claim = namespace.disk().status.as_ref().unwrap().claim.clone().unwrap();
    let sources: Vec<&Value> =
        spec["volumes"].as_array().unwrap().iter().map(|volume| &volume["persistentVolumeClaim"]).collect();
    assert_eq!(
        sources,
        [&json!({"claimName": "disk-home-op1", "readOnly": true}), &json!({"claimName": claim.as_str()})]
    );
    let main = &spec["containers"][0];
    let command: Vec<&str> = main["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(command[..2], ["/odc-agent", "copy-paths"]);
    // Kubernetes does not expand the variable.
    assert_eq!(command[command.len() - 2..], ["--", "$$(HOME)/a b"]);
    let context = &main["securityContext"];
    assert_eq!(
        (&context["allowPrivilegeEscalation"], &context["readOnlyRootFilesystem"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    assert!(spec["securityContext"]["fsGroup"].is_null(), "files get another group");
    assert_eq!((&spec["restartPolicy"], &spec["activeDeadlineSeconds"]), (&json!("Never"), &json!(3600)));
}

#[test]
fn diff_pod_mounts_both_states_read_only() {
    let bodies = manifests(&mut Namespace::new(), DiskAction::Diff, "");
    let spec = &of_kind(&bodies, "Pod")["spec"];
    let sources: Vec<&Value> =
        spec["volumes"].as_array().unwrap().iter().map(|volume| &volume["persistentVolumeClaim"]).collect();
    assert_eq!(
        sources,
        [
            &json!({"claimName": "disk-home-op1-from", "readOnly": true}),
            &json!({"claimName": "disk-home-op1-to", "readOnly": true})
        ]
    );
}
