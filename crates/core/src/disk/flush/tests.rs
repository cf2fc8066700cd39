use k8s_openapi::jiff::SignedDuration;
use odc_api::v1alpha1::{Consistency, Desired, DiskAction, DiskOperationPhase, PointReason};

use super::*;
use crate::disk::simulation::{FlushBehavior, Namespace};
use crate::disk::{DiskState, Plan};
use crate::manifest::Kind;
use crate::plan::{Requeue, Write};

/// Returns a namespace with a running server, and an hourly point that is due.
fn due() -> Namespace {
    let mut namespace = Namespace::new();
    namespace.now = "2026-01-31T09:10:00Z".parse().unwrap();
    namespace.add_server("box");
    namespace.settle();
    namespace.disks[0].spec.schedule.hourly = 1;
    namespace.disk_states.clear();
    namespace
}

fn requests(plan: &Plan) -> usize {
    let is_flush = |call: &AgentCall| matches!(call.request, AgentRequest::Flush(_));
    plan.agent_calls.iter().filter(|(_, call)| is_flush(call)).count()
}

fn takes_point(plan: &Plan) -> bool {
    let mut writes = plan.disk_writes.iter().chain(plan.operation_writes.iter().map(|(_, write)| write));
    writes.any(|write| matches!(write, Write::Create(object) if object.kind == Kind::VolumeSnapshot))
}

/// Returns the number of requests and whether a point is taken, with a flush that started and finished this many seconds
/// ago.
fn decide(requested: i64, finished: Option<i64>) -> (usize, bool) {
    let mut namespace = due();
    let ago = |seconds: i64| namespace.now - SignedDuration::from_secs(seconds);
    let flush =
        FlushState { pod: namespace.pods[0].uid.clone(), requested_at: ago(requested), finished_at: finished.map(ago) };
    namespace.disk_states.insert("uid-disk-home".into(), DiskState { flush: Some(flush), ..DiskState::default() });
    let plan = namespace.plan(namespace.disk());
    (requests(&plan), takes_point(&plan))
}

#[test]
fn point_of_a_running_server_waits_for_a_flush() {
    let namespace = due();
    let plan = namespace.plan(namespace.disk());
    assert_eq!((requests(&plan), takes_point(&plan)), (1, false));
    let (server, call) = &plan.agent_calls[0];
    assert_eq!(*server, namespace.servers[0].metadata.uid.clone().unwrap());
    assert_eq!(*call.pod, namespace.pods[0].uid);
    assert_eq!(plan.requeue, Requeue::After(REPLY_TIMEOUT));
}

#[test]
fn point_is_taken_after_a_recent_reply_or_without_one_in_time() {
    for (requested, finished, expect) in [
        // Waits.
        (0, None, (0, false)),
        (9, None, (0, false)),
        // Timed out.
        (10, None, (0, true)),
        (24, None, (0, true)),
        // Too long ago: again.
        (25, None, (1, false)),
        (3600, None, (1, false)),
        // Answered.
        (3, Some(0), (0, true)),
        (20, Some(14), (0, true)),
        (20, Some(15), (1, false)),
        (3600, Some(3599), (1, false)),
        // From a clock that was ahead.
        (-3600, None, (1, false)),
        (-3600, Some(-3601), (1, false)),
    ] {
        assert_eq!(decide(requested, finished), expect, "{requested} {finished:?}");
    }
}

#[test]
fn request_is_repeated_after_a_restart() {
    let mut namespace = due();
    namespace.flush = FlushBehavior::Hangs;
    namespace.step();
    assert_eq!(requests(&namespace.plan(namespace.disk())), 0);
    namespace.disk_states.clear();
    assert_eq!(requests(&namespace.plan(namespace.disk())), 1);
}

#[test]
fn agent_that_fails_or_hangs_delays_a_point_only() {
    for (flush, delay) in [(FlushBehavior::Fails, 0), (FlushBehavior::Hangs, 10)] {
        let mut namespace = due();
        namespace.flush = flush;
        namespace.settle();
        namespace.now += SignedDuration::from_secs(delay);
        namespace.settle();
        let points = &namespace.disk().status.as_ref().unwrap().points;
        let [point] = points.as_slice() else { panic!("{flush:?}: {points:?}") };
        assert_eq!((point.reason, point.consistency), (PointReason::Hourly, Consistency::CrashConsistent));
        assert_eq!(point.listing, None);
    }
}

#[test]
fn operations_on_a_disk_in_use_flush_it() {
    for (action, name) in [(DiskAction::Snapshot, None), (DiskAction::Clone, Some("copy"))] {
        let mut namespace = due();
        namespace.disks[0].spec.schedule.hourly = 0;
        namespace.add_operation("op1", action, None, name);
        namespace.settle();
        assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
        assert!(namespace.disk_states["uid-disk-home"].flush.is_some());
        let point = &namespace.disk().status.as_ref().unwrap().points[0];
        assert!(point.listing.is_some() && point.consistency == Consistency::CrashConsistent, "{point:?}");
    }
}

#[test]
fn nothing_is_flushed_without_a_reachable_server() {
    let mut namespace = due();
    namespace.pods[0].server.as_mut().unwrap().ready = false;
    let plan = namespace.plan(namespace.disk());
    assert_eq!((requests(&plan), takes_point(&plan)), (0, true));
    // Of an unused disk.
    let mut namespace = due();
    namespace.disks[0].spec.schedule.hourly = 0;
    namespace.set_desired("box", Desired::Hibernated);
    namespace.settle();
    namespace.add_operation("op1", DiskAction::Snapshot, None, None);
    namespace.settle();
    assert_eq!(namespace.operation("op1"), Some(DiskOperationPhase::Succeeded));
    assert!(namespace.disk_states["uid-disk-home"].flush.is_none());
}
