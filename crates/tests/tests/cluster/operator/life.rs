//! A server's life on simulated nodes, by its owner's deeds and by bad luck.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::wait;
use serde_json::json;

use super::stage::{NAMESPACE, with_stage};

fn status(server: &DevServer) -> odc_api::v1alpha1::DevServerStatus {
    server.status.clone().unwrap_or_default()
}

fn message(server: &DevServer, kind: Type) -> String {
    condition::find(&status(server).conditions, kind).map(|condition| condition.message.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn time_runs_out_unless_it_is_extended() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.create("short", json!({"lifetime": "3s"})).await?;
        stage.create("longer", json!({"lifetime": "3s"})).await?;
        let server = stage.until_phase("longer", Phase::Running).await?;
        let first = status(&server).expires_at;
        stage.change("longer", json!({"lifetime": "10m"})).await?;
        let extended = stage.until("longer", "extended", |server| status(server).expires_at > first).await?;
        assert_eq!(status(&extended).lifetime.map(|lifetime| lifetime.granted.to_string()).as_deref(), Some("10m"));

        let ended = stage.until_phase("short", Phase::Expired).await?;
        assert!(status(&ended).finished_at.is_some());
        assert!(status(&ended).admission.is_some_and(|admission| admission.nodes.is_empty()));
        assert!(stage.pods.get_opt("short-0").await?.is_none());
        // It can be read, and not be changed.
        let refused = stage.change("short", json!({"lifetime": "1h"})).await.unwrap_err();
        assert!(refused.to_string().contains("this server has ended and can no longer change"), "{refused}");
        assert_eq!(status(&stage.servers.get("longer").await?).phase, Some(Phase::Running));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_ninth_gpu_waits_for_one_that_leaves() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        for name in ["first", "second"] {
            stage.create(name, json!({"flavor": "gpu", "count": 8})).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        stage.create("third", json!({"flavor": "gpu", "count": 1})).await?;
        let waiting = stage
            .until("third", "queued with a reason", |server| {
                let status = status(server);
                let said = status.admission.as_ref().and_then(|admission| admission.message.clone());
                status.phase == Some(Phase::Queued)
                    && said.is_some_and(|said| said.as_str() == message(server, Type::Admitted))
            })
            .await?;
        let said = status(&waiting).admission.and_then(|admission| admission.message).unwrap_or_default();
        assert!(said.as_str().contains("nvidia.com/gpu"), "{said}");
        assert_eq!(status(&waiting).admission.and_then(|admission| admission.position), Some(1));
        stage.change("first", json!({"desired": "Ended"})).await?;
        stage.until_phase("first", Phase::Cancelled).await?;
        stage.until_phase("third", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_granted_is_told_and_mended() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        for (name, changes, says) in [
            ("flavor", json!({"flavor": "h100"}), "Flavor h100 does not exist; there is cpu, gpu."),
            ("count", json!({"flavor": "gpu", "count": 9}), "offers 1 to 8 of nvidia.com/gpu on a node, not 9"),
            ("team", json!({"team": "vision"}), "ada is no member of a team vision"),
            ("disk", json!({"home": {"disk": "d"}}), "has no disks of ODC"),
            ("claim", json!({"home": {"claim": "absent"}}), "Claim absent does not exist"),
        ] {
            stage.create(name, changes).await?;
            let server = stage.until(name, "refused", |server| !message(server, Type::Ready).is_empty()).await?;
            assert_eq!(status(&server).phase, Some(Phase::Pending), "{name}");
            assert!(message(&server, Type::Ready).contains(says), "{name}: {}", message(&server, Type::Ready));
        }
        // What was missing comes, and nobody has to ask again.
        stage.claim("absent").await?;
        stage.until_phase("claim", Phase::Running).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_broken_by_hand_is_mended() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.create("gang", json!({"flavor": "gpu", "nodes": 2})).await?;
        let server = stage.until_phase("gang", Phase::Running).await?;
        let run = status(&server).admission.unwrap_or_default().run;

        // A pod deleted by hand comes back, in the same place.
        let before = stage.pods.get("gang-1").await?.metadata.uid;
        stage.pods.delete("gang-1", &DeleteParams::default()).await?;
        stage
            .until_pod("gang-1", "back", |pod| {
                pod.is_some_and(|pod| pod.metadata.uid != before && pod.metadata.deletion_timestamp.is_none())
            })
            .await?;
        stage.until_phase("gang", Phase::Running).await?;

        // The Service, edited, stripped, deleted.
        let services: Api<Service> = Api::namespaced(stage.plane.client.clone(), NAMESPACE);
        let whole = |service: Option<&Service>| {
            service.is_some_and(|service| {
                let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                let labelled =
                    service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("odc.dev/server"));
                let ours =
                    selector.and_then(|selector| selector.get("odc.dev/server")).map(String::as_str) == Some("gang");
                labelled && ours && service.metadata.owner_references.is_some()
            })
        };
        for patch in [
            json!({"spec": {"selector": {"odc.dev/server": "other"}}}),
            json!({"metadata": {"labels": null, "ownerReferences": null}}),
        ] {
            services.patch("gang", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            tokio::time::timeout(
                super::stage::LIMIT,
                kube::runtime::wait::await_condition(services.clone(), "gang", whole),
            )
            .await??;
        }

        // A pod that lost its owner is adopted, and goes with the server.
        let patch = json!({"metadata": {"ownerReferences": null, "labels": {"odc.dev/server": null}}});
        stage.pods.patch("gang-0", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        stage
            .until_pod("gang-0", "adopted", |pod| pod.is_some_and(|pod| pod.metadata.owner_references.is_some()))
            .await?;
        assert_eq!(status(&stage.servers.get("gang").await?).admission.unwrap_or_default().run, run);

        stage.servers.delete("gang", &DeleteParams::default()).await?;
        for pod in ["gang-0", "gang-1"] {
            stage.until_pod(pod, "gone", |pod| pod.is_none()).await?;
        }
        let secrets: Api<Secret> = Api::namespaced(stage.plane.client.clone(), NAMESPACE);
        let gone = |secret: Option<&Secret>| secret.is_none();
        tokio::time::timeout(super::stage::LIMIT, kube::runtime::wait::await_condition(secrets, "gang-keys", gone))
            .await??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lost_node_gives_its_servers_to_another() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.create("moves", json!({"flavor": "gpu", "count": 8})).await?;
        let server = stage.until_phase("moves", Phase::Running).await?;
        let first = status(&server).admission.unwrap_or_default().nodes;
        stage.plane.silence_node(&first[0]).await?;
        let moved = stage
            .until("moves", "on another node", |server| {
                let status = status(server);
                status.phase == Some(Phase::Running)
                    && status.admission.is_some_and(|admission| !admission.nodes.is_empty() && admission.nodes != first)
            })
            .await?;
        assert_eq!(status(&moved).last_failure.map(|failure| failure.reason).as_deref(), Some("NodeLost"));
        let pod: Pod = stage.pods.get("moves-0").await?;
        assert_ne!(pod.spec.and_then(|spec| spec.node_name).as_ref(), first.first());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn whoever_keeps_a_pod_or_a_server_is_named() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.claim("home").await?;
        stage.create("kept", json!({"home": {"claim": "home"}})).await?;
        stage.until_phase("kept", Phase::Running).await?;
        let hold = json!({"metadata": {"finalizers": ["example.org/hold"]}});
        let release = json!({"metadata": {"finalizers": null}});
        let how = PatchParams::default();
        stage.pods.patch("kept-0", &how, &Patch::Merge(&hold)).await?;
        stage.change("kept", json!({"desired": "Hibernated"})).await?;
        let told = "Pod kept-0 was stopped and is kept only by example.org/hold";
        let server = stage.until("kept", "told why", |server| message(server, Type::Ready).contains(told)).await?;
        assert_eq!(status(&server).phase, Some(Phase::Hibernating));
        stage.pods.patch("kept-0", &how, &Patch::Merge(&release)).await?;
        stage.until_phase("kept", Phase::Hibernated).await?;

        // The same of the server itself: it stops at once, and says who keeps it.
        stage.change("kept", json!({"desired": "Running"})).await?;
        stage.until_phase("kept", Phase::Running).await?;
        stage.servers.patch("kept", &how, &Patch::Merge(&hold)).await?;
        stage.servers.delete("kept", &DeleteParams::default()).await?;
        let told = "kept only by example.org/hold";
        let server = stage.until("kept", "told why", |server| message(server, Type::Ready).contains(told)).await?;
        assert_eq!(status(&server).phase, Some(Phase::Stopping));
        stage.until_pod("kept-0", "gone", |pod| pod.is_none()).await?;
        stage.servers.patch("kept", &how, &Patch::Merge(&release)).await?;
        stage.until_gone("kept").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn that_the_end_is_near_is_told_once() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let mut first = stage.operator().await?;
        stage.create("short", json!({"lifetime": "10m"})).await?;
        let server = stage.until_phase("short", Phase::Running).await?;
        let expires = status(&server).expires_at.map(|at| at.0.to_string()).unwrap_or_default();
        let events: Api<Event> = Api::namespaced(stage.plane.client.clone(), NAMESPACE);
        let told = async || -> anyhow::Result<Vec<String>> {
            let all = events.list(&ListParams::default()).await?;
            let of_end = all.items.into_iter().filter(|event| event.reason.as_deref() == Some("EndsSoon"));
            Ok(of_end.filter_map(|event| event.note).collect())
        };
        wait::until("the event", super::stage::LIMIT, async || {
            let told = told().await?;
            anyhow::ensure!(told.iter().any(|note| note.contains(&expires)), "{told:?} do not say {expires}");
            Ok(())
        })
        .await?;
        // The next leader has nothing to add.
        first.kill().await?;
        stage.forget_leader().await?;
        let _second = stage.operator().await?;
        stage.create("other", json!({})).await?;
        stage.until_phase("other", Phase::Running).await?;
        assert_eq!(told().await?.len(), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idleness_lets_sleep_and_any_new_word_wakes() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        stage.claim("home").await?;
        stage.create("sleepy", json!({"home": {"claim": "home"}, "wake": "a"})).await?;
        stage.until_phase("sleepy", Phase::Running).await?;
        // What the agent's word will lead to, once it can be asked.
        let asleep =
            json!({"status": {"hibernation": {"since": "2026-01-01T00:00:00Z", "by": "Idle", "wakeSeen": "a"}}});
        stage.servers.patch_status("sleepy", &PatchParams::default(), &Patch::Merge(&asleep)).await?;
        let server = stage.until_phase("sleepy", Phase::Hibernated).await?;
        assert!(status(&server).expires_at.is_none());
        stage.change("sleepy", json!({"wake": "b"})).await?;
        // What somebody else wrote into the status is taken away by a write of its own.
        let awake = stage
            .until("sleepy", "awake", |server| {
                status(server).phase == Some(Phase::Running) && status(server).hibernation.is_none()
            })
            .await?;
        assert_eq!(status(&awake).admission.unwrap_or_default().run, 2);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_kubernetes_refuses_is_told_and_tried_again() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let quotas: Api<ResourceQuota> = Api::namespaced(stage.plane.client.clone(), NAMESPACE);
        let tight = json!({"metadata": {"name": "tight"}, "spec": {"hard": {"pods": "0"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(tight)?).await?;
        let counted = |quota: Option<&ResourceQuota>| {
            quota.and_then(|quota| quota.status.as_ref()?.hard.as_ref()).is_some_and(|hard| !hard.is_empty())
        };
        super::stage::until(&quotas, "tight", "counted", counted).await?;
        stage.create("refused", json!({})).await?;
        let told = |server: &DevServer| message(server, Type::Ready).contains("exceeded quota: tight");
        let server = stage.until("refused", "told why", told).await?;
        assert_eq!(status(&server).phase, Some(Phase::Starting));
        quotas.delete("tight", &DeleteParams::default()).await?;
        stage.until_phase("refused", Phase::Running).await?;
        Ok(())
    })
    .await
}
