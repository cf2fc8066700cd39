//! Users as the API server knows them: a kubeconfig with the permissions of a user.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use odc_api::v1alpha1::{DevServerUser, condition};
use serde_json::json;

use crate::manifests;

const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(60);
/// Of a user on a new cluster, whose controller manager has yet to discover the kinds that quotas count.
const READY_TIMEOUT: Duration = Duration::from_secs(180);
/// Service account that the operator creates for the tools of a user.
const ACCOUNT: &str = "odc-user";

/// Creates a user, waits until the operator has created the service account, and writes a kubeconfig for it. Its context has
/// the name of the user.
pub async fn create_user(
    client: &Client,
    admin_kubeconfig: &Path,
    user: &str,
    kubeconfig: &Path,
) -> anyhow::Result<()> {
    let object =
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": user}, "spec": {}});
    manifests::apply(client, &object).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &format!("dev-{user}"));
    let created = await_condition(accounts, ACCOUNT, |account: Option<&ServiceAccount>| account.is_some());
    let finished = tokio::time::timeout(ACCOUNT_TIMEOUT, created).await;
    finished.with_context(|| format!("user {user} has no service account"))??;
    write_kubeconfig(client, admin_kubeconfig, user, kubeconfig).await
}

/// Waits until a user is ready. Until then the quota of the namespace may reject disks and operations.
pub async fn wait_ready(client: &Client, user: &str) -> anyhow::Result<()> {
    let is_ready = |user: Option<&DevServerUser>| {
        let status = user.and_then(|user| user.status.as_ref());
        status.is_some_and(|status| condition::is_true(&status.conditions, condition::Type::Ready))
    };
    let ready = await_condition(Api::all(client.clone()), user, is_ready);
    tokio::time::timeout(READY_TIMEOUT, ready).await.with_context(|| format!("user {user} is not ready"))??;
    Ok(())
}

/// Creates the namespace, service account and role binding of a user where no operator runs, and writes a kubeconfig.
pub async fn create_user_without_operator(
    client: &Client,
    admin_kubeconfig: &Path,
    user: &str,
    kubeconfig: &Path,
) -> anyhow::Result<()> {
    let namespace = format!("dev-{user}");
    let subjects = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT, "namespace": namespace}, "roleRef": role, "subjects": subjects}),
    ];
    for object in &objects {
        manifests::apply(client, object).await?;
    }
    write_kubeconfig(client, admin_kubeconfig, user, kubeconfig).await
}

/// Requests a token of a service account that is valid for an hour.
pub async fn service_account_token(client: &Client, namespace: &str, account: &str) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let response = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(response.status.context("the TokenRequest has no status")?.token)
}

async fn write_kubeconfig(
    client: &Client,
    admin_kubeconfig: &Path,
    user: &str,
    kubeconfig: &Path,
) -> anyhow::Result<()> {
    let namespace = format!("dev-{user}");
    let token = service_account_token(client, &namespace, ACCOUNT).await?;
    let clusters = Kubeconfig::read_from(admin_kubeconfig)?.clusters;
    let cluster = clusters.into_iter().next().context("the kubeconfig has no cluster")?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": user,
        "clusters": [&cluster],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": cluster.name, "user": user, "namespace": namespace}}],
    });
    std::fs::write(kubeconfig, config.to_string())?;
    Ok(())
}
