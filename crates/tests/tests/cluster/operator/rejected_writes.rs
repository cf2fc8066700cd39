//! An admission policy of the cluster rejects the writes of the queue about one server.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::cleanup::with_cleanup;
use odc_tests::{manifests, wait};
use serde_json::{Value, json};

use super::fixture::{Fixture, NAMESPACE, TIMEOUT, status, with_fixture};

const POLICY: &str = "no-devices";
const POLICY_MESSAGE: &str = "this server may not have devices";
/// A server that is never admitted, to probe whether the policy is in effect.
const PROBE: &str = "denied-probe";

fn policy() -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    let resources = json!({"apiGroups": ["odc.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["devservers/status"]});
    let admitted = "has(object.status) && has(object.status.admission) && has(object.status.admission.nodes) && \
        size(object.status.admission.nodes) > 0";
    let expression = format!("!object.metadata.name.startsWith('denied') || !({admitted})");
    [
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": POLICY}, "spec": {
            "matchConstraints": {"resourceRules": [resources]},
            "validations": [{"expression": expression, "message": POLICY_MESSAGE}]}}),
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": POLICY},
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]}}),
    ]
}

/// Waits until the policy is in effect, or no longer is.
async fn wait_policy(fixture: &Fixture<'_>, expected: bool) -> anyhow::Result<()> {
    let admitted = json!({"status": {"admission": {"run": 1, "epoch": 1, "nodes": ["node-1"]}}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    wait::until("admission policy", TIMEOUT, async || {
        let result = fixture.servers.patch_status(PROBE, &dry_run, &Patch::Merge(&admitted)).await;
        let rejected = result.as_ref().is_err_and(|error| error.to_string().contains(POLICY_MESSAGE));
        anyhow::ensure!(rejected == expected, "{result:?}");
        Ok(())
    })
    .await
}

/// Deletes the policy and waits until it has no effect.
async fn delete_policy(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        let kind = kube::core::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(fixture.plane.client.clone(), &ApiResource::from_gvk(&kind));
        match api.delete(POLICY, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => drop(result?),
        }
    }
    wait_policy(fixture, false).await
}

/// Returns the notes of the events of the server that mention the policy.
async fn policy_notes(fixture: &Fixture<'_>) -> anyhow::Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(fixture.plane.client.clone(), NAMESPACE);
    let found = events.list(&ListParams::default().fields("involvedObject.name=denied")).await?;
    let notes = found.items.into_iter().filter_map(|event| event.message);
    Ok(notes.filter(|note| note.contains(POLICY_MESSAGE)).collect())
}

/// Reports whether a server says that the policy rejects its admission.
fn reports_policy(server: &DevServer) -> bool {
    let conditions = status(server).conditions;
    let admitted = condition::find(&conditions, Type::Admitted);
    admitted.is_some_and(|admitted| admitted.reason == "WriteFailed" && admitted.message.contains(POLICY_MESSAGE))
}

#[tokio::test]
async fn server_rejected_by_a_policy_does_not_block_others() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let later = Timestamp::now() + SignedDuration::from_hours(100);
        fixture.create(PROBE, json!({"scheduling": {"notBefore": later.to_string()}})).await?;
        with_cleanup(check_with_policy(fixture), async || delete_policy(fixture).await).await?;

        // Without the policy the server is admitted, immediately if its owner changes it.
        for name in ["second", "third"] {
            fixture.servers.delete(name, &DeleteParams::default()).await?;
        }
        fixture.patch_spec("denied", json!({"lifetime": "9h"})).await?;
        let server = fixture.wait_for_phase("denied", Phase::Running).await?;
        assert!(!reports_policy(&server), "{server:?}");
        Ok(())
    })
    .await
}

async fn check_with_policy(fixture: &Fixture<'_>) -> anyhow::Result<()> {
    for object in policy() {
        manifests::apply(&fixture.plane.client, &object).await?;
    }
    wait_policy(fixture, true).await?;

    // All devices, and first in the queue.
    fixture.create("denied", json!({"flavor": "gpu", "count": 8, "nodes": 2})).await?;
    fixture.wait_for("denied", "rejected by the policy", reports_policy).await?;
    wait::until("event about the policy", TIMEOUT, async || {
        anyhow::ensure!(!policy_notes(fixture).await?.is_empty());
        Ok(())
    })
    .await?;
    // Together: once one of them runs, the rejected server has to wait for it and may reserve the other node.
    for name in ["second", "third"] {
        fixture.create(name, json!({"flavor": "gpu", "count": 8})).await?;
    }
    for name in ["second", "third"] {
        fixture.wait_for_phase(name, Phase::Running).await?;
    }
    // One event, however often the write was retried.
    let notes = policy_notes(fixture).await?;
    assert!(matches!(notes.as_slice(), [note] if note.starts_with("The API server rejected")), "{notes:?}");
    Ok(())
}
