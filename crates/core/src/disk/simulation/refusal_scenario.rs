//! Lives of a disk in which writes are refused, or operations end early, each repeated with a crash after every write.

use k8s_openapi::jiff::SignedDuration;
use odc_api::v1alpha1::{Desired, DiskAction, DiskOperationPhase};

use super::Namespace;
use super::operation_scenario::newest_point;
use super::scenario::{check, current_data, use_once};
use crate::manifest::Kind;
use crate::plan::Write;

#[test]
fn refused_write_stops_nothing_else() {
    // A claim, a point of a stop, a point of an operation, a claim of a rollback, and a disk of a clone.
    for kind in [Kind::PersistentVolumeClaim, Kind::VolumeSnapshot, Kind::Disk] {
        check(|namespace| {
            if kind == Kind::PersistentVolumeClaim {
                namespace.add_server("box");
            } else {
                use_once(namespace, "box");
                namespace.set_desired("box", Desired::Running);
                namespace.settle();
            }
            namespace.refused = Some(kind);
            namespace.settle();
            namespace.set_desired("box", Desired::Hibernated);
            namespace.add_operation("op1", DiskAction::Clone, None, Some("copy"));
            namespace.settle();
            namespace.now += SignedDuration::from_hours(1);
            namespace.settle();
            namespace.now += SignedDuration::from_hours(1);
            namespace.settle();
            let status = namespace.disk().status.clone().unwrap();
            assert_eq!(status.holder, None, "{kind:?}");
            assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Failed), "{kind:?}");
            namespace.refused = None;
            namespace.set_desired("box", Desired::Running);
            namespace.settle();
            assert_eq!(namespace.pods.len(), 1, "{kind:?}");
        });
    }
}

#[test]
fn claims_of_repeated_and_deleted_rollbacks_are_removed() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.wait_for_consumers();
        let point = newest_point(namespace);
        for operation in ["op1", "op2", "op3"] {
            namespace.add_operation(operation, DiskAction::Rollback, Some(&point), None);
            namespace.settle();
            assert_eq!(namespace.operation(operation), Some(DiskOperationPhase::Succeeded));
        }
        // The first claim has the data; those without a volume are gone.
        assert_eq!(namespace.claims.len(), 2, "{:#?}", namespace.claims);
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert_eq!(current_data(namespace), "box;");
        namespace.set_desired("box", Desired::Hibernated);
        namespace.settle();
        // Deleted after its claim was created.
        namespace.is_storage_stopped = true;
        namespace.class.waits_for_consumer = false;
        let claims = namespace.claims.len();
        namespace.add_operation("op4", DiskAction::Rollback, Some(&point), None);
        namespace.settle();
        namespace.operations.retain(|operation| operation.metadata.uid.as_deref() != Some("op4"));
        namespace.is_storage_stopped = false;
        namespace.settle();
        assert_eq!(namespace.claims.len(), claims, "{:#?}", namespace.claims);
    });
}

#[test]
fn rollback_waits_for_a_server_that_is_stopping() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        namespace.set_desired("box", Desired::Hibernated);
        namespace.add_operation("op1", DiskAction::Rollback, Some(&point), None);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert_eq!(current_data(namespace), "box;");
    });
}

#[test]
fn unlock_forces_the_deletion_of_pods_on_lost_nodes_only() {
    for is_ready in [true, false] {
        let mut namespace = Namespace::new();
        namespace.add_server("box");
        namespace.settle();
        namespace.servers.clear();
        namespace.pods[0].node = Some("node-1".into());
        namespace.ready_nodes = if is_ready { vec!["node-1".into()] } else { vec![] };
        namespace.add_operation("op1", DiskAction::Unlock, None, None);
        namespace.run_operator();
        let plan = namespace.plan(&namespace.disk().clone());
        let graces: Vec<Option<u32>> = plan
            .writes
            .iter()
            .filter_map(|write| match write {
                Write::Delete(target) => Some(target.grace),
                _ => None,
            })
            .collect();
        assert_eq!(graces, [if is_ready { None } else { Some(0) }]);
    }
}
