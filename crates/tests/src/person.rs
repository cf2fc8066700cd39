//! People as the API server knows them: a kubeconfig with the rights of a user and no more.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use serde_json::json;

use crate::odc;

const LIMIT: Duration = Duration::from_secs(60);
/// What the operator calls the account of a user's own tools.
const ACCOUNT: &str = "odc-user";

/// A user whose place the operator makes, and a kubeconfig to act as them. Its context has their name.
pub async fn join(client: &Client, administrator: &Path, user: &str, into: &Path) -> anyhow::Result<()> {
    let object =
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": user}, "spec": {}});
    odc::apply(client, &object).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &format!("dev-{user}"));
    let there = await_condition(accounts, ACCOUNT, |account: Option<&ServiceAccount>| account.is_some());
    tokio::time::timeout(LIMIT, there).await.with_context(|| format!("user {user} got no account"))??;
    kubeconfig(client, administrator, user, into).await
}

/// What the operator gives a user, made by hand where no operator runs: a namespace, an account
/// and its rights.
pub async fn settle(client: &Client, administrator: &Path, user: &str, into: &Path) -> anyhow::Result<()> {
    let namespace = format!("dev-{user}");
    let account = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT, "namespace": namespace}, "roleRef": role, "subjects": account}),
    ];
    for object in &objects {
        odc::apply(client, object).await?;
    }
    kubeconfig(client, administrator, user, into).await
}

async fn kubeconfig(client: &Client, administrator: &Path, user: &str, into: &Path) -> anyhow::Result<()> {
    let namespace = format!("dev-{user}");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
    let token = answer.status.context("a token was asked for")?.token;
    let cluster = Kubeconfig::read_from(administrator)?.clusters.into_iter().next().context("a cluster")?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": user,
        "clusters": [&cluster],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": cluster.name, "user": user, "namespace": namespace}}],
    });
    std::fs::write(into, config.to_string())?;
    Ok(())
}
