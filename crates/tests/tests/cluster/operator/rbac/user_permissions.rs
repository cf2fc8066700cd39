//! Users can do what they need and nothing else.

use anyhow::Context as _;
use http::Method;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::Api;
use odc_tests::user::service_account_token;
use odc_tests::{audit, manifests};
use serde_json::{Value, json};

use super::super::fixture::{NAMESPACE, user, with_fixture};
use super::{Permission, binding, client_with_token, config, permissions, qualified_resource, send};

#[tokio::test]
async fn users_have_exactly_the_permissions_they_need() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let admin = &fixture.plane.client;
        manifests::apply(admin, &user("bob")).await?;
        fixture.wait_user_ready("bob").await?;
        fixture.create_running_with_claim("box", "home").await?;

        // The service account of her tools, and the user name of the cluster's authentication.
        let tools = client_with_token(fixture, &service_account_token(admin, NAMESPACE, "odc-user").await?).await?;
        let mut user = config(&fixture.plane.kubeconfig).await?;
        user.auth_info.impersonate = Some("odc:ada".into());
        user.default_retry = false;
        for ada in [tools, Client::try_from(user)?] {
            check_user(&ada).await?;
        }
        // The checks have used every permission of the role.
        let requests = fixture.plane.requests()?;
        let allowed: Vec<&audit::Request> = requests
            .iter()
            .filter(|request| {
                request.user == "system:serviceaccount:dev-ada:odc-user" && !matches!(request.code, 401 | 403)
            })
            .collect();
        let role = Api::<ClusterRole>::all(admin.clone()).get("odc-user").await?;
        let is_used = |permission: &&Permission| {
            allowed.iter().any(|request| {
                qualified_resource(&request.group, &request.resource) == permission.resource
                    && request.verb == permission.verb
            })
        };
        let granted = permissions(&role.rules.context("the role has no rules")?);
        let unused: Vec<&Permission> = granted.iter().filter(|permission| !is_used(permission)).collect();
        assert!(!granted.is_empty() && unused.is_empty(), "{unused:#?}");

        // Any authenticated user can read flavors, but no servers.
        let authenticated =
            client_with_token(fixture, &service_account_token(admin, "dev-bob", "default").await?).await?;
        let flavors = "/apis/odc.dev/v1alpha1/devserverflavors";
        for (path, expected) in [
            (flavors.to_owned(), 200),
            (format!("{flavors}/gpu"), 200),
            ("/apis/odc.dev/v1alpha1/devservers".into(), 403),
            ("/apis/odc.dev/v1alpha1/namespaces/dev-bob/devservers".into(), 403),
            ("/apis/odc.dev/v1alpha1/devserverusers".into(), 403),
            ("/apis/odc.dev/v1alpha1/teams".into(), 403),
        ] {
            let (code, message) = send(&authenticated, &Method::GET, &path, None).await?;
            assert_eq!(code, expected, "{path}: {message}");
        }
        let (code, _) = send(&client_with_token(fixture, "invalid").await?, &Method::GET, flavors, None).await?;
        assert_eq!(code, 401);
        Ok(())
    })
    .await
}

const OK: u16 = 200;
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;
const INVALID: u16 = 422;
const SERVERS: &str = "/apis/odc.dev/v1alpha1/namespaces/dev-ada/devservers";
const DISKS: &str = "/apis/odc.dev/v1alpha1/namespaces/dev-ada/disks";
const OPERATIONS: &str = "/apis/odc.dev/v1alpha1/namespaces/dev-ada/diskoperations";
const NAMESPACE_PATH: &str = "/api/v1/namespaces/dev-ada";

/// A request of ada: method, path, body.
type Call = (Method, String, Option<Value>);

async fn check_user(ada: &Client) -> anyhow::Result<()> {
    check_own_servers(ada).await?;
    check_own_disks(ada).await?;
    check_own_objects(ada).await?;
    check_group(ada, "bypassing the limits of the flavor", FORBIDDEN, workload_calls()).await?;
    check_group(ada, "keys and data", FORBIDDEN, data_calls()).await?;
    check_group(ada, "objects of the operator", FORBIDDEN, operator_calls()).await?;
    check_group(ada, "objects of others", FORBIDDEN, foreign_calls()).await?;
    check_kubelet_calls(ada).await
}

/// Sends requests and checks their status code. Failures name the group.
async fn check_group(ada: &Client, group: &str, expected: u16, calls: Vec<Call>) -> anyhow::Result<()> {
    for (method, path, body) in calls {
        let (code, message) = send(ada, &method, &path, body.as_ref()).await?;
        assert_eq!(code, expected, "{group}: {method} {path}: {message}");
    }
    Ok(())
}

fn get(path: impl Into<String>) -> Call {
    (Method::GET, path.into(), None)
}

fn delete(path: impl Into<String>) -> Call {
    (Method::DELETE, path.into(), None)
}

fn post(path: impl Into<String>, body: Value) -> Call {
    (Method::POST, path.into(), Some(body))
}

fn patch(path: impl Into<String>, body: Value) -> Call {
    (Method::PATCH, path.into(), Some(body))
}

fn devserver() -> Value {
    json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": {"name": "mine"},
        "spec": {"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "main", "image": "any"}]}})
}

fn longer_lifetime() -> Value {
    json!({"spec": {"lifetime": "9h"}})
}

async fn check_own_servers(ada: &Client) -> anyhow::Result<()> {
    let mine = format!("{SERVERS}/mine");
    let calls =
        vec![post(SERVERS, devserver()), get(SERVERS), get(mine.clone()), patch(mine.clone(), longer_lifetime())];
    check_group(ada, "own servers", OK, calls).await?;
    // Allowed, but the object lacks a resource version.
    let replace = (Method::PUT, mine.clone(), Some(devserver()));
    check_group(ada, "replacing an own server", INVALID, vec![replace]).await?;
    check_group(ada, "deleting an own server", OK, vec![delete(mine)]).await
}

async fn check_own_disks(ada: &Client) -> anyhow::Result<()> {
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": kind,
        "metadata": {"name": "mine"}, "spec": spec})
    };
    let (disk, operation) = (format!("{DISKS}/mine"), format!("{OPERATIONS}/mine"));
    let new = object("Disk", json!({"size": "1Gi"}));
    let snapshot = object("DiskOperation", json!({"disk": "mine", "action": "Snapshot"}));
    let calls = vec![
        post(DISKS, new.clone()),
        get(disk.clone()),
        post(OPERATIONS, snapshot),
        get(operation.clone()),
        delete(operation),
    ];
    check_group(ada, "own disks", OK, calls).await?;
    let replace = (Method::PUT, disk.clone(), Some(new));
    check_group(ada, "replacing an own disk", INVALID, vec![replace]).await?;
    // Refused by the policy until the name is confirmed.
    check_group(ada, "deleting a disk without confirmation", INVALID, vec![delete(disk.clone())]).await?;
    let confirmation = json!({"metadata": {"annotations": {"odc.dev/confirm-delete": "mine"}}});
    check_group(ada, "deleting an own disk", OK, vec![patch(disk.clone(), confirmation), delete(disk)]).await
}

async fn check_own_objects(ada: &Client) -> anyhow::Result<()> {
    let events = "/apis/events.k8s.io/v1/namespaces/dev-ada/events";
    let queue = "/apis/queue.odc.dev/v1alpha1/namespaces/dev-ada";
    let collections = [
        SERVERS.to_owned(),
        format!("{NAMESPACE_PATH}/pods"),
        format!("{NAMESPACE_PATH}/events"),
        events.to_owned(),
        format!("{NAMESPACE_PATH}/persistentvolumeclaims"),
        DISKS.to_owned(),
        OPERATIONS.to_owned(),
    ];
    let watches = collections.iter().map(|path| get(format!("{path}?watch=true&timeoutSeconds=1"))).collect();
    check_group(ada, "own collections", OK, collections.iter().map(get).collect()).await?;
    check_group(ada, "watches", OK, watches).await?;
    let objects = vec![
        get(format!("{NAMESPACE_PATH}/pods/box-0")),
        get(format!("{NAMESPACE_PATH}/persistentvolumeclaims/home")),
        get("/apis/odc.dev/v1alpha1/devserverflavors"),
    ];
    check_group(ada, "own objects and flavors", OK, objects).await?;
    // Without an operator that serves it, the aggregated API does not exist.
    let missing = vec![
        get(format!("{NAMESPACE_PATH}/events/none")),
        get(format!("{NAMESPACE_PATH}/configmaps/none")),
        get(format!("{events}/none")),
        get(format!("{queue}/queueentries")),
        get(format!("{queue}/queueentries/box")),
        get(format!("{queue}/availabilities")),
        get(format!("{queue}/availabilities/gpu")),
        post(format!("{queue}/dryruns"), devserver()),
    ];
    check_group(ada, "allowed, but missing", NOT_FOUND, missing).await
}

fn workload_calls() -> Vec<Call> {
    let box_pod = format!("{NAMESPACE_PATH}/pods/box-0");
    vec![
        post(format!("{NAMESPACE_PATH}/pods"), pod()),
        delete(box_pod.clone()),
        (Method::POST, format!("{box_pod}/exec?command=id"), None),
        get(format!("{box_pod}/exec?command=id")),
        (Method::POST, format!("{box_pod}/attach"), None),
        patch(format!("{box_pod}/ephemeralcontainers"), longer_lifetime()),
        post(format!("{box_pod}/eviction"), pod()),
    ]
}

fn data_calls() -> Vec<Call> {
    vec![
        get(format!("{NAMESPACE_PATH}/secrets")),
        get(format!("{NAMESPACE_PATH}/secrets/box-keys")),
        delete(format!("{NAMESPACE_PATH}/persistentvolumeclaims/home")),
        get(format!("{NAMESPACE_PATH}/configmaps")),
        delete(format!("{NAMESPACE_PATH}/configmaps/kube-root-ca.crt")),
        post(format!("{NAMESPACE_PATH}/serviceaccounts/odc-user/token"), pod()),
    ]
}

fn operator_calls() -> Vec<Call> {
    let privileged = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/dev-ada/rolebindings";
    vec![
        patch(format!("{SERVERS}/box/status"), json!({"status": {"phase": "Queued"}})),
        patch(NAMESPACE_PATH, privileged),
        delete(NAMESPACE_PATH),
        delete(format!("{NAMESPACE_PATH}/resourcequotas/odc")),
        delete("/apis/networking.k8s.io/v1/namespaces/dev-ada/networkpolicies/odc"),
        post(bindings, binding("mine", "cluster-admin")),
        delete(SERVERS),
    ]
}

fn foreign_calls() -> Vec<Call> {
    let servers = "/apis/odc.dev/v1alpha1/namespaces/dev-bob/devservers";
    vec![
        get(servers),
        post(servers, devserver()),
        get("/api/v1/namespaces/dev-bob/pods"),
        get("/api/v1/namespaces/odc-system/pods"),
        get("/apis/odc.dev/v1alpha1/devservers"),
        get("/apis/odc.dev/v1alpha1/devserverusers/ada"),
        patch("/apis/odc.dev/v1alpha1/devserverflavors/gpu", longer_lifetime()),
        get("/api/v1/nodes"),
    ]
}

/// The fake kubelet serves no logs or connections, so only a denial counts.
async fn check_kubelet_calls(ada: &Client) -> anyhow::Result<()> {
    let box_pod = format!("{NAMESPACE_PATH}/pods/box-0");
    for (method, path) in [
        (Method::GET, format!("{box_pod}/log")),
        (Method::GET, format!("{box_pod}/portforward?ports=2222")),
        (Method::POST, format!("{box_pod}/portforward?ports=2222")),
    ] {
        let (code, message) = send(ada, &method, &path, None).await?;
        assert!(!matches!(code, 401 | 403), "{method} {path}: {code} {message}");
    }
    Ok(())
}
