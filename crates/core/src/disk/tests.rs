use k8s_openapi::jiff::SignedDuration;
use odc_api::annotation;
use odc_api::text::Text;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{
    Desired, DiskAction, DiskDeletion, DiskHolder, DiskOperation, DiskOperationPhase, DiskSource, PointReason,
};
use serde_json::Value;

use super::simulation::Namespace;
use super::*;
use crate::cluster::{ClaimPhase, VolumeAffinity};

/// Returns a namespace in which the disk was used once, with one point.
fn used() -> Namespace {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    namespace.settle();
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    namespace
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn created(plan: &Plan, kind: Kind) -> Vec<&Value> {
    let all = plan.writes.iter().chain(&plan.disk_writes).chain(plan.operation_writes.iter().map(|(_, write)| write));
    let bodies = all.filter_map(|write| match write {
        Write::Create(object) if object.kind == kind => Some(&object.body),
        _ => None,
    });
    bodies.collect()
}

fn ready(plan: &Plan) -> (Reason, String) {
    let ready = condition::find(&plan.status.conditions, Type::Ready).unwrap();
    (ready.reason.known().unwrap(), ready.message.to_string())
}

#[test]
fn claim_has_the_uid_of_the_disk_and_no_owner() {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    let mut disk = namespace.disk().clone();
    disk.status = Some(namespace.plan(&disk).status);
    let mut plan = namespace.plan(&Disk { status: None, ..disk.clone() });
    if created(&plan, Kind::PersistentVolumeClaim).is_empty() {
        plan = namespace.plan(&disk);
    }
    let claims = created(&plan, Kind::PersistentVolumeClaim);
    let [claim] = claims.as_slice() else { panic!("{:?}", plan.writes) };
    assert_eq!(claim["metadata"]["name"], "disk-home-uiddiskh");
    assert_eq!(claim["metadata"]["labels"][label::DISK_UID], "uid-disk-home");
    assert!(claim["metadata"]["ownerReferences"].is_null());
    assert_eq!(claim["spec"]["accessModes"][0], "ReadWriteOncePod");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "50Gi");
    // No data exists without the finalizer.
    assert!(matches!(&plan.writes[0], Write::Apply(object) if object.kind == Kind::Disk));
}

#[test]
fn disk_without_a_storage_class_says_what_is_missing() {
    let mut namespace = Namespace::new();
    namespace.is_storage_stopped = true;
    namespace.add_server("box");
    namespace.settle();
    namespace.class.is_default = false;
    let (reason, message) = ready(&namespace.plan(&namespace.disk().clone()));
    assert_eq!(reason, Reason::Provisioning);
    assert!(message.starts_with("The cluster has no default StorageClass."), "{message}");
    namespace.claims[0].class = Some("fast".into());
    let (_, message) = ready(&namespace.plan(&namespace.disk().clone()));
    assert!(message.starts_with("StorageClass fast not found."), "{message}");
}

#[test]
fn copies_of_a_point_are_created_where_its_volume_was() {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    namespace.settle();
    let nodes = r#"{"nodeSelectorTerms":[{"matchExpressions":[{"key":"pool","operator":"In","values":["n1"]}]}]}"#;
    namespace.volumes[0].affinity = VolumeAffinity::from_annotation(nodes);
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    let disk = namespace.disk().clone();
    let status = disk.status.as_ref().unwrap();
    assert_eq!(status.location.as_ref().map(Text::as_str), Some("pool=n1"));
    let point = status.points[0].name.clone();
    let affinity = |plan: &Plan| {
        let claims = created(plan, Kind::PersistentVolumeClaim);
        let [claim] = claims.as_slice() else { panic!("{:?}", plan.writes) };
        claim["metadata"]["annotations"][annotation::VOLUME_AFFINITY].as_str().map(VolumeAffinity::from_annotation)
    };
    let expected = Some(VolumeAffinity::from_annotation(nodes));

    let mut copy = Disk::test();
    copy.metadata.name = Some("copy".into());
    copy.metadata.uid = Some("uid-copy".into());
    copy.spec.source = Some(DiskSource::Point { disk: "disk-home".parse().unwrap(), point: point.clone() });
    let holder = DiskHolder {
        server: "box".parse().unwrap(),
        uid: "u".into(),
        since: to_api_precision(namespace.now),
        used: false,
        interrupted: false,
        releasing_since: None,
    };
    copy.status = Some(DiskStatus { holder: Some(holder), ..DiskStatus::default() });
    assert_eq!(affinity(&namespace.plan(&copy)), expected);

    // The volume is lost; only the point knows where it was.
    namespace.claims.clear();
    namespace.volumes.clear();
    namespace.add_operation("op1", DiskAction::Rollback, Some(point.as_str()), None);
    namespace.run_operator();
    let plan = namespace.plan(&namespace.disk().clone());
    assert_eq!(affinity(&plan), expected);
}

#[test]
fn disk_is_restored_only_from_a_verified_point_of_sufficient_size() {
    let mut namespace = used();
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.clone();
    let mut copy = Disk::test();
    copy.metadata.name = Some("copy".into());
    copy.metadata.uid = Some("uid-copy".into());
    copy.spec.source = Some(DiskSource::Point { disk: "disk-home".parse().unwrap(), point });
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::NotProvisioned);
    copy.spec.size = "1Mi".parse().unwrap();
    let (reason, message) = ready(&namespace.plan(&copy));
    assert_eq!(reason, Reason::SizeTooSmall);
    assert!(message.starts_with("Size 1Mi is below 1Gi, the size of restore point disk-home-stop-"), "{message}");
    copy.spec.size = "50Gi".parse().unwrap();
    // Each of these was observed with real drivers: an error after ready, a lost content, no size.
    let faults: [fn(&mut Namespace); 4] = [
        |namespace| namespace.snapshots.as_mut().unwrap()[0].error = Some("gone".into()),
        |namespace| namespace.contents.clear(),
        |namespace| namespace.contents[0].snapshot_uid = Some("another".into()),
        |namespace| namespace.snapshots.as_mut().unwrap()[0].restore_size = Some("0".parse().unwrap()),
    ];
    for inject in faults {
        let mut broken = namespace.clone();
        inject(&mut broken);
        assert_eq!(ready(&broken.plan(&copy)).0, Reason::SourceUnavailable);
    }
    copy.spec.source = Some(DiskSource::Disk("disk-home".parse().unwrap()));
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::NotProvisioned);
    copy.spec.source = Some(DiskSource::Claim("missing".parse().unwrap()));
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::SourceUnavailable);
    copy.spec.source = Some(DiskSource::Claim(namespace.claims[0].name.parse().unwrap()));
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::NotProvisioned);
    namespace.claims.clear();
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::SourceUnavailable);
}

#[test]
fn claim_with_the_label_of_another_disk_is_not_used() {
    let mut namespace = used();
    namespace.claims[0].disk_uid = Some("uid-other".into());
    assert_eq!(ready(&namespace.plan(namespace.disk())).0, Reason::NameConflict);
    // Without an entry in the status, one claim of the disk is adopted, and two are not.
    let mut namespace = used();
    let mut disk = namespace.disk().clone();
    disk.status = None;
    assert_eq!(ready(&namespace.plan(&disk)).0, Reason::Bound);
    let mut second = namespace.claims[0].clone();
    second.name = "disk-home-second".into();
    namespace.claims.push(second);
    assert_eq!(ready(&namespace.plan(&disk)).0, Reason::ClaimAmbiguous);
}

#[test]
fn size_of_a_bound_claim_is_raised() {
    let mut namespace = used();
    namespace.disks[0].spec.size = "60Gi".parse().unwrap();
    namespace.settle();
    assert_eq!(namespace.claims[0].size, Some("60Gi".parse().unwrap()));
    assert!(namespace.plan(namespace.disk()).writes.is_empty());
}

#[test]
fn scheduled_points_are_taken_once_per_period_in_any_clock_direction() {
    let mut namespace = Namespace::new();
    namespace.disks[0].spec.schedule.hourly = 2;
    namespace.disks[0].spec.schedule.daily = 1;
    namespace.add_server("box");
    namespace.now = at("2026-01-31T09:10:00Z");
    namespace.settle();
    let hourly = |namespace: &Namespace| {
        let points = &namespace.disk().status.as_ref().unwrap().points;
        let hourly = points.iter().filter(|point| point.reason == PointReason::Hourly);
        hourly.map(|point| point.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(hourly(&namespace), ["disk-home-hourly-20260131-09"]);
    // Without the listing in memory, which expires earlier.
    namespace.disk_states.clear();
    assert_eq!(namespace.plan(namespace.disk()).requeue, Requeue::After(Duration::from_secs(50 * 60)));
    for (now, newest) in [
        ("2026-01-31T09:50:00Z", "disk-home-hourly-20260131-09"),
        ("2026-01-31T10:00:00Z", "disk-home-hourly-20260131-10"),
        ("2036-01-31T10:00:00Z", "disk-home-hourly-20360131-10"),
        ("2026-01-31T11:00:00Z", "disk-home-hourly-20260131-11"),
    ] {
        namespace.now = at(now);
        namespace.settle();
        assert_eq!(hourly(&namespace)[0], newest);
        assert!(hourly(&namespace).len() <= 2);
    }
}

#[test]
fn points_on_demand_are_refused_near_the_limit_and_stops_are_not() {
    let mut namespace = used();
    let snapshots = namespace.snapshots.as_mut().unwrap();
    let other = Snapshot { disk_uid: Some("uid-other".into()), ..snapshots[0].clone() };
    snapshots.extend((1..450).map(|number| Snapshot {
        name: format!("other-{number}"),
        uid: format!("other-{number}"),
        ..other.clone()
    }));
    namespace.add_operation("op1", DiskAction::Snapshot, None, None);
    namespace.settle();
    assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Failed));
    let points = namespace.disk().status.as_ref().unwrap().points.len();
    namespace.set_desired("box", Desired::Running);
    namespace.settle();
    namespace.now += SignedDuration::from_secs(60);
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    assert_eq!(namespace.disk().status.as_ref().unwrap().points.len(), points + 1);
}

#[test]
fn finished_operations_expire_after_a_week_or_beyond_fifty() {
    let now = at("2026-01-31T00:00:00Z");
    let finished = |name: &str, days_ago: i64| {
        let mut operation = DiskOperation::test(name, DiskAction::Snapshot);
        let status = operation.status.get_or_insert_default();
        status.phase = Some(DiskOperationPhase::Succeeded);
        status.finished_at = Some(to_api_precision(now - SignedDuration::from_hours(24 * days_ago)));
        operation
    };
    let names = |operations: &[DiskOperation]| {
        let (expired, next) = expired_operations(&operations.iter().collect::<Vec<_>>(), now);
        (expired.into_iter().map(|target| target.name).collect::<Vec<_>>(), next)
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let mut running = finished("running", 9);
    running.status.as_mut().unwrap().phase = Some(DiskOperationPhase::Running);
    assert_eq!(names(&[finished("old", 7), finished("new", 6), running]), (vec!["old".to_owned()], Some(day)));
    let many: Vec<DiskOperation> = (0..52).map(|number| finished(&format!("op{number:02}"), 1)).collect();
    assert_eq!(names(&many).0, ["op01", "op00"]);
}

#[test]
fn disk_whose_claim_is_being_deleted_can_be_rolled_back() {
    let mut namespace = used();
    namespace.claims[0].is_deleting = true;
    let (reason, message) = ready(&namespace.plan(&namespace.disk().clone()));
    assert_eq!(reason, Reason::DiskUnavailable);
    assert!(message.contains("is being deleted. Roll back to a restore point"), "{message}");
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.clone();
    namespace.add_operation("op1", DiskAction::Rollback, Some(point.as_str()), None);
    namespace.run_operator();
    let plan = namespace.plan(&namespace.disk().clone());
    assert!(created(&plan, Kind::VolumeSnapshot).is_empty(), "a claim that is being deleted has no more snapshots");
    let claims = created(&plan, Kind::PersistentVolumeClaim);
    let [claim] = claims.as_slice() else { panic!("{:?}", plan.operation_writes) };
    assert_eq!(claim["spec"]["dataSource"]["name"], point.as_str());
}

#[test]
fn disk_that_is_deleted_during_a_stop_waits_for_its_point() {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    namespace.settle();
    namespace.is_storage_stopped = true;
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    namespace.delete_disk(Some("disk-home"));
    let (reason, message) = ready(&namespace.plan(&namespace.disk().clone()));
    assert_eq!(reason, Reason::Deleting);
    assert!(message.contains("Waiting until restore point disk-home-stop-"), "{message}");
    let mut late = namespace.disk().clone();
    late.metadata.deletion_timestamp = Some(to_api_precision(namespace.now - SignedDuration::from_mins(6)));
    let deletes_snapshot = |plan: &Plan| {
        plan.writes.iter().any(|write| matches!(write, Write::Delete(target) if target.kind == Kind::VolumeSnapshot))
    };
    assert!(deletes_snapshot(&namespace.plan(&late)), "not waited for any longer");
    assert!(!deletes_snapshot(&namespace.plan(&namespace.disk().clone())));
    namespace.is_storage_stopped = false;
    namespace.settle();
    assert!(namespace.disks.is_empty() && namespace.contents.is_empty() && namespace.volumes.is_empty());
}

#[test]
fn operation_waits_until_a_deleted_server_has_released_the_disk() {
    let mut namespace = used();
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.clone();
    namespace.servers.clear();
    let holder = DiskHolder {
        server: "box".parse().unwrap(),
        uid: "gone".into(),
        since: to_api_precision(namespace.now),
        used: true,
        interrupted: false,
        releasing_since: None,
    };
    namespace.disks[0].status.as_mut().unwrap().holder = Some(holder);
    namespace.add_operation("op1", DiskAction::Rollback, Some(point.as_str()), None);
    namespace.settle();
    let status = namespace.operations[0].status.as_ref().unwrap();
    assert_eq!(status.phase, Some(DiskOperationPhase::Succeeded), "{status:?}");
}

#[test]
fn disk_with_a_claim_that_waits_for_a_server_is_deleted() {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    namespace.settle();
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    namespace.wait_for_consumers();
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.clone();
    namespace.add_operation("op1", DiskAction::Rollback, Some(point.as_str()), None);
    namespace.settle();
    assert!(namespace.claims.iter().any(|claim| claim.phase == ClaimPhase::Pending), "{:#?}", namespace.claims);
    namespace.delete_disk(Some("disk-home"));
    namespace.settle();
    assert!(namespace.disks.is_empty() && namespace.contents.is_empty() && namespace.claims.is_empty());
}

#[test]
fn deletion_after_30_days_requires_the_observed_version() {
    let namespace = used();
    let mut disk = namespace.disk().clone();
    disk.spec.deleted = true;
    disk.metadata.resource_version = Some("7".into());
    let now = to_api_precision(namespace.now);
    disk.status.get_or_insert_default().deletion = Some(DiskDeletion { since: now.clone(), days: 30, counted_at: now });
    let plan = namespace.plan(&disk);
    let deleted = plan.writes.iter().find_map(|write| match write {
        Write::Delete(target) if target.kind == Kind::Disk => Some(target),
        _ => None,
    });
    assert_eq!(deleted.unwrap().resource_version.as_deref(), Some("7"), "the deletion conflicts with a later change");
}

#[test]
fn namespace_deletion_keeps_the_data() {
    let namespace = used();
    let mut disk = namespace.disk().clone();
    disk.metadata.deletion_timestamp = Some(to_api_precision(namespace.now));
    disk.metadata.annotations = Some([(annotation::CONFIRM_DELETE.to_owned(), "disk-home".to_owned())].into());
    let observed =
        Observed { is_namespace_deleting: true, claims: namespace.claims.iter().collect(), ..Observed::default() };
    let plan = reconcile(&disk, &observed, &crate::devserver::fixtures::settings(), namespace.now);
    assert!(plan.writes.iter().all(|write| !matches!(write, Write::Delete(_))), "{:?}", plan.writes);
    assert!(matches!(plan.writes.last(), Some(Write::Apply(object)) if object.kind == Kind::Disk));
}

fn resized(plan: &Plan) -> (Reason, String) {
    let resized = condition::find(&plan.status.conditions, Type::Resized).unwrap();
    (resized.reason.known().unwrap(), resized.message.to_string())
}

#[test]
fn storage_limit_counts_current_claims_and_claims_without_a_disk() {
    let mut namespace = Namespace::new();
    namespace.owner.spec.quota.storage = Some("99Gi".parse().unwrap());
    namespace.add_server("box");
    namespace.settle();
    let mut copy = Disk::test();
    copy.metadata.name = Some("copy".into());
    copy.metadata.uid = Some("uid-copy".into());
    let (reason, message) = ready(&namespace.plan(&copy));
    assert_eq!(reason, Reason::QuotaExceeded);
    assert!(
        message.starts_with("Disk copy of 50Gi exceeds your limit on storage: 50Gi of 99Gi are used."),
        "{message}"
    );
    copy.spec.size = "49Gi".parse().unwrap();
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::NotProvisioned);
    // The claim that a rollback replaced is not charged, a claim without a disk is.
    let mut other = namespace.claims[0].clone();
    other.name = "other".into();
    namespace.claims.push(other);
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::NotProvisioned);
    namespace.claims[1].disk_uid = None;
    assert_eq!(ready(&namespace.plan(&copy)).0, Reason::QuotaExceeded);
    // A disk that has its claim stays usable.
    assert_eq!(ready(&namespace.plan(namespace.disk())).0, Reason::Bound);
}

#[test]
fn disk_is_expanded_unless_class_or_limit_forbid_it() {
    let mut namespace = used();
    assert_eq!(resized(&namespace.plan(namespace.disk())).0, Reason::Resized);
    let mut disk = namespace.disk().clone();
    disk.spec.size = "60Gi".parse().unwrap();
    namespace.owner.spec.quota.storage = Some("55Gi".parse().unwrap());
    let limited = namespace.plan(&disk);
    assert_eq!((resized(&limited).0, limited.disk_writes.len()), (Reason::QuotaExceeded, 0));
    namespace.owner.spec.quota.storage = None;
    let plan = namespace.plan(&disk);
    assert_eq!((resized(&plan).0, plan.disk_writes.len()), (Reason::Resizing, 1));
    namespace.class.allows_expansion = false;
    let plan = namespace.plan(&disk);
    assert_eq!(plan.disk_writes, []);
    let message = "StorageClass standard does not allow expansion. Clone the disk to a larger one.";
    assert_eq!(resized(&plan), (Reason::ExpansionUnsupported, message.to_owned()));
    // The claim requests the size, and the driver has not expanded the volume yet.
    (namespace.claims[0].size, namespace.claims[0].capacity) = (Some(disk.spec.size), Some("50Gi".parse().unwrap()));
    assert_eq!(resized(&namespace.plan(&disk)).0, Reason::Resizing);
    namespace.claims[0].capacity = Some("64Gi".parse().unwrap());
    assert_eq!(resized(&namespace.plan(&disk)).0, Reason::Resized);
}

#[test]
fn progress_counts_the_steps_of_an_operation() {
    let mut namespace = used();
    namespace.is_storage_stopped = true;
    let point = namespace.disk().status.as_ref().unwrap().points[0].name.to_string();
    namespace.add_operation("op1", DiskAction::Rollback, Some(&point), None);
    let progress = |namespace: &Namespace| {
        namespace.operation_status("op1").unwrap().progress.as_ref().map(ToString::to_string).unwrap()
    };
    namespace.settle();
    assert_eq!(progress(&namespace), "0/3");
    namespace.wait_for_consumers();
    namespace.is_storage_stopped = false;
    let mut seen = vec![];
    for _ in 0..10 {
        namespace.step();
        seen.push(progress(&namespace));
    }
    seen.dedup();
    assert_eq!(seen, ["0/3", "1/3", "2/3", "3/3"]);
    let failed = {
        namespace.add_operation("op2", DiskAction::Rollback, Some("nothing"), None);
        namespace.settle();
        namespace.operation_status("op2").unwrap()
    };
    assert_eq!(failed.progress.as_ref().map(ToString::to_string).as_deref(), Some("0/3"));
}

#[test]
fn points_on_a_schedule_leave_room_for_those_of_stops() {
    let mut namespace = used();
    namespace.set_desired("box", Desired::Running);
    namespace.settle();
    namespace.disks[0].spec.schedule.hourly = 1;
    let snapshots = namespace.snapshots.as_mut().unwrap();
    let other = Snapshot { disk_uid: Some("uid-other".into()), ..snapshots[0].clone() };
    snapshots.extend((1..450).map(|number| Snapshot { name: format!("other-{number}"), ..other.clone() }));
    let mut fewer = namespace.clone();
    namespace.settle();
    fewer.snapshots.as_mut().unwrap().pop();
    fewer.settle();
    let hourly = |namespace: &Namespace| {
        let points = &namespace.disk().status.as_ref().unwrap().points;
        points.iter().filter(|point| point.reason == PointReason::Hourly).count()
    };
    assert_eq!((hourly(&namespace), hourly(&fewer)), (0, 1));
}
