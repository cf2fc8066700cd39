//! Watch events that are repeated, lost or late.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use odc_api::v1alpha1::{DevServerUser, Phase};
use odc_tests::apifault::{EventAction, EventKind, Fault, Pattern};
use odc_tests::manifests;
use serde_json::json;

use super::super::fault_harness::FaultHarness;
use super::super::fixture::{TIMEOUT, user, wait_absent, with_fixture};
use super::{SERVERS, USERS, check_pods};

#[tokio::test]
async fn repeated_lost_and_late_events_have_no_effect() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let harness = FaultHarness::start(fixture).await?;
        let pattern = |resource: &str, prefix: &str| Pattern::resource(resource).with_name_prefix(prefix);

        // Every event twice.
        for resource in ["pods", SERVERS, "services"] {
            harness.proxy.add(Fault::event(1, pattern(resource, "repeated"), None, EventAction::Repeat).always());
        }
        fixture.create_running("repeated", json!({"flavor": "gpu", "nodes": 2})).await?;
        check_pods(&harness, "repeated", 2, 2).await?;

        // Lost: the creation of a server and all events of its pods but the last. The watch expires, as it does when an API
        // server loses events, and the operator lists again.
        harness.proxy.add(Fault::event(1, pattern(SERVERS, "lost"), Some(EventKind::Added), EventAction::Drop));
        harness.proxy.add(Fault::event(1, pattern(SERVERS, "other"), Some(EventKind::Added), EventAction::Expire));
        let fired = harness.proxy.fired();
        fixture.create("lost", json!({"flavor": "gpu", "nodes": 2})).await?;
        harness.proxy.wait_fired(fired + 1, TIMEOUT).await?;
        harness.proxy.add(Fault::event(1, pattern("pods", "lost"), None, EventAction::Drop).times(5));
        harness.proxy.add(Fault::event(6, pattern("pods", "lost"), None, EventAction::Expire));
        fixture.create_running("other", json!({})).await?;
        // Two pods are created, bound and started: six events. The list contains the rest.
        fixture.wait_for_phase("lost", Phase::Running).await?;
        check_pods(&harness, "lost", 2, 2).await?;

        // Late: the pod becomes ready and is deleted before the operator receives any event.
        harness.proxy.add(Fault::event(1, pattern("pods", "late"), None, EventAction::Hold));
        fixture.create("late", json!({"flavor": "gpu"})).await?;
        let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        fixture.wait_for_pod("late-0", "running", |pod| pod.is_some_and(runs)).await?;
        let first = fixture.pods.get("late-0").await?.uid();
        fixture.pods.delete("late-0", &DeleteParams::default()).await?;
        fixture.wait_pod_deleted("late-0").await?;
        harness.proxy.release();
        let recreated = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid() != first && runs(pod));
        fixture.wait_for_pod("late-0", "recreated", recreated).await?;
        fixture.wait_for_phase("late", Phase::Running).await?;
        check_pods(&harness, "late", 1, 2).await
    })
    .await
}

#[tokio::test]
async fn deletions_during_a_broken_watch_are_detected() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let harness = FaultHarness::start(fixture).await?;
        let admin = &fixture.plane.client;
        manifests::apply(admin, &user("bob")).await?;
        fixture.wait_user_ready("bob").await?;
        fixture.create_claim("home").await?;
        let home = json!({"home": {"claim": "home"}});
        fixture.create_running("first", home.clone()).await?;
        fixture.create("second", home).await?;
        fixture.wait_for_phase("second", Phase::Pending).await?;

        // The watch expires instead of the event, and the following list lacks the deleted object.
        for resource in [USERS, SERVERS, "pods"] {
            let expire = Fault::event(1, Pattern::resource(resource), Some(EventKind::Deleted), EventAction::Expire);
            harness.proxy.add(expire);
        }
        let fired = harness.proxy.fired();
        let users: Api<DevServerUser> = Api::all(admin.clone());
        users.delete("bob", &DeleteParams::default()).await?;
        fixture.servers.delete("first", &DeleteParams::default()).await?;
        harness.proxy.wait_fired(fired + 3, TIMEOUT).await?;
        // The server that waits for the claim starts, and the namespace of the user is deleted.
        fixture.wait_for_phase("second", Phase::Running).await?;
        wait_absent(&Api::<Namespace>::all(admin.clone()), "dev-bob").await
    })
    .await
}
