use k8s_openapi::jiff::SignedDuration;
use odc_api::label;
use odc_api::v1alpha1::{Desired, DiskAction};

use super::*;
use crate::disk::simulation::{FlushBehavior, Namespace};

/// Returns a namespace with a server that was stopped this number of times.
fn stopped(times: usize) -> Namespace {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    for _ in 0..times {
        stop_again(&mut namespace);
    }
    namespace
}

fn stop_again(namespace: &mut Namespace) {
    namespace.set_desired("box", Desired::Running);
    namespace.settle();
    namespace.now += SignedDuration::from_secs(600);
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
}

/// Returns which points have a listing, newest first.
fn listed(namespace: &Namespace) -> Vec<bool> {
    let points = &namespace.disk().status.as_ref().unwrap().points;
    points.iter().map(|point| point.listing.is_some()).collect()
}

#[test]
fn newest_three_points_keep_their_listing() {
    let namespace = stopped(5);
    assert_eq!(listed(&namespace), [true, true, true, false, false]);
    assert_eq!(namespace.config_maps.len(), 3);
    let points = &namespace.disk().status.as_ref().unwrap().points;
    let names: Vec<&str> = namespace.config_maps.iter().rev().map(|config_map| config_map.name.as_str()).collect();
    assert_eq!(names, points.iter().take(3).map(|point| point.name.as_str()).collect::<Vec<_>>());
}

#[test]
fn usage_is_that_of_the_newest_point_of_the_claim() {
    let mut namespace = stopped(1);
    let status = |namespace: &Namespace| namespace.disk().status.clone().unwrap();
    // The data is `box;`.
    assert_eq!(status(&namespace).used, Some("4Mi".parse().unwrap()));
    assert_eq!(status(&namespace).used_at, Some(to_api_precision(namespace.now)));
    stop_again(&mut namespace);
    assert_eq!(status(&namespace).used, Some("8Mi".parse().unwrap()));
    let point = status(&namespace).points[0].clone();
    assert_eq!(point.listing, Some(PointListing { used: "8Mi".parse().unwrap(), files: 1 }));
    // The usage after a rollback is not known before the next stop.
    let earliest = status(&namespace).points[1].name.clone();
    namespace.add_operation("op1", DiskAction::Rollback, Some(earliest.as_str()), None);
    namespace.settle();
    assert_eq!((status(&namespace).used, status(&namespace).used_at), (None, None));
}

#[test]
fn point_of_an_unreachable_agent_has_no_listing() {
    let mut namespace = stopped(1);
    namespace.flush = FlushBehavior::Fails;
    stop_again(&mut namespace);
    assert_eq!(listed(&namespace), [false, true]);
    // The listing of the stop before is too old.
    let plan = namespace.plan(namespace.disk());
    assert_eq!((plan.listings.store.len(), plan.listings.remove.len()), (0, 0));
}

#[test]
fn listing_is_forgotten_after_a_while() {
    let mut namespace = stopped(1);
    let recorded = |namespace: &Namespace| namespace.disk_states["uid-disk-home"].listing.clone();
    let at = recorded(&namespace).unwrap().at;
    namespace.now = at + SignedDuration::from_secs(299);
    assert_eq!(namespace.plan(namespace.disk()).listings.forget, None);
    namespace.now = at + SignedDuration::from_secs(300);
    assert_eq!(namespace.plan(namespace.disk()).listings.forget, Some(at));
    namespace.settle();
    assert_eq!(recorded(&namespace), None);
}

#[test]
fn listing_is_not_stored_for_points_of_changed_data() {
    let mut namespace = stopped(1);
    // Right after the stop; an operation could have changed the data.
    namespace.add_operation("op1", DiskAction::Snapshot, None, None);
    namespace.settle();
    assert_eq!(listed(&namespace), [false, true]);
}

#[test]
fn config_map_is_owned_by_its_point_and_deleted_by_uid() {
    let mut namespace = Namespace::new();
    namespace.add_server("box");
    namespace.settle();
    namespace.set_desired("box", Desired::Hibernated);
    let store = loop {
        namespace.run_cluster();
        let plan = namespace.plan(namespace.disk());
        if let [store] = plan.listings.store.as_slice() {
            break store.clone();
        }
        namespace.run_operator();
    };
    let body = &store.config_map.body;
    let snapshot = namespace.snapshots.as_ref().unwrap()[0].clone();
    assert_eq!(body["metadata"]["name"], json!(snapshot.name));
    assert_eq!(body["metadata"]["labels"][label::DISK_UID], "uid-disk-home");
    let owner = &body["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("VolumeSnapshot"), &json!(snapshot.uid)));
    assert!(body["binaryData"][LISTING_KEY].is_string() && body["immutable"] == true);
    let Write::Apply(record) = store.record("cm") else { panic!() };
    let recorded = Snapshot::from_api(&record.body).listing.unwrap();
    assert_eq!(recorded, StoredListing { uid: "cm".into(), used_bytes: 4 << 20, files: 1 });
    assert_eq!(record.body["metadata"]["uid"], json!(snapshot.uid));

    let namespace = {
        let mut namespace = stopped(3);
        let snapshots = namespace.snapshots.as_mut().unwrap();
        let oldest = snapshots.iter_mut().min_by_key(|snapshot| snapshot.sequence).unwrap();
        let older = Snapshot { sequence: 0, name: "older".into(), uid: "older".into(), ..oldest.clone() };
        snapshots.push(older);
        namespace
    };
    let remove = namespace.plan(namespace.disk()).listings.remove;
    let [Write::Delete(target), Write::Apply(forgotten)] = remove.as_slice() else { panic!("{remove:?}") };
    assert_eq!((target.kind, target.name.as_str()), (Kind::ConfigMap, "older"));
    assert!(target.uid.starts_with("config-map-"), "{target:?}");
    assert_eq!(forgotten.body["metadata"]["annotations"], json!({}));
}

#[test]
fn usage_is_rounded_up() {
    for (bytes, text) in [(0, "0"), (1, "1Mi"), (1 << 20, "1Mi"), ((3 << 30) + 1, "3073Mi"), (u64::MAX, "8Ei")] {
        assert_eq!(quantity(bytes), text.parse().unwrap(), "{bytes}");
    }
}
