//! Forwarding without faults, outages, and the trace.

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, WatchParams};
use odc_tests::apifault::{Action, Apifault, Fault, Plan, TraceEntry, Verb};
use odc_tests::{audit, wait, with_control_plane, with_namespace};
use serde_json::json;
use std::pin::pin;

use super::{AGENT, ProxyFixture, client, error_code, map, next};
use crate::TIMEOUT;

/// Returns the user name of a client.
async fn username(client: &Client) -> anyhow::Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username).unwrap_or_default())
}

#[tokio::test]
async fn requests_and_watches_are_forwarded_unchanged() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let proxy = ProxyFixture::start_on_plane(plane, []).await?;
        let first = proxy.create("first").await?;
        assert_eq!(proxy.maps.get("first").await?.uid(), proxy.direct.get("first").await?.uid());
        assert_eq!(error_code(proxy.create("first").await)?, Some(409));

        let version = first.resource_version().unwrap_or_default();
        let mut watch = Box::pin(proxy.maps.watch(&WatchParams::default(), &version).await?);
        // Every event arrives before the next write: the proxy does not buffer.
        for name in ["second", "third"] {
            proxy.direct.create(&PostParams::default(), &map(name)).await?;
            assert_eq!(next(&mut watch).await?, format!("added {name}"));
        }
        proxy.direct.delete("second", &DeleteParams::default()).await?;
        assert_eq!(next(&mut watch).await?, "deleted second");
        assert_eq!(proxy.apifault.fired(), 0);
        // A dropped watch ends at the API server, which logs it then.
        drop(watch);
        wait::until("end of the watch", TIMEOUT, async || {
            let matches = |request: &audit::Request| request.agent == AGENT && request.verb == "watch";
            anyhow::ensure!(plane.requests()?.iter().any(matches), "the watch is still open");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn token_of_the_client_takes_precedence() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let proxy = ProxyFixture::start(namespace, []).await?;
        let accounts: Api<ServiceAccount> = namespace.api();
        let request = TokenRequest::default();
        let token = accounts.create_token_request("default", &PostParams::default(), &request).await?.status;
        let token = token.context("no token")?.token;
        let account = client(&proxy.apifault, Some(&token)).await?;
        assert_eq!(username(&account).await?, format!("system:serviceaccount:{}:default", namespace.name));
        assert_eq!(username(&proxy.client).await?, username(&namespace.client).await?);
        let invalid = client(&proxy.apifault, Some("made-up")).await?;
        assert_eq!(error_code(Api::<ConfigMap>::default_namespaced(invalid).get("any").await)?, Some(401));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn proxy_can_be_taken_down_and_up() -> anyhow::Result<()> {
    with_namespace(async |namespace| {
        let proxy = ProxyFixture::start(namespace, []).await?;
        let version = proxy.create("one").await?.resource_version().unwrap_or_default();
        let mut watch = pin!(proxy.maps.watch(&WatchParams::default(), &version).await?);
        for name in ["two", "three"] {
            proxy.apifault.down().await?;
            assert!(next(&mut watch).await.is_err());
            assert_eq!(error_code(proxy.create(name).await)?, None);
            assert!(!proxy.exists(name).await?);
            proxy.apifault.up().await?;
            proxy.create(name).await?;
        }
        // Both are idempotent.
        proxy.apifault.up().await?;
        proxy.apifault.down().await?;
        proxy.apifault.down().await?;
        assert_eq!(error_code(proxy.create("four").await)?, None);
        // A proxy without an API server closes the connection and records the error.
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        proxy.apifault.kubeconfig(&kubeconfig, None)?;
        let second = Apifault::start(&kubeconfig, Plan::default()).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client(&second, None).await?, &namespace.name);
        assert_eq!(error_code(maps.get("one").await)?, None);
        assert!(
            second.trace()[0]
                .problem
                .as_deref()
                .is_some_and(|error| error.starts_with("sending the request to the API server"))
        );
        proxy.apifault.up().await?;
        maps.get("one").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn trace_contains_all_requests() -> anyhow::Result<()> {
    with_control_plane(async |plane| {
        let proxy = ProxyFixture::start_on_plane(plane, [Fault::write(2).after(Action::answer(504))]).await?;
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("trace.jsonl");
        proxy.apifault.trace_to(&file)?;

        let created = proxy.create("one").await?;
        let (uid, first) = (created.uid().unwrap_or_default(), created.resource_version().unwrap_or_default());
        let changed = json!({"metadata": {"resourceVersion": first}, "data": {"key": "value"}});
        assert_eq!(
            error_code(proxy.maps.patch("one", &PatchParams::default(), &Patch::Merge(changed)).await)?,
            Some(504)
        );
        let second = proxy.maps.get("one").await?.resource_version().unwrap_or_default();
        assert_eq!(error_code(proxy.create("one").await)?, Some(409));
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}});
        let leases: Api<Lease> = Api::default_namespaced(proxy.client.clone());
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        let preconditions = Preconditions { resource_version: Some(second.clone()), uid: Some(uid.clone()) };
        proxy.maps.delete("one", &DeleteParams::default().preconditions(preconditions)).await?;

        let trace = proxy.apifault.trace();
        let summary: Vec<_> =
            trace.iter().map(|entry| (entry.verb, entry.server_code, entry.code, entry.number)).collect();
        assert_eq!(
            summary,
            [
                (Verb::Create, Some(201), Some(201), Some(1)),
                (Verb::Patch, Some(200), Some(504), Some(2)),
                (Verb::Get, Some(200), Some(200), None),
                (Verb::Create, Some(409), Some(409), None),
                (Verb::Create, Some(201), Some(201), None),
                (Verb::Delete, Some(200), Some(200), Some(3)),
            ]
        );
        let TraceEntry { resource, namespace, name, agent, .. } = &trace[4];
        assert_eq!([resource, namespace, name, agent], ["leases.coordination.k8s.io", "default", "leader", AGENT]);
        assert_eq!((trace[0].uid.as_ref(), trace[0].version_after.as_ref()), (Some(&uid), Some(&first)));
        let versions = [&trace[1].version_before, &trace[1].version_after].map(Option::as_ref);
        assert_eq!(versions, [Some(&first), Some(&second)]);
        assert_eq!((trace[5].uid_before.as_ref(), trace[5].version_before.as_ref()), (Some(&uid), Some(&second)));
        assert_eq!(trace[5].uid.as_ref(), Some(&uid));
        assert_eq!((&trace[0].body, trace[0].body.as_ref().map(String::len)), (&trace[3].body, Some(16)));
        assert_eq!(trace[1].faults, ["0 write 2: Answer { code: 504, reason: None, retry_after: None } After"]);

        let lines = std::fs::read_to_string(&file)?;
        let parsed: Vec<TraceEntry> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        assert_eq!(parsed, trace);

        // The audit log agrees.
        let stored = |agent: &str| -> anyhow::Result<usize> {
            let requests = plane.requests()?;
            Ok(requests.iter().filter(|request| request.agent == agent && request.is_write()).count())
        };
        wait::until("audit log", TIMEOUT, async || {
            anyhow::ensure!(stored(AGENT)? == proxy.apifault.writes().len() + 1);
            Ok(())
        })
        .await
    })
    .await
}
