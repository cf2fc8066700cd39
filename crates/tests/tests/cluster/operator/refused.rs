//! A rule of the cluster refuses what the queue decides about one server.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::finally::finally;
use odc_tests::{odc, wait};
use serde_json::{Value, json};

use super::stage::{LIMIT, NAMESPACE, Stage, with_stage};

const RULE: &str = "no-devices";
const WORDS: &str = "this server may not have devices";
/// A server that never asks for any, to see whether the rule counts.
const PROBE: &str = "cursed-probe";

fn rule() -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    let of = json!({"apiGroups": ["odc.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["devservers/status"]});
    let granted = "has(object.status) && has(object.status.admission) && has(object.status.admission.nodes) && \
        size(object.status.admission.nodes) > 0";
    let expression = format!("!object.metadata.name.startsWith('cursed') || !({granted})");
    [
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": RULE}, "spec": {
            "matchConstraints": {"resourceRules": [of]},
            "validations": [{"expression": expression, "message": WORDS}]}}),
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": RULE},
            "spec": {"policyName": RULE, "validationActions": ["Deny"]}}),
    ]
}

/// Until the rule counts, or does no more.
async fn until_refused(stage: &Stage<'_>, expect: bool) -> anyhow::Result<()> {
    let granted = json!({"status": {"admission": {"run": 1, "epoch": 1, "nodes": ["node-1"]}}});
    let how = PatchParams { dry_run: true, ..PatchParams::default() };
    wait::until("the rule", LIMIT, async || {
        let tried = stage.servers.patch_status(PROBE, &how, &Patch::Merge(&granted)).await;
        let refused = tried.as_ref().is_err_and(|error| error.to_string().contains(WORDS));
        anyhow::ensure!(refused == expect, "{tried:?}");
        Ok(())
    })
    .await
}

/// The rule counts no more, or never did.
async fn lift(stage: &Stage<'_>) -> anyhow::Result<()> {
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        let kind = kube::core::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(stage.plane.client.clone(), &ApiResource::from_gvk(&kind));
        match api.delete(RULE, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done?),
        }
    }
    until_refused(stage, false).await
}

/// What the events about the server say of the rule.
async fn notes(stage: &Stage<'_>) -> anyhow::Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(stage.plane.client.clone(), NAMESPACE);
    let found = events.list(&ListParams::default().fields("involvedObject.name=cursed")).await?;
    let notes = found.items.into_iter().filter_map(|event| event.message);
    Ok(notes.filter(|note| note.contains(WORDS)).collect())
}

fn told(server: &DevServer) -> bool {
    let conditions = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let admitted = condition::find(conditions, Type::Admitted);
    admitted.is_some_and(|admitted| admitted.reason == "Incomplete" && admitted.message.contains(WORDS))
}

#[tokio::test]
async fn a_server_that_may_not_be_granted_anything_keeps_nothing_from_others() -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let later = Timestamp::now() + SignedDuration::from_hours(100);
        stage.create(PROBE, json!({"scheduling": {"notBefore": later.to_string()}})).await?;
        finally(under_the_rule(stage), async || lift(stage).await).await?;

        // It is back when there is nothing against it any more, and at once if its owner changes it.
        for name in ["second", "third"] {
            stage.servers.delete(name, &DeleteParams::default()).await?;
        }
        stage.change("cursed", json!({"lifetime": "9h"})).await?;
        let server = stage.until_phase("cursed", Phase::Running).await?;
        assert!(!told(&server), "{server:?}");
        Ok(())
    })
    .await
}

async fn under_the_rule(stage: &Stage<'_>) -> anyhow::Result<()> {
    for object in rule() {
        odc::apply(&stage.plane.client, &object).await?;
    }
    until_refused(stage, true).await?;

    // Everything there is, and before everybody else.
    stage.create("cursed", json!({"flavor": "gpu", "count": 8, "nodes": 2})).await?;
    stage.until("cursed", "told why it gets nothing", told).await?;
    wait::until("an event that says it", LIMIT, async || {
        anyhow::ensure!(!notes(stage).await?.is_empty());
        Ok(())
    })
    .await?;
    for name in ["second", "third"] {
        stage.create(name, json!({"flavor": "gpu", "count": 8})).await?;
        stage.until_phase(name, Phase::Running).await?;
    }
    // However often it was tried meanwhile.
    let notes = notes(stage).await?;
    assert!(matches!(notes.as_slice(), [note] if note.starts_with("The cluster refuses")), "{notes:?}");
    Ok(())
}
