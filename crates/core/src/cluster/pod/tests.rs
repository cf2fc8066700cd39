use serde_json::json;

use super::*;

fn pod(value: serde_json::Value) -> Pod {
    Pod::from_api(&serde_json::from_value(value).unwrap())
}

#[test]
fn requests_match_kube_scheduler() {
    let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = container("sidecar", "100m");
    sidecar["restartPolicy"] = "Always".into();
    let spec = |containers: &[serde_json::Value]| {
        json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": [container("first", "900m"), sidecar, container("later", "2")],
            "containers": containers,
            "overhead": {"cpu": "50m"},
        }})
    };
    assert_eq!(pod(spec(&[container("main", "1")])).requests.cpu, 2_150);
    assert_eq!(pod(spec(&[container("main", "3"), container("second", "1")])).requests.cpu, 4_150);
    assert_eq!(pod(spec(&[container("main", "1")])).requests.pods, 1);
}

#[test]
fn device_limit_counts_as_request() {
    let pod = pod(json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    }}));
    assert_eq!(pod.requests.device("nvidia.com/gpu"), 2);
    assert_eq!(pod.server, None);
}

#[test]
fn deleted_pod_lists_blocking_finalizers() {
    let finalizers = |deleted: Option<&str>| {
        let pod = pod(json!({"metadata": {"name": "server-1-0", "labels": {"odc.dev/server": "server-1"},
            "deletionTimestamp": deleted, "finalizers": ["foregroundDeletion", "example.org/hold", "orphan"]}}));
        pod.server.unwrap().blocking_finalizers.to_vec()
    };
    assert_eq!(finalizers(Some("2026-01-01T00:00:00Z")), ["example.org/hold"]);
    assert_eq!(finalizers(None), [] as [&str; 0]);
}

#[test]
fn claims_include_ephemeral_volumes() {
    let pod = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
        {"name": "home", "persistentVolumeClaim": {"claimName": "home-ada"}},
        {"name": "scratch", "ephemeral": {}},
        {"name": "none", "emptyDir": {}},
    ]}}));
    assert_eq!(*pod.claims, ["home-ada".into(), "p-scratch".into()]);
}

#[test]
fn server_pod_has_details() {
    let pod = pod(json!({
        "metadata": {
            "name": "server-1-0",
            "labels": {"odc.dev/server": "server-1"},
            "annotations": {"odc.dev/run": "3", "odc.dev/server-uid": "uid-1"},
            "ownerReferences": [{"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "name": "server-1", "uid": "uid-1", "controller": true}],
        },
        "spec": {"containers": [], "nodeName": "n1", "volumes": [
            {"name": "home", "persistentVolumeClaim": {"claimName": "claim-home"}},
            {"name": "scratch", "emptyDir": {}},
        ]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "dev", "image": "", "imageID": "", "ready": false, "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
        },
    }));
    assert_eq!(*pod.claims, ["claim-home".into()]);
    let server = pod.server.unwrap();
    assert!(server.blocking_finalizers.is_empty());
    assert_eq!((server.owner.as_deref(), server.run, server.ready), (Some("uid-1"), Some(3), false));
    assert_eq!(server.message.as_deref(), Some("0/1 nodes"));
    assert!(server.unschedulable_since.is_some());
    assert_eq!(server.containers[0].last.as_ref().map(|exit| exit.code), Some(137));
    assert!(
        matches!(&server.containers[0].state, ContainerState::Waiting { reason, .. } if reason == "CrashLoopBackOff")
    );
}

#[test]
fn pod_of_an_operation_has_details() {
    let pod = pod(json!({
        "metadata": {
            "name": "home-1",
            "labels": {"odc.dev/operation-uid": "op-1", "odc.dev/disk-uid": "disk-1"},
            "annotations": {"odc.dev/host-key": "ssh-ed25519 key"},
            "ownerReferences": [{"apiVersion": "odc.dev/v1alpha1", "kind": "DiskOperation", "name": "op", "uid": "op-1",
                "controller": true}],
        },
        "spec": {"containers": []},
        "status": {
            "phase": "Failed", "podIP": "10.0.0.1", "reason": "DeadlineExceeded", "message": "too slow",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "dev", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 1, "message": "odc-agent: dir: not found"}}}],
        },
    }));
    assert_eq!((pod.server.clone(), pod.reason_and_message().as_str()), (None, "DeadlineExceeded: too slow"));
    let operation = pod.operation.unwrap();
    assert_eq!((operation.operation_uid.as_str(), operation.disk_uid.as_deref()), ("op-1", Some("disk-1")));
    assert_eq!((operation.host_key.as_deref(), operation.ip.as_deref()), (Some("ssh-ed25519 key"), Some("10.0.0.1")));
    assert!(operation.ready);
    let ContainerState::Terminated(exit) = &operation.containers[0].state else { panic!() };
    assert_eq!((exit.code, exit.message.as_str()), (1, "odc-agent: dir: not found"));
}
