//! A check of the Pod Security Standards `baseline` and `restricted` on manifests, independent of the builders.

use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Baseline,
    Restricted,
}

/// Returns the violations of a manifest.
pub fn violations(pod: &Value, level: Level) -> Vec<String> {
    let spec = &pod["spec"];
    let mut violations = Vec::new();
    let mut check = |allowed: bool, field: &str| {
        if !allowed {
            violations.push(field.to_owned());
        }
    };
    for namespace in ["hostNetwork", "hostPID", "hostIPC"] {
        check(spec[namespace] != true, namespace);
    }
    let contexts = || [&spec["securityContext"]].into_iter().chain(containers(pod).map(|one| &one["securityContext"]));
    for volume in list(&spec["volumes"]) {
        let restricted = ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"];
        let kinds: Vec<&String> = volume.as_object().unwrap().keys().filter(|key| *key != "name").collect();
        check(volume.get("hostPath").is_none(), "hostPath");
        let allowed = |kind: &&String| restricted.contains(&kind.as_str()) || *kind == "projected" || *kind == "secret";
        check(level == Level::Baseline || kinds.iter().all(allowed), "volume type");
    }
    for context in contexts() {
        let seccomp = &context["seccompProfile"]["type"];
        check(seccomp != "Unconfined", "seccomp Unconfined");
        check(context["procMount"].is_null() || context["procMount"] == "Default", "procMount");
        check(list(&context["sysctls"]).next().is_none(), "sysctls");
        check(context["seLinuxOptions"].is_null(), "seLinuxOptions");
        check(context["appArmorProfile"].is_null(), "appArmorProfile");
        check(level == Level::Baseline || context["runAsUser"] != 0, "runAsUser 0");
    }
    for container in containers(pod) {
        let context = &container["securityContext"];
        check(context["privileged"] != true, "privileged");
        check(list(&container["ports"]).all(|port| port["hostPort"].is_null()), "hostPort");
        check(list(&context["capabilities"]["add"]).next().is_none(), "added capabilities");
        if level == Level::Restricted {
            let of_pod = &spec["securityContext"];
            let effective = |field: &str| if context[field].is_null() { &of_pod[field] } else { &context[field] };
            check(context["allowPrivilegeEscalation"] == false, "allowPrivilegeEscalation");
            check(effective("runAsNonRoot") == true, "runAsNonRoot");
            check(list(&context["capabilities"]["drop"]).any(|dropped| dropped == "ALL"), "capabilities not dropped");
            let seccomp = &effective("seccompProfile")["type"];
            check(seccomp == "RuntimeDefault" || seccomp == "Localhost", "seccomp not set");
        }
    }
    violations
}

/// Returns containers of all types.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| list(&pod["spec"][field]))
}

pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[test]
fn violations_are_detected() {
    let compliant = serde_json::json!({"spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
    }});
    assert!(violations(&compliant, Level::Restricted).is_empty());
    let with = |pointer: &str, value: Value| {
        let mut pod = compliant.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value;
        pod
    };
    let host_path = serde_json::json!([{"name": "root", "hostPath": {"path": "/"}}]);
    for (pointer, value, level) in [
        ("/spec/hostNetwork", true.into(), Level::Baseline),
        ("/spec/hostPID", true.into(), Level::Baseline),
        ("/spec/volumes", host_path, Level::Baseline),
        ("/spec/containers/0/securityContext/privileged", true.into(), Level::Baseline),
        ("/spec/containers/0/ports", serde_json::json!([{"hostPort": 22}]), Level::Baseline),
        ("/spec/containers/0/securityContext/runAsUser", 0.into(), Level::Restricted),
        ("/spec/containers/0/securityContext/runAsNonRoot", false.into(), Level::Restricted),
        ("/spec/containers/0/securityContext/capabilities", Value::Null, Level::Restricted),
        ("/spec/securityContext/seccompProfile", Value::Null, Level::Restricted),
    ] {
        let pod = with(pointer, value);
        assert!(!violations(&pod, level).is_empty(), "{pointer}");
        assert_eq!(violations(&pod, Level::Baseline).is_empty(), level == Level::Restricted, "{pointer}");
    }
}
