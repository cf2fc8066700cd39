//! Installs ODC into a local cluster: its images, the manifests of every installation, and a demo user.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use odc_api::duration::format_seconds;

use crate::components::Blueprint;
use crate::{image, manifests};

/// Includes pulling the operator's image on a busy machine.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(180);
pub const DEMO_USER: &str = "demo";
/// Every `up` creates a new token.
const DEMO_TOKEN_SECONDS: i64 = 30 * 24 * 3600;
/// Name of the service account that the operator creates in the namespace of a user.
const USER_SERVICE_ACCOUNT: &str = "odc-user";

/// Runs the job `odc`.
pub async fn install(blueprint: &Blueprint) -> anyhow::Result<()> {
    let operator = image::load_binary(blueprint, &blueprint.executables.odc, None).await?;
    let agent = image::load_binary(blueprint, &blueprint.executables.agent, None).await?;
    let images =
        [("odc-image", operator), ("odc-agent-image", agent), ("odc-default-image", image::reference(image::DEV_BASE))];
    let mut objects = manifests::render(blueprint, "local").await?;
    manifests::substitute_images(&mut objects, &images);
    manifests::apply_all(&crate::cluster::client(&blueprint.layout.kubeconfig()).await?, &objects).await
}

/// Waits until the operator is available and has created the demo user's service account, and writes a token for it.
pub async fn wait_ready(blueprint: &Blueprint) -> anyhow::Result<()> {
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "odc-system");
    let rolled_out = await_condition(deployments, "odc-operator", is_rolled_out);
    tokio::time::timeout(ROLLOUT_TIMEOUT, rolled_out).await.with_context(|| {
        format!(
            "the operator did not start within {}\nhint: run `kubectl -n odc-system get pods`",
            format_seconds(ROLLOUT_TIMEOUT.as_secs())
        )
    })??;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &format!("dev-{DEMO_USER}"));
    let created =
        await_condition(accounts.clone(), USER_SERVICE_ACCOUNT, |account: Option<&ServiceAccount>| account.is_some());
    tokio::time::timeout(ROLLOUT_TIMEOUT, created)
        .await
        .with_context(|| format!(
            "the operator created no service account for user {DEMO_USER}\nhint: run `kubectl -n odc-system logs deploy/odc-operator`"
        ))??;
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(DEMO_TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let response = accounts.create_token_request(USER_SERVICE_ACCOUNT, &PostParams::default(), &request).await?;
    let token = response.status.context("the token response has a status")?.token;
    crate::fs::write_atomic(&blueprint.layout.demo_token(), token, 0o600)
}

/// Reports whether all replicas are available and of the current generation.
pub fn is_rolled_out(deployment: Option<&Deployment>) -> bool {
    deployment.is_some_and(|deployment| {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation >= deployment.metadata.generation
                && status.updated_replicas == replicas
                && status.available_replicas == replicas
                && status.replicas == replicas
        })
    })
}
