//! Stops of servers whose node was not ready, each repeated with a crash after every write.

use k8s_openapi::jiff::SignedDuration;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Consistency, Desired, DiskAction, DiskOperationPhase, Failure};

use super::Namespace;
use super::scenario::{check, use_once};

/// Returns the consistency of the newest point.
fn newest_consistency(namespace: &Namespace) -> Consistency {
    namespace.disk().status.as_ref().unwrap().points[0].consistency
}

fn start(namespace: &mut Namespace) {
    if namespace.servers.is_empty() {
        namespace.add_server("box");
    }
    namespace.set_desired("box", Desired::Running);
    namespace.settle();
    assert_eq!(namespace.pods.len(), 1);
}

fn set_node_ready(namespace: &mut Namespace, is_ready: bool) {
    namespace.ready_nodes = if is_ready { vec!["node-1".into()] } else { vec![] };
    for pod in &mut namespace.pods {
        pod.server.as_mut().unwrap().ready = is_ready;
    }
    namespace.settle();
}

/// Loses the node of the server: the server controller records the failure, the pod is deleted without its node, and the
/// scheduler revokes the admission.
fn lose_node(namespace: &mut Namespace) {
    set_node_ready(namespace, false);
    let now = to_api_precision(namespace.now);
    let status = namespace.servers[0].status.as_mut().unwrap();
    // The time of an unchanged failure is kept.
    let failure = || Box::new(Failure::new(Reason::NodeLost, "Node node-1 is lost.", now, None));
    status.last_failure.get_or_insert_with(failure);
    status.admission = None;
    namespace.pods.clear();
    namespace.is_full = true;
    namespace.settle();
}

#[test]
fn point_after_each_loss_of_the_same_node_is_crash_consistent() {
    check(|namespace| {
        for losses in 1..=3 {
            start(namespace);
            lose_node(namespace);
            assert_eq!(namespace.disk().status.as_ref().unwrap().points.len(), losses);
            assert_eq!(newest_consistency(namespace), Consistency::CrashConsistent);
            namespace.now += SignedDuration::from_mins(10);
            namespace.is_full = false;
            set_node_ready(namespace, true);
        }
        use_once(namespace, "box");
        assert_eq!(newest_consistency(namespace), Consistency::Clean);
    });
}

#[test]
fn point_is_crash_consistent_if_server_and_node_are_gone() {
    check(|namespace| {
        start(namespace);
        set_node_ready(namespace, false);
        namespace.servers.clear();
        namespace.settle();
        namespace.pods.clear();
        namespace.settle();
        assert_eq!(newest_consistency(namespace), Consistency::CrashConsistent);
    });
}

#[test]
fn point_is_crash_consistent_if_the_node_is_ready_again_before_it_is_taken() {
    check(|namespace| {
        start(namespace);
        set_node_ready(namespace, false);
        namespace.servers.clear();
        namespace.pods[0].deletion_timestamp = Some(namespace.now);
        namespace.settle();
        // The kubelet deletes the terminating pod after its node was restarted.
        namespace.ready_nodes = vec!["node-1".into()];
        namespace.settle();
        namespace.pods.clear();
        namespace.settle();
        assert_eq!(newest_consistency(namespace), Consistency::CrashConsistent);
    });
}

#[test]
fn point_is_clean_if_the_server_continued_after_its_node_was_unready() {
    check(|namespace| {
        start(namespace);
        set_node_ready(namespace, false);
        set_node_ready(namespace, true);
        namespace.set_desired("box", Desired::Hibernated);
        namespace.settle();
        assert_eq!(newest_consistency(namespace), Consistency::Clean);
    });
}

#[test]
fn point_is_crash_consistent_if_the_pod_was_deleted_while_no_operator_was_running() {
    check(|namespace| {
        start(namespace);
        namespace.ready_nodes.clear();
        namespace.pods.clear();
        namespace.run_operator();
        namespace.run_operator();
        namespace.servers[0].status.as_mut().unwrap().admission = None;
        namespace.is_full = true;
        namespace.settle();
        assert_eq!(newest_consistency(namespace), Consistency::CrashConsistent);
    });
}

#[test]
fn point_after_an_unlock_is_crash_consistent_only_if_the_node_is_not_ready() {
    for (is_node_ready, expected) in [(true, Consistency::Clean), (false, Consistency::CrashConsistent)] {
        check(|namespace| {
            start(namespace);
            namespace.servers.clear();
            namespace.settle();
            namespace.add_operation("op1", DiskAction::Unlock, None, None);
            namespace.run_operator();
            // Right before the pod is deleted.
            namespace.ready_nodes.retain(|_| is_node_ready);
            namespace.settle();
            assert_eq!((namespace.operation("op1"), namespace.pods.len()), (Some(DiskOperationPhase::Succeeded), 0));
            // The operation leaves no trace.
            namespace.operations.clear();
            assert_eq!(newest_consistency(namespace), expected);
        });
    }
}
