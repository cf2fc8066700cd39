//! Lifecycle of servers on simulated nodes: requests of the owner, repairs and failures.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::condition::Type;
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::wait;
use serde_json::json;

use super::fixture::{NAMESPACE, TIMEOUT, condition_message, status, wait_absent, wait_for, with_fixture};

#[tokio::test]
async fn server_expires_unless_extended() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        // Long enough that the server still runs when it is extended.
        let server = fixture.create_running("longer", json!({"lifetime": "20s"})).await?;
        fixture.create("short", json!({"lifetime": "3s"})).await?;
        let first = status(&server).expires_at;
        fixture.patch_spec("longer", json!({"lifetime": "10m"})).await?;
        let extended = fixture.wait_for("longer", "extended", |server| status(server).expires_at > first).await?;
        assert_eq!(status(&extended).lifetime.map(|lifetime| lifetime.granted.to_string()).as_deref(), Some("10m"));

        let ended = fixture.wait_for_phase("short", Phase::Expired).await?;
        assert!(status(&ended).finished_at.is_some());
        assert!(status(&ended).admission.is_some_and(|admission| admission.nodes.is_empty()));
        assert!(fixture.pods.get_opt("short-0").await?.is_none());
        // A finished server can be read and not be changed.
        let rejected = fixture.patch_spec("short", json!({"lifetime": "1h"})).await.unwrap_err();
        assert!(rejected.to_string().contains("the server has ended and is immutable"), "{rejected}");
        let first = first.map(|time| time.0).unwrap_or_default();
        wait::until("original expiry", TIMEOUT, async || {
            anyhow::ensure!(Timestamp::now() > first + SignedDuration::from_secs(2), "it is at {first}");
            Ok(())
        })
        .await?;
        assert_eq!(status(&fixture.servers.get("longer").await?).phase, Some(Phase::Running));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_is_queued_until_devices_are_free() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        for name in ["first", "second"] {
            fixture.create_running(name, json!({"flavor": "gpu", "count": 8})).await?;
        }
        fixture.create("third", json!({"flavor": "gpu", "count": 1})).await?;
        let queued = fixture
            .wait_for("third", "queued with a reason", |server| {
                let status = status(server);
                let reported = status.admission.as_ref().and_then(|admission| admission.message.clone());
                status.phase == Some(Phase::Queued)
                    && reported.is_some_and(|message| message.as_str() == condition_message(server, Type::Admitted))
            })
            .await?;
        let message = status(&queued).admission.and_then(|admission| admission.message).unwrap_or_default();
        assert!(message.as_str().contains("nvidia.com/gpu"), "{message}");
        assert_eq!(status(&queued).admission.and_then(|admission| admission.position), Some(1));
        fixture.patch_spec("first", json!({"desired": "Ended"})).await?;
        fixture.wait_for_phase("first", Phase::Cancelled).await?;
        fixture.wait_for_phase("third", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rejected_server_reports_the_reason_and_starts_once_resolved() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        for (name, changes, expected) in [
            ("flavor", json!({"flavor": "h100"}), "Flavor h100 not found. Available flavors: cpu, gpu."),
            (
                "count",
                json!({"flavor": "gpu", "count": 9}),
                "Invalid count 9: flavor gpu offers 1 to 8 nvidia.com/gpu per node. Set spec.count to one of these.",
            ),
            ("team", json!({"team": "vision"}), "User ada is not a member of team vision"),
            ("disk", json!({"home": {"disk": "d"}}), "Disk d not found in this namespace."),
            ("claim", json!({"home": {"claim": "absent"}}), "Claim absent not found"),
        ] {
            fixture.create(name, changes).await?;
            let server =
                fixture.wait_for(name, "rejected", |server| !condition_message(server, Type::Ready).is_empty()).await?;
            assert_eq!(status(&server).phase, Some(Phase::Pending), "{name}");
            assert!(
                condition_message(&server, Type::Ready).contains(expected),
                "{name}: {}",
                condition_message(&server, Type::Ready)
            );
        }
        // The missing claim is created, and the server starts.
        fixture.create_claim("absent").await?;
        fixture.wait_for_phase("claim", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn manual_changes_to_owned_objects_are_repaired() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let server = fixture.create_running("gang", json!({"flavor": "gpu", "nodes": 2})).await?;
        let run = status(&server).admission.unwrap_or_default().run;

        // A deleted pod is created again on the same node.
        let before = fixture.pods.get("gang-1").await?.metadata.uid;
        fixture.pods.delete("gang-1", &DeleteParams::default()).await?;
        fixture
            .wait_for_pod("gang-1", "recreated", |pod| {
                pod.is_some_and(|pod| pod.metadata.uid != before && pod.metadata.deletion_timestamp.is_none())
            })
            .await?;
        fixture.wait_for_phase("gang", Phase::Running).await?;

        // A Service with a wrong selector, without labels and without an owner is repaired.
        let services: Api<Service> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
        let repaired = |service: Option<&Service>| {
            service.is_some_and(|service| {
                let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                let labelled =
                    service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("odc.dev/server"));
                let selected =
                    selector.and_then(|selector| selector.get("odc.dev/server")).map(String::as_str) == Some("gang");
                labelled && selected && service.metadata.owner_references.is_some()
            })
        };
        for patch in [
            json!({"spec": {"selector": {"odc.dev/server": "other"}}}),
            json!({"metadata": {"labels": null, "ownerReferences": null}}),
        ] {
            services.patch("gang", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            wait_for(&services, "gang", "repaired", repaired).await?;
        }

        // A pod without an owner is adopted, and deleted with the server.
        let patch = json!({"metadata": {"ownerReferences": null, "labels": {"odc.dev/server": null}}});
        fixture.pods.patch("gang-0", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        fixture
            .wait_for_pod("gang-0", "adopted", |pod| pod.is_some_and(|pod| pod.metadata.owner_references.is_some()))
            .await?;
        assert_eq!(status(&fixture.servers.get("gang").await?).admission.unwrap_or_default().run, run);

        let secret_name = fixture.secret_name("gang").await?;
        fixture.servers.delete("gang", &DeleteParams::default()).await?;
        for pod in ["gang-0", "gang-1"] {
            fixture.wait_pod_deleted(pod).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
        wait_absent(&secrets, &secret_name).await
    })
    .await
}

#[tokio::test]
async fn server_of_a_lost_node_moves_to_another() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let server = fixture.create_running("moves", json!({"flavor": "gpu", "count": 8})).await?;
        let first = status(&server).admission.unwrap_or_default().nodes;
        fixture.plane.fail_node(&first[0]).await?;
        let moved = fixture
            .wait_for("moves", "on another node", |server| {
                let status = status(server);
                status.phase == Some(Phase::Running)
                    && status.admission.is_some_and(|admission| !admission.nodes.is_empty() && admission.nodes != first)
            })
            .await?;
        assert_eq!(status(&moved).last_failure.map(|failure| failure.reason).as_deref(), Some("NodeLost"));
        let pod: Pod = fixture.pods.get("moves-0").await?;
        assert_ne!(pod.spec.and_then(|spec| spec.node_name).as_ref(), first.first());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn finalizer_that_blocks_a_deletion_is_reported() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        fixture.create_running_with_claim("held", "home").await?;
        let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
        let release = json!({"metadata": {"finalizers": null}});
        let params = PatchParams::default();
        fixture.pods.patch("held-0", &params, &Patch::Merge(&hold)).await?;
        fixture.patch_spec("held", json!({"desired": "Hibernated"})).await?;
        let message = "Pod held-0 is terminating but blocked by finalizers: example.org/hold";
        let server = fixture
            .wait_for("held", "reported as blocked", |server| condition_message(server, Type::Ready).contains(message))
            .await?;
        assert_eq!(status(&server).phase, Some(Phase::Hibernating));
        fixture.pods.patch("held-0", &params, &Patch::Merge(&release)).await?;
        fixture.wait_for_phase("held", Phase::Hibernated).await?;

        // A finalizer on the server: it stops immediately and reports the finalizer.
        fixture.patch_spec("held", json!({"desired": "Running"})).await?;
        fixture.wait_for_phase("held", Phase::Running).await?;
        fixture.servers.patch("held", &params, &Patch::Merge(&hold)).await?;
        fixture.servers.delete("held", &DeleteParams::default()).await?;
        let message = "being deleted, but finalizers block it: example.org/hold";
        let server = fixture
            .wait_for("held", "reported as blocked", |server| condition_message(server, Type::Ready).contains(message))
            .await?;
        assert_eq!(status(&server).phase, Some(Phase::Stopping));
        fixture.wait_pod_deleted("held-0").await?;
        fixture.servers.patch("held", &params, &Patch::Merge(&release)).await?;
        fixture.wait_deleted("held").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn expiry_warning_is_emitted_once() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        let server = fixture.create_running("short", json!({"lifetime": "10m"})).await?;
        let expires = status(&server).expires_at.map(|at| at.0.to_string()).unwrap_or_default();
        let events: Api<Event> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
        let warnings = async || -> anyhow::Result<Vec<String>> {
            let all = events.list(&ListParams::default()).await?;
            let matching = all.items.into_iter().filter(|event| event.reason.as_deref() == Some("ExpiringSoon"));
            Ok(matching.filter_map(|event| event.note).collect())
        };
        wait::until("expiry warning", TIMEOUT, async || {
            let warnings = warnings().await?;
            anyhow::ensure!(warnings.iter().any(|note| note.contains(&expires)), "{warnings:?} lack {expires}");
            Ok(())
        })
        .await?;
        // The next leader does not repeat it.
        fixture.replace_operator(&mut operator).await?;
        fixture.create_running("other", json!({})).await?;
        assert_eq!(warnings().await?.len(), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idle_server_hibernates_and_a_new_wake_value_wakes_it() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        fixture.create_claim("home").await?;
        fixture.create_running("idle", json!({"home": {"claim": "home"}, "wake": "a"})).await?;
        // As the operator writes it when the agent reports no activity.
        let hibernation =
            json!({"status": {"hibernation": {"since": "2026-01-01T00:00:00Z", "cause": "Idle", "observedWake": "a"}}});
        fixture.servers.patch_status("idle", &PatchParams::default(), &Patch::Merge(&hibernation)).await?;
        let server = fixture.wait_for_phase("idle", Phase::Hibernated).await?;
        assert!(status(&server).expires_at.is_none());
        fixture.patch_spec("idle", json!({"wake": "b"})).await?;
        // The operator removes the status field of another field manager with a separate write.
        let awake = fixture
            .wait_for("idle", "running", |server| {
                status(server).phase == Some(Phase::Running) && status(server).hibernation.is_none()
            })
            .await?;
        assert_eq!(status(&awake).admission.unwrap_or_default().run, 2);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rejected_pod_is_reported_and_retried() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let quotas: Api<ResourceQuota> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
        let tight = json!({"metadata": {"name": "tight"}, "spec": {"hard": {"pods": "0"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(tight)?).await?;
        let counted = |quota: Option<&ResourceQuota>| {
            quota.and_then(|quota| quota.status.as_ref()?.hard.as_ref()).is_some_and(|hard| !hard.is_empty())
        };
        wait_for(&quotas, "tight", "counted", counted).await?;
        fixture.create("rejected", json!({})).await?;
        let reported = |server: &DevServer| condition_message(server, Type::Ready).contains("exceeded quota: tight");
        let server = fixture.wait_for("rejected", "reported as rejected", reported).await?;
        assert_eq!(status(&server).phase, Some(Phase::Starting));
        quotas.delete("tight", &DeleteParams::default()).await?;
        fixture.wait_for_phase("rejected", Phase::Running).await?;
        Ok(())
    })
    .await
}
