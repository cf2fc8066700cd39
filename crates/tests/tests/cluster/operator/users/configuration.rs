//! Configuration errors in flavors and teams.

use kube::api::{Api, Patch, PatchParams};
use odc_api::v1alpha1::condition::{Reason, Type};
use odc_api::v1alpha1::{DevServerFlavor, DevServerUser, Phase, Team};
use odc_tests::manifests;
use serde_json::json;

use super::super::fixture::{user, wait_for, with_fixture};
use super::{has_reason, is_ready, reason_and_message, wait_rejected};

#[tokio::test]
async fn flavors_and_teams_report_configuration_errors() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let client = &fixture.plane.client;
        let flavors: Api<DevServerFlavor> = Api::all(client.clone());
        let ready = |flavor: Option<&DevServerFlavor>| {
            is_ready(flavor.and_then(|flavor| flavor.status.as_ref()).map(|status| &status.conditions))
        };
        for name in ["cpu", "gpu"] {
            wait_for(&flavors, name, "ready", ready).await?;
        }

        // Two default flavors: only servers without a flavor wait.
        let default = |value: bool| json!({"spec": {"default": value}});
        flavors.patch("gpu", &PatchParams::default(), &Patch::Merge(&default(true))).await?;
        for name in ["cpu", "gpu"] {
            let several = |flavor: Option<&DevServerFlavor>| {
                let status = flavor.and_then(|flavor| flavor.status.as_ref());
                has_reason(status.map(|status| &status.conditions), Type::Ready, Reason::MultipleDefaultFlavors)
            };
            let flavor = wait_for(&flavors, name, "reported", several).await?;
            let status = flavor.and_then(|flavor| flavor.status).unwrap_or_default();
            let message = reason_and_message(&status.conditions, Type::Ready).1;
            assert!(
                message.starts_with("2 flavors are the default") && message.contains("Set default: false"),
                "{message}"
            );
        }
        fixture.create("any", json!({})).await?;
        fixture.create("named", json!({"flavor": "cpu"})).await?;
        let message = wait_rejected(&fixture.servers, "any", Reason::MultipleDefaultFlavors).await?;
        assert!(message.contains("Multiple default flavors: cpu, gpu. Set spec.flavor"), "{message}");
        fixture.wait_for_phase("named", Phase::Running).await?;
        flavors.patch("gpu", &PatchParams::default(), &Patch::Merge(&default(false))).await?;
        fixture.wait_for_phase("any", Phase::Running).await?;
        for name in ["cpu", "gpu"] {
            wait_for(&flavors, name, "ready again", ready).await?;
        }

        // A team with an unknown member.
        let teams: Api<Team> = Api::all(client.clone());
        let vision = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
            "spec": {"members": ["ada", "zoe"]}});
        manifests::apply(client, &vision).await?;
        let unknown = |team: Option<&Team>| {
            let status = team.and_then(|team| team.status.as_ref());
            has_reason(status.map(|status| &status.conditions), Type::Ready, Reason::MemberNotFound)
        };
        let team = wait_for(&teams, "vision", "reported", unknown).await?;
        let status = team.and_then(|team| team.status).unwrap_or_default();
        let message = reason_and_message(&status.conditions, Type::Ready).1;
        assert!(message.starts_with("Members not found: zoe. Create the DevServerUser"), "{message}");
        manifests::apply(client, &user("zoe")).await?;
        let ready =
            |team: Option<&Team>| is_ready(team.and_then(|team| team.status.as_ref()).map(|status| &status.conditions));
        wait_for(&teams, "vision", "ready", ready).await?;
        let users: Api<DevServerUser> = Api::all(client.clone());
        let member = |user: Option<&DevServerUser>| {
            let teams = user.and_then(|user| user.status.as_ref()).map(|status| status.teams.as_slice());
            teams.unwrap_or_default().iter().any(|team| team.as_str() == "vision")
        };
        for name in ["ada", "zoe"] {
            wait_for(&users, name, "member of the team", member).await?;
        }
        Ok(())
    })
    .await
}
