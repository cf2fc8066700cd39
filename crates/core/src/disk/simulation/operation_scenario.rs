//! Lives of a disk with operations that have pods, each repeated with a crash after every write.

use k8s_openapi::jiff::SignedDuration;
use odc_api::text::Text;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Desired, DiskAction, DiskOperationPhase, PointReason};

use super::Namespace;
use super::scenario::{check, current_data, use_once};
use crate::cluster::PodPhase;

/// Returns the name of the newest point.
pub(super) fn newest_point(namespace: &Namespace) -> String {
    namespace.disk().status.as_ref().unwrap().points[0].name.to_string()
}

fn browse(namespace: &mut Namespace, uid: &str, point: &str) {
    namespace.add_operation(uid, DiskAction::Browse, Some(point), None);
    namespace.settle();
}

/// Returns the reason and the message of an operation.
fn outcome(namespace: &Namespace, uid: &str) -> (Option<Reason>, String) {
    let status = namespace.operation_status(uid).unwrap();
    let complete = condition::find(&status.conditions, Type::Complete).unwrap();
    (complete.reason.known(), complete.message.to_string())
}

/// Checks that only the claim of the disk is left, with its retained volume.
fn assert_cleaned_up(namespace: &Namespace) {
    assert!(namespace.pods.iter().all(|pod| pod.operation.is_none()), "{:?}", namespace.pods);
    assert!(namespace.secrets.is_empty(), "{:?}", namespace.secrets);
    assert_eq!((namespace.claims.len(), namespace.volumes.len()), (1, 1), "{:?}", namespace.claims);
    assert!(namespace.volumes[0].is_retained);
    assert!(namespace.snapshots.iter().flatten().all(|snapshot| !snapshot.is_temporary));
}

#[test]
fn browse_serves_a_point_until_idle() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        use_once(namespace, "box");
        browse(namespace, "op1", &point);
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
        let result = namespace.operation_status("op1").unwrap().result.clone().unwrap();
        assert_eq!(result.pod.unwrap().as_str(), namespace.pods[0].name);
        assert_eq!(result.host_key.as_deref(), Some("ssh-ed25519 disk-home-op1-keys"));
        let claim = namespace.claims.iter().find(|claim| claim.operation_uid.is_some()).unwrap();
        assert_eq!(namespace.data[&claim.uid], "box;");
        let volume = namespace.volumes.iter().find(|volume| volume.claim_uid.as_ref() == Some(&claim.uid)).unwrap();
        assert!(!volume.is_retained);
        // Activity keeps it.
        namespace.now += SignedDuration::from_mins(31);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
        namespace.idle_seconds = Some(31 * 60);
        namespace.now += SignedDuration::from_mins(31);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert!(outcome(namespace, "op1").1.contains("no activity"), "{:?}", outcome(namespace, "op1"));
        assert_cleaned_up(namespace);
    });
}

#[test]
fn browse_of_an_unreachable_agent_ends_after_its_lifetime() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.idle_seconds = None;
        let point = newest_point(namespace);
        browse(namespace, "op1", &point);
        for _ in 0..7 {
            namespace.now += SignedDuration::from_hours(1);
            namespace.settle();
            assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
        }
        namespace.now += SignedDuration::from_hours(1);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert_cleaned_up(namespace);
    });
}

#[test]
fn browse_blocks_neither_operations_nor_servers() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        browse(namespace, "op1", &point);
        namespace.add_operation("op2", DiskAction::Snapshot, None, None);
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert_eq!(namespace.operation("op2"), Some(DiskOperationPhase::Succeeded));
        assert_eq!(namespace.pods.len(), 2);
        namespace.set_desired("box", Desired::Hibernated);
        namespace.settle();
        namespace.add_operation("op3", DiskAction::Rollback, Some(&point), None);
        namespace.settle();
        assert_eq!(namespace.operation("op3"), Some(DiskOperationPhase::Succeeded));
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
    });
}

#[test]
fn temporary_objects_are_deleted_with_the_operation() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        browse(namespace, "op1", &point);
        namespace.operations.clear();
        namespace.settle();
        assert_cleaned_up(namespace);
    });
}

#[test]
fn operation_that_is_deleted_while_it_starts_leaves_nothing() {
    for writes in 1..6 {
        let mut namespace = Namespace::new();
        use_once(&mut namespace, "box");
        let point = newest_point(&namespace);
        namespace.add_operation("op1", DiskAction::Browse, Some(&point), None);
        for _ in 0..writes {
            namespace.step();
        }
        namespace.operations.clear();
        namespace.settle();
        assert_cleaned_up(&namespace);
    }
}

#[test]
fn browse_ends_when_the_disk_is_deleted() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        browse(namespace, "op1", &point);
        namespace.disks[0].spec.deleted = true;
        namespace.settle();
        assert_eq!(outcome(namespace, "op1").0, Some(Reason::Deleted));
        assert_cleaned_up(namespace);
    });
    for confirmation in [None, Some("disk-home")] {
        check(|namespace| {
            use_once(namespace, "box");
            let point = newest_point(namespace);
            browse(namespace, "op1", &point);
            namespace.add_operation("op2", DiskAction::Rollback, Some("unknown"), None);
            namespace.delete_disk(confirmation);
            namespace.settle();
            assert!(namespace.disks.is_empty());
            assert!(namespace.pods.is_empty() && namespace.secrets.is_empty());
            assert_eq!(namespace.claims.len(), usize::from(confirmation.is_none()));
            assert_eq!(namespace.volumes.len(), usize::from(confirmation.is_none()));
        });
    }
}

#[test]
fn third_browse_operation_of_a_namespace_fails() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        for uid in ["op1", "op2", "op3"] {
            namespace.add_operation(uid, DiskAction::Browse, Some(&point), None);
        }
        namespace.settle();
        let phases = ["op1", "op2", "op3"].map(|uid| namespace.operation(uid).unwrap());
        let running = DiskOperationPhase::Running;
        assert_eq!(phases, [running, running, DiskOperationPhase::Failed]);
        let (reason, message) = outcome(namespace, "op3");
        assert_eq!(reason, Some(Reason::TooManyBrowseOperations));
        assert!(message.contains("op1, op2"), "{message}");
        // A place is free when one ends.
        namespace.operations.remove(0);
        namespace.settle();
        browse(namespace, "op4", &point);
        assert_eq!(namespace.operation("op4"), Some(running));
    });
}

#[test]
fn browse_of_an_unknown_point_fails() {
    check(|namespace| {
        use_once(namespace, "box");
        browse(namespace, "op1", "unknown");
        assert_eq!(outcome(namespace, "op1").0, Some(Reason::PointUnavailable));
        assert_cleaned_up(namespace);
    });
}

#[test]
fn browse_waits_for_a_point_that_is_being_taken() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        // The storage system has taken it, but it is not ready.
        let snapshots = namespace.snapshots.as_mut().unwrap();
        let size = snapshots[0].restore_size.take();
        snapshots[0].is_ready = false;
        namespace.is_storage_stopped = true;
        browse(namespace, "op1", &point);
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
        assert_eq!(namespace.claims.len(), 1);
        let snapshots = namespace.snapshots.as_mut().unwrap();
        (snapshots[0].restore_size, snapshots[0].is_ready) = (size, true);
        namespace.is_storage_stopped = false;
        namespace.settle();
        assert!(namespace.operation_status("op1").unwrap().result.is_some());
    });
}

#[test]
fn refused_pod_fails_the_operation_in_time_and_not_the_disk() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        namespace.pod_error = Some("exceeded quota: odc".into());
        browse(namespace, "op1", &point);
        assert!(outcome(namespace, "op1").1.contains("exceeded quota: odc"));
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert_eq!(namespace.pods.len(), 1);
        namespace.now += SignedDuration::from_mins(31);
        namespace.settle();
        assert_eq!(outcome(namespace, "op1").0, Some(Reason::OperationTimeout));
        assert_cleaned_up(namespace);
    });
}

#[test]
fn lost_status_does_not_name_a_temporary_claim() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        let claim = namespace.disk().status.as_ref().unwrap().claim.clone();
        browse(namespace, "op1", &point);
        namespace.disks[0].status = None;
        namespace.settle();
        assert_eq!(namespace.disk().status.as_ref().unwrap().claim, claim);
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
    });
}

#[test]
fn evicted_browse_pod_fails_the_operation() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        browse(namespace, "op1", &point);
        namespace.pods[0].phase = PodPhase::Failed;
        namespace.settle();
        assert_eq!(outcome(namespace, "op1").0, Some(Reason::PodFailed));
        assert_cleaned_up(namespace);
    });
}

#[test]
fn claim_that_waits_for_its_consumer_is_bound_by_the_pod() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        namespace.wait_for_consumers();
        browse(namespace, "op1", &point);
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Running));
        assert!(namespace.operation_status("op1").unwrap().result.is_some());
    });
}

/// Adds an operation with the arguments `point`, `to` and `paths`.
fn add_job(namespace: &mut Namespace, uid: &str, action: DiskAction, point: &str, to: Option<&str>) {
    namespace.add_operation(uid, action, Some(point), None);
    let arguments = namespace.operations.last_mut().unwrap().spec.arguments.as_mut().unwrap();
    arguments.to = to.map(|to| to.parse().unwrap());
    if action == DiskAction::Restore {
        arguments.paths = vec!["file".into()];
    }
}

/// Returns the first path of a difference.
fn first_path(namespace: &Namespace, uid: &str) -> String {
    let diff = namespace.operation_status(uid).unwrap().result.clone().unwrap().diff.unwrap();
    assert_eq!(diff.added, 1);
    diff.paths[0].to_string()
}

#[test]
fn diff_compares_two_points_or_the_current_data() {
    check(|namespace| {
        use_once(namespace, "a");
        let first = newest_point(namespace);
        use_once(namespace, "b");
        let second = newest_point(namespace);
        use_once(namespace, "c");
        add_job(namespace, "op1", DiskAction::Diff, &first, Some(&second));
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert_eq!(first_path(namespace, "op1"), "A a; a;b;");
        assert_cleaned_up(namespace);
        // Also while a server uses the disk.
        namespace.set_desired("a", Desired::Running);
        namespace.settle();
        let names = |namespace: &Namespace| {
            let points = &namespace.disk().status.as_ref().unwrap().points;
            points.iter().map(|point| point.name.clone()).collect::<Vec<_>>()
        };
        let points = names(namespace);
        add_job(namespace, "op2", DiskAction::Diff, &first, None);
        namespace.settle();
        assert_eq!(first_path(namespace, "op2"), "A a; a;b;c;a;");
        assert_eq!(names(namespace), points, "the temporary point is listed");
        assert_eq!(namespace.pods.len(), 1);
        assert!(namespace.contents.iter().all(|content| content.is_retained), "a temporary content is left");
        assert_cleaned_up(namespace);
    });
}

#[test]
fn failed_diff_reports_the_error_and_leaves_nothing() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.job_error = Some("dir: input/output error".into());
        let point = newest_point(namespace);
        add_job(namespace, "op1", DiskAction::Diff, &point, None);
        namespace.settle();
        let (reason, message) = outcome(namespace, "op1");
        assert_eq!(reason, Some(Reason::PodFailed));
        assert!(message.ends_with("failed: dir: input/output error"), "{message}");
        assert_cleaned_up(namespace);
    });
}

#[test]
fn restore_copies_to_the_disk_after_taking_a_point() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        use_once(namespace, "other");
        add_job(namespace, "op1", DiskAction::Restore, &point, None);
        // A server that is started meanwhile waits.
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        let saved = namespace.operation_status("op1").unwrap().result.clone().unwrap().point.unwrap();
        assert_eq!(namespace.data[saved.as_str()], "box;other;");
        let points = &namespace.disk().status.as_ref().unwrap().points;
        assert!(points.iter().any(|point| point.name == saved && point.reason == PointReason::Rollback));
        assert_eq!(namespace.operation_status("op1").unwrap().progress.as_ref().map(Text::as_str), Some("4/4"));
        assert_eq!(current_data(namespace), "box;other;file=box;box;");
        assert_eq!(namespace.pods.len(), 1);
        assert_cleaned_up(namespace);
    });
}

#[test]
fn restore_to_a_used_disk_fails() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        add_job(namespace, "op1", DiskAction::Restore, &point, None);
        namespace.settle();
        let (reason, message) = outcome(namespace, "op1");
        assert_eq!(reason, Some(Reason::DiskInUse));
        assert!(message.contains("Hibernate the server first, or browse the restore point"), "{message}");
        assert_eq!(current_data(namespace), "box;box;");
    });
}

#[test]
fn failed_restore_names_the_point_with_the_data_before() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        namespace.job_error = Some("file: not found in the restore point".into());
        add_job(namespace, "op1", DiskAction::Restore, &point, None);
        namespace.settle();
        let (reason, message) = outcome(namespace, "op1");
        assert_eq!(reason, Some(Reason::PodFailed));
        assert!(message.contains("not found in the restore point. Point disk-home-op1 has"), "{message}");
        assert_cleaned_up(namespace);
        // The disk can be used again.
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert_eq!(namespace.pods.len(), 1);
    });
}

#[test]
fn restore_that_does_not_finish_blocks_the_disk_until_its_pod_is_gone() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = newest_point(namespace);
        namespace.pod_error = Some("exceeded quota: odc".into());
        add_job(namespace, "op1", DiskAction::Restore, &point, None);
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert!(namespace.pods.is_empty(), "the server has the disk");
        namespace.now += SignedDuration::from_hours(3);
        namespace.settle();
        // After a crash between the status of the disk and that of the operation, the server has the disk already.
        let reason = outcome(namespace, "op1").0;
        assert!(matches!(reason, Some(Reason::OperationTimeout | Reason::DiskInUse)), "{reason:?}");
        assert_eq!(namespace.pods.len(), 1);
    });
}
