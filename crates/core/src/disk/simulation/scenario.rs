//! Lives of a disk, each repeated with a crash after every write.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Consistency, Desired, DiskAction, DiskOperationPhase, PointReason};

use super::Namespace;

/// Runs a life without and with crashes. Its checks must hold in each run.
pub(super) fn check(live: impl Fn(&mut Namespace)) {
    live(&mut Namespace::new());
    for crash in 1.. {
        let mut namespace = Namespace::crashing_after(crash);
        live(&mut namespace);
        if !namespace.has_crashed() {
            assert!(crash > 2, "the operator wrote nothing");
            return;
        }
    }
}

/// Starts a server, lets it write its name to the disk, and hibernates it.
pub(super) fn use_once(namespace: &mut Namespace, server: &str) {
    if !namespace.servers.iter().any(|found| found.metadata.name.as_deref() == Some(server)) {
        namespace.add_server(server);
    }
    namespace.set_desired(server, Desired::Running);
    namespace.settle();
    assert_eq!(namespace.pods.len(), 1);
    namespace.set_desired(server, Desired::Hibernated);
    namespace.now += SignedDuration::from_secs(60);
    namespace.settle();
    assert!(namespace.pods.is_empty());
}

pub(super) fn current_data(namespace: &Namespace) -> &str {
    let name = namespace.disk().status.as_ref().unwrap().claim.as_ref().unwrap();
    let claim = namespace.claims.iter().find(|claim| claim.name == name.as_str()).unwrap();
    &namespace.data[&claim.uid]
}

fn reason(namespace: &Namespace, kind: Type) -> Option<Reason> {
    condition::find(&namespace.disk().status.as_ref()?.conditions, kind)?.reason.known()
}

#[test]
fn unused_disk_has_no_claim() {
    let mut namespace = Namespace::new();
    namespace.settle();
    assert!(namespace.claims.is_empty() && namespace.disk().metadata.finalizers.is_none());
    assert_eq!(reason(&namespace, Type::Ready), Some(Reason::NotProvisioned));
}

#[test]
fn every_stop_leaves_one_clean_verified_point() {
    check(|namespace| {
        use_once(namespace, "box");
        use_once(namespace, "box");
        let status = namespace.disk().status.as_ref().unwrap();
        assert_eq!(status.points.len(), 2);
        for point in &status.points {
            assert_eq!((point.reason, point.consistency, point.ready), (PointReason::Stop, Consistency::Clean, true));
        }
        assert!(status.holder.is_none() && status.last_used.is_some());
        assert_eq!(namespace.claims.len(), 1);
        assert!(namespace.volumes.iter().all(|volume| volume.is_retained));
        assert!(namespace.contents.iter().all(|content| content.is_retained));
        assert_eq!(current_data(namespace), "box;box;");
    });
}

#[test]
fn listings_are_stored_for_the_newest_points_and_collected_with_them() {
    check(|namespace| {
        namespace.disks[0].spec.retention.stops = 4;
        for _ in 0..6 {
            use_once(namespace, "box");
        }
        let points = &namespace.disk().status.as_ref().unwrap().points;
        let listed = points.iter().filter(|point| point.listing.is_some());
        // A listing in memory is lost in a crash.
        assert!((2..=3).contains(&listed.clone().count()), "{points:?}");
        for point in listed {
            assert!(namespace.config_maps.iter().any(|config_map| config_map.name == point.name.as_str()));
        }
        // One that was created right before a crash, and is not recorded, is deleted with its point.
        assert!(namespace.config_maps.len() <= 4, "{:?}", namespace.config_maps);
        let owns = |owner: &str| namespace.snapshots.iter().flatten().any(|snapshot| snapshot.uid == owner);
        assert!(namespace.config_maps.iter().all(|config_map| owns(&config_map.owner)));
    });
}

#[test]
fn preempted_server_gets_its_disk_back_after_the_point() {
    check(|namespace| {
        namespace.add_server("box");
        namespace.settle();
        namespace.pods.clear();
        namespace.servers[0].status.as_mut().unwrap().admission = None;
        namespace.is_full = true;
        namespace.settle();
        let status = namespace.disk().status.as_ref().unwrap();
        assert_eq!(status.points.len(), 1);
        assert_eq!(namespace.data[status.points[0].name.as_str()], "box;");
        // It holds the disk while it is queued.
        assert!(status.holder.as_ref().is_some_and(|holder| !holder.used && holder.releasing_since.is_none()));
        namespace.is_full = false;
        namespace.settle();
        assert_eq!((current_data(namespace), namespace.pods.len()), ("box;box;", 1));
    });
}

#[test]
fn lost_status_of_a_used_disk_is_restored() {
    check(|namespace| {
        namespace.add_server("box");
        namespace.settle();
        let before = namespace.disk().status.clone().unwrap();
        namespace.disks[0].status = None;
        namespace.settle();
        let after = namespace.disk().status.as_ref().unwrap();
        assert_eq!((&after.claim, &after.holder), (&before.claim, &before.holder));
        assert_eq!(namespace.claims.len(), 1);
    });
}

#[test]
fn second_server_waits_for_the_first() {
    check(|namespace| {
        for server in ["first", "second", "third"] {
            namespace.add_server(server);
            namespace.now += SignedDuration::from_secs(1);
        }
        namespace.settle();
        let holder = |namespace: &Namespace| {
            let holder = namespace.disk().status.as_ref().unwrap().holder.clone();
            holder.map(|holder| holder.server.to_string())
        };
        assert_eq!((holder(namespace).as_deref(), namespace.pods.len()), (Some("first"), 1));
        namespace.set_desired("first", Desired::Ended);
        namespace.settle();
        assert_eq!((holder(namespace).as_deref(), namespace.pods.len()), (Some("second"), 1));
    });
}

#[test]
fn holder_that_is_deleted_without_a_pod_is_released() {
    check(|namespace| {
        namespace.add_server("box");
        namespace.settle();
        namespace.servers.clear();
        namespace.settle();
        assert_eq!(reason(namespace, Type::InUse), Some(Reason::HolderStuck));
        namespace.pods.clear();
        namespace.settle();
        assert_eq!(reason(namespace, Type::InUse), Some(Reason::Released));
        assert_eq!(namespace.disk().status.as_ref().unwrap().points.len(), 1);
    });
}

#[test]
fn unlock_deletes_the_pod_of_a_deleted_server() {
    check(|namespace| {
        namespace.add_server("box");
        namespace.settle();
        namespace.add_operation("op1", DiskAction::Unlock, None, None);
        namespace.settle();
        // Refused for a running server.
        assert_eq!((namespace.operation("op1"), namespace.pods.len()), (Some(DiskOperationPhase::Failed), 1));
        namespace.servers.clear();
        namespace.settle();
        namespace.add_operation("op2", DiskAction::Unlock, None, None);
        namespace.settle();
        assert_eq!((namespace.operation("op2"), namespace.pods.len()), (Some(DiskOperationPhase::Succeeded), 0));
        assert_eq!(reason(namespace, Type::InUse), Some(Reason::Released));
    });
}

#[test]
fn rollback_restores_old_data_and_keeps_the_new() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = namespace.disk().status.as_ref().unwrap().points[0].name.to_string();
        use_once(namespace, "other");
        assert_eq!(current_data(namespace), "box;other;");
        namespace.add_operation("op1", DiskAction::Rollback, Some(&point), None);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert_eq!(current_data(namespace), "box;");
        let status = namespace.disk().status.as_ref().unwrap();
        assert_eq!((status.retired_claims.len(), namespace.claims.len()), (1, 2));
        let saved = status.points.iter().find(|point| point.reason == PointReason::Rollback).unwrap();
        assert_eq!(namespace.data[saved.name.as_str()], "box;other;");
        // The old claim goes a day later, and its volume with it.
        namespace.now += SignedDuration::from_hours(25);
        namespace.settle();
        assert_eq!((namespace.claims.len(), namespace.volumes.len()), (1, 1));
        assert!(namespace.disk().status.as_ref().unwrap().retired_claims.is_empty());
        use_once(namespace, "box");
        assert_eq!(current_data(namespace), "box;box;");
    });
}

#[test]
fn rollback_of_a_used_disk_or_to_an_unknown_point_fails() {
    check(|namespace| {
        use_once(namespace, "box");
        let point = namespace.disk().status.as_ref().unwrap().points[0].name.to_string();
        namespace.add_operation("op1", DiskAction::Rollback, Some("unknown"), None);
        namespace.settle();
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        namespace.add_operation("op2", DiskAction::Rollback, Some(&point), None);
        namespace.settle();
        for operation in ["op1", "op2"] {
            assert_eq!(namespace.operation(operation), Some(DiskOperationPhase::Failed), "{operation}");
        }
        assert_eq!(namespace.claims.len(), 1);
    });
}

#[test]
fn rollback_recovers_a_disk_whose_claim_was_deleted() {
    let mut namespace = Namespace::new();
    use_once(&mut namespace, "box");
    namespace.claims.clear();
    namespace.settle();
    assert_eq!(reason(&namespace, Type::Ready), Some(Reason::DiskUnavailable));
    // No empty claim is created in its place.
    namespace.set_desired("box", Desired::Running);
    namespace.settle();
    assert!(namespace.claims.is_empty() && namespace.pods.is_empty());
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.to_string();
    namespace.add_operation("op1", DiskAction::Rollback, Some(&point), None);
    namespace.settle();
    assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
    assert_eq!(current_data(&namespace), "box;box;");
}

#[test]
fn clone_of_a_used_disk_has_its_data() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        namespace.add_operation("op1", DiskAction::Clone, None, Some("copy"));
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert_eq!(namespace.disks.len(), 2);
        let points = &namespace.disk().status.as_ref().unwrap().points;
        assert_eq!(points[0].consistency, Consistency::CrashConsistent);
        // The point is the source of the new disk and cannot expire before its first use.
        namespace.disks[0].spec.retention.on_demand = 1;
        for number in 2..6 {
            namespace.add_operation(&format!("op{number}"), DiskAction::Snapshot, None, None);
            namespace.settle();
        }
        let mut server = namespace.servers[0].clone().named("user-of-copy");
        server.status = None;
        server.spec.home = odc_api::v1alpha1::Home::Disk("copy".parse().unwrap());
        let plan = namespace.plan(&namespace.disks[1].clone());
        assert_eq!(condition::find(&plan.status.conditions, Type::Ready).unwrap().reason, Reason::NotProvisioned);
        assert_eq!(namespace.data[&points_of_copy(namespace)], "box;box;");
    });
}

fn points_of_copy(namespace: &Namespace) -> String {
    let Some(odc_api::v1alpha1::DiskSource::Point { point, .. }) = &namespace.disks[1].spec.source else { panic!() };
    let snapshots = namespace.snapshots.as_ref().unwrap();
    assert!(snapshots.iter().any(|snapshot| snapshot.name == point.as_str()));
    point.to_string()
}

#[test]
fn operations_run_one_at_a_time() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.add_operation("op1", DiskAction::Snapshot, None, None);
        namespace.add_operation("op2", DiskAction::Snapshot, None, None);
        let plan = namespace.plan(&namespace.disk().clone());
        let phases: Vec<_> =
            plan.operations.iter().map(|(name, status)| (name.as_str(), status.phase.unwrap())).collect();
        assert_eq!(phases, [("op2", DiskOperationPhase::Pending), ("op1", DiskOperationPhase::Running)]);
        namespace.settle();
        for operation in ["op1", "op2"] {
            assert_eq!(namespace.operation(operation), Some(DiskOperationPhase::Succeeded));
        }
        assert_eq!(namespace.disk().status.as_ref().unwrap().points.len(), 3);
    });
}

#[test]
fn failing_snapshots_delay_a_start_only_until_the_timeout() {
    check(|namespace| {
        namespace.snapshots_fail = true;
        namespace.add_server("box");
        namespace.settle();
        namespace.set_desired("box", Desired::Hibernated);
        namespace.settle();
        assert_eq!(reason(namespace, Type::InUse), Some(Reason::Releasing));
        assert_eq!(reason(namespace, Type::PointsAvailable), Some(Reason::SnapshotFailed));
        // A wake does not wait for a failing snapshot.
        namespace.set_desired("box", Desired::Running);
        namespace.settle();
        assert_eq!(namespace.pods.len(), 1);
        namespace.set_desired("box", Desired::Hibernated);
        namespace.settle();
        namespace.now += SignedDuration::try_from(super::super::SNAPSHOT_TIMEOUT + Duration::from_secs(1)).unwrap();
        namespace.settle();
        assert_eq!(reason(namespace, Type::InUse), Some(Reason::Released));
        assert_eq!(current_data(namespace), "box;box;");
    });
}

#[test]
fn cluster_without_snapshots_runs_servers() {
    check(|namespace| {
        namespace.snapshots = None;
        use_once(namespace, "box");
        use_once(namespace, "box");
        assert_eq!(reason(namespace, Type::PointsAvailable), Some(Reason::SnapshotsUnsupported));
        assert_eq!(current_data(namespace), "box;box;");
        namespace.add_operation("op1", DiskAction::Snapshot, None, None);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Failed));
    });
}

#[test]
fn confirmed_deletion_removes_data_and_object() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.delete_disk(Some("disk-home"));
        namespace.settle();
        assert!(namespace.disks.is_empty() && namespace.claims.is_empty() && namespace.volumes.is_empty());
        assert!(namespace.snapshots.as_ref().unwrap().is_empty() && namespace.contents.is_empty());
    });
}

#[test]
fn unconfirmed_deletion_keeps_the_data() {
    for confirmation in [None, Some("another-disk")] {
        check(|namespace| {
            use_once(namespace, "box");
            namespace.delete_disk(confirmation);
            namespace.settle();
            assert!(namespace.disks.is_empty());
            assert_eq!((namespace.claims.len(), namespace.volumes.len(), namespace.contents.len()), (1, 1, 1));
            assert!(namespace.volumes[0].is_retained && namespace.contents[0].is_retained);
        });
    }
}

#[test]
fn deleted_disk_is_kept_for_30_days_and_can_be_undeleted() {
    check(|namespace| {
        use_once(namespace, "box");
        namespace.disks[0].spec.deleted = true;
        namespace.settle();
        namespace.set_desired("box", Desired::Running);
        for _ in 0..29 {
            namespace.now += SignedDuration::from_hours(24);
            namespace.settle();
        }
        assert!(namespace.pods.is_empty(), "a deleted disk is used");
        namespace.disks[0].spec.deleted = false;
        namespace.settle();
        assert_eq!((current_data(namespace), namespace.pods.len()), ("box;box;", 1));
        namespace.set_desired("box", Desired::Ended);
        namespace.disks[0].spec.deleted = true;
        namespace.settle();
        for _ in 0..30 {
            assert_eq!(namespace.disks.len(), 1);
            namespace.now += SignedDuration::from_hours(24);
            namespace.settle();
        }
        assert!(namespace.disks.is_empty() && namespace.claims.is_empty() && namespace.volumes.is_empty());
    });
}

#[test]
fn clock_off_by_ten_years_deletes_nothing() {
    let years = SignedDuration::from_hours(24 * 3650);
    for offset in [years, -years] {
        check(|namespace| {
            namespace.disks[0].spec.retention.stops = 6;
            for _ in 0..4 {
                use_once(namespace, "box");
            }
            namespace.disks[0].spec.deleted = true;
            namespace.settle();
            let before = namespace.now;
            namespace.now = before + offset;
            namespace.settle();
            assert_eq!(namespace.disk().status.as_ref().unwrap().points.len(), 4);
            namespace.disks[0].spec.deleted = false;
            use_once(namespace, "box");
            namespace.now = before + SignedDuration::from_secs(3600);
            use_once(namespace, "box");
            let status = namespace.disk().status.as_ref().unwrap();
            assert_eq!(status.points.len(), 6);
            assert_eq!(namespace.data[status.points[0].name.as_str()], current_data(namespace));
        });
    }
}

#[test]
fn fifty_servers_get_the_disk_one_after_another() {
    let mut namespace = Namespace::new();
    let names: Vec<String> = (0..50).map(|number| format!("server-{number:02}")).collect();
    for name in &names {
        namespace.add_server(name);
    }
    for name in &names {
        namespace.settle();
        let holder = namespace.disk().status.as_ref().unwrap().holder.as_ref().unwrap();
        assert_eq!(holder.server.as_str(), name);
        assert_eq!(namespace.pods.len(), 1);
        namespace.set_desired(name, Desired::Ended);
        namespace.now += SignedDuration::from_secs(60);
    }
    namespace.settle();
    assert_eq!(current_data(&namespace).matches(';').count(), 50);
    assert_eq!(reason(&namespace, Type::InUse), Some(Reason::Released));
}
