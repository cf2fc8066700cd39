//! The operator cannot grant more permissions than it should.

use anyhow::Context as _;
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{Api, DeleteParams, PostParams};
use odc_tests::{manifests, operator, wait};
use serde_json::json;

use super::super::fixture::{NAMESPACE, TIMEOUT, wait_for, with_fixture};
use super::{binding, client_with_token, send};

#[tokio::test]
async fn operator_cannot_escalate_permissions() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        // Without an operator, so that its own binding does not exist.
        let admin = &fixture.plane.client;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let operator = client_with_token(fixture, &operator::service_account_token(admin).await?).await?;
        // A controller aggregates these roles. While they are empty, binding them is no escalation.
        let roles: Api<ClusterRole> = Api::all(admin.clone());
        for role in ["admin", "edit"] {
            let aggregated = |role: Option<&ClusterRole>| {
                role.and_then(|role| role.rules.as_ref()).is_some_and(|rules| !rules.is_empty())
            };
            wait_for(&roles, role, "aggregated", aggregated).await?;
        }

        for (name, role, expected) in [
            // Allowed names, roles that it may not bind.
            ("odc-operator-tenant", "cluster-admin", "is attempting to grant RBAC permissions not currently held"),
            ("odc-operator-tenant", "admin", "is attempting to grant RBAC permissions not currently held"),
            ("odc-operator-tenant", "edit", "is attempting to grant RBAC permissions not currently held"),
            // A role that it may bind, under another name.
            ("mine", "odc-operator-tenant", "cannot patch resource \"rolebindings\""),
        ] {
            let error = manifests::apply(&operator, &binding(name, role)).await.unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected) && error.contains("orbidden"), "{name} {role}: {error}");
        }
        let cluster_binding = json!({"metadata": {"name": "mine"}, "roleRef": binding("", "cluster-admin")["roleRef"]});
        let wildcard = json!({"metadata": {"name": "odc-operator"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        for (method, path, body) in [
            (Method::POST, format!("{rbac}/clusterrolebindings"), Some(&cluster_binding)),
            (Method::PATCH, format!("{rbac}/clusterroles/odc-operator"), Some(&wildcard)),
            (Method::PATCH, format!("{rbac}/clusterroles/odc-user"), Some(&wildcard)),
            (Method::POST, format!("{rbac}/namespaces/{NAMESPACE}/roles"), Some(&wildcard)),
            (Method::GET, "/api/v1/secrets".into(), None),
            (Method::GET, format!("/api/v1/namespaces/{NAMESPACE}/secrets"), None),
            (Method::GET, "/api/v1/namespaces/kube-system/secrets/any".into(), None),
            (Method::POST, "/api/v1/namespaces/odc-system/serviceaccounts/default/token".into(), Some(&cluster_binding)),
            (Method::POST, format!("/api/v1/namespaces/{NAMESPACE}/pods"), Some(&cluster_binding)),
        ] {
            let (code, message) = send(&operator, &method, &path, body).await?;
            assert_eq!(code, 403, "{method} {path}: {message}");
        }

        // Binding the role of that name is allowed.
        manifests::apply(&operator, &binding("odc-operator-tenant", "odc-operator-tenant")).await?;
        wait::until("permissions of the binding", TIMEOUT, async || {
            let created = manifests::apply(&operator, &binding("odc-user", "odc-user")).await;
            created.map(drop).context("binding odc-user")
        })
        .await?;
        // The permissions in the namespace allow no further escalation.
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), NAMESPACE);
        bindings.delete("odc-user", &DeleteParams::default()).await?;
        let error = manifests::apply(&operator, &binding("odc-user", "cluster-admin")).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("is attempting to grant RBAC permissions not currently held"), "{error}");
        let (code, _) = send(&operator, &Method::GET, &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), None).await?;
        assert_eq!(code, 403, "listing Secrets");
        Ok(())
    })
    .await
}
