//! The callers, and one object of each kind that belongs to ada.

use std::collections::BTreeMap;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use http::Method;
use kube::api::{Api, Patch, PatchParams};
use odc_api::label;
use odc_api::v1alpha1::{Disk, LISTING_KEY};
use odc_tests::api_client::{ApiClient, Response};
use odc_tests::service::ServiceProcess;
use odc_tests::sql::{administrator, execute, value};
use odc_tests::{Service, manifests, namespace, wait};
use serde_json::{Value, json};

use super::matrix::Actor;
use crate::service::fixture::{TIMEOUT, flavor, server};

const NAMESPACE: &str = "dev-ada";

pub struct Objects {
    /// Stopped when dropped.
    _api: ServiceProcess,
    clients: BTreeMap<Actor, ApiClient>,
    names: Names,
    /// Clients of ada and the administrator whose key lacks a scope.
    without_scope: BTreeMap<(Actor, String), ApiClient>,
}

/// The variables of paths.
#[derive(Clone, Debug)]
pub struct Names([(&'static str, String); 10]);

impl Names {
    pub const ABSENT_USER: &str = "absent";

    /// Returns a path with names instead of variables.
    pub fn fill(&self, path: &str) -> String {
        let kind = path.split('/').nth(1).unwrap_or_default();
        let key = format!("{kind}/{{name}}");
        let mut path = path.replace(&key, &format!("{kind}/{{{kind}}}"));
        if kind == "keys" {
            path = path.replace("{id}", "{keys}");
        }
        self.0.iter().fold(path, |path, (variable, name)| path.replace(&format!("{{{variable}}}"), name))
    }

    /// Returns names of objects that do not exist.
    pub fn absent(&self) -> Self {
        let absent = |(variable, _): &(&'static str, String)| {
            let name = match *variable {
                // They have a format.
                "keys" => "0absent0key0".to_owned(),
                "id" => "0197a3c4-0000-7000-8000-00000000dead".to_owned(),
                "users" => Self::ABSENT_USER.to_owned(),
                _ => format!("absent-{variable}"),
            };
            (*variable, name)
        };
        Self(self.0.each_ref().map(absent))
    }

    /// Returns what a response reveals, with variables instead of these names.
    pub fn describe(&self, response: &Response) -> anyhow::Result<String> {
        let mut body = response.body.clone();
        // It differs for each request.
        body.as_object_mut().context("a problem")?.remove("requestId");
        let headers = ["content-type", "cache-control", "www-authenticate", "retry-after", "etag", "location"];
        let headers = headers.map(|name| response.header(name));
        let text = format!("{} {headers:?} {body}", response.status);
        // Longer names first, because the name of the user is part of the others.
        let mut names = self.0.clone();
        names.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
        Ok(names.iter().fold(text, |text, (variable, name)| text.replace(name.as_str(), &format!("{{{variable}}}"))))
    }
}

impl Objects {
    /// Starts an API and creates the objects through it and its worker, which is stopped then, so that accepted requests
    /// are not executed.
    pub async fn create(service: &Service<'_>) -> anyhow::Result<Self> {
        let (api, mut worker) = tokio::try_join!(service.api().start(), service.worker().start())?;
        let clients = create_users(service, &api).await?;
        let ada = clients.get(&Actor::Owner).context("ada")?;
        let mut requests = vec![];
        for (path, body) in [
            ("/disks", json!({"name": "ada-home", "size": "1Gi"})),
            ("/devservers", server("ada-box")),
            ("/disks/ada-home/snapshot", json!({})),
        ] {
            let request = ada.change(Method::POST, path, Some(&body)).await?;
            anyhow::ensure!(request["state"] == "Succeeded", "{request}");
            requests.push(request);
        }
        create_in_cluster(service).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        let last = requests.last().context("a request")?;
        let names = Names([
            ("devservers", "ada-box".to_owned()),
            ("disks", "ada-home".to_owned()),
            ("disk-operations", text(&last["objectName"])?),
            ("teams", "ada-team".to_owned()),
            ("flavors", "cpu".to_owned()),
            ("users", "ada".to_owned()),
            ("member", "mate".to_owned()),
            ("point", "ada-point".to_owned()),
            ("id", text(&last["id"])?),
            ("keys", "000000000000".to_owned()),
        ]);
        let without_scope = create_keys_without_scope(&clients).await?;
        let objects = Self { _api: api, clients, names, without_scope };
        objects.create_history(service).await?;
        worker.stop().await?;
        objects.expire_key(service).await?;
        objects.wait_until_visible().await?;
        Ok(objects)
    }

    /// Returns the client of an actor other than [`Actor::Scope`], whose key depends on the operation.
    pub fn client(&self, actor: Actor) -> &ApiClient {
        &self.clients[&actor]
    }

    /// Returns a client of ada or of the administrator with all scopes but `admin` and this one.
    pub fn client_without_scope(&self, is_owner: bool, scope: Option<&str>) -> anyhow::Result<&ApiClient> {
        let creator = if is_owner { Actor::Owner } else { Actor::Admin };
        let scope = scope.unwrap_or("admin").to_owned();
        self.without_scope.get(&(creator, scope)).context("a key without the scope")
    }

    /// Returns the names of ada's objects, with that of a new key on request, because answers to callers may change it.
    pub async fn names_for(&self, has_key: bool) -> anyhow::Result<Names> {
        let mut names = self.names.clone();
        if has_key {
            let body = json!({"description": "test", "scopes": ["usage:write"], "validFor": "1h"});
            let created = self.client(Actor::Owner).post("/keys", &body).await?;
            let id = created.body["id"].as_str().with_context(|| format!("{created:?}"))?.to_owned();
            for (variable, name) in &mut names.0 {
                if *variable == "keys" {
                    name.clone_from(&id);
                }
            }
        }
        Ok(names)
    }

    /// Creates rows that only the database has.
    async fn create_history(&self, service: &Service<'_>) -> anyhow::Result<()> {
        let ada = self.client(Actor::Owner);
        let report =
            json!({"provider": "p", "providerRequestId": "ada-1", "model": "m", "inputTokens": 1, "outputTokens": 1});
        let reported = ada.post("/usage/tokens", &report).await?;
        anyhow::ensure!(reported.status == 204, "{reported:?}");
        let mut sql = administrator(service.database).await?;
        wait::until("projected server", TIMEOUT, async || {
            let uid = value(&mut sql, "SELECT uid FROM devservers WHERE name = 'ada-box'").await?;
            anyhow::ensure!(!uid.is_empty(), "the server is not in the database");
            Ok(())
        })
        .await?;
        execute(
            &mut sql,
            "INSERT INTO usage_intervals (server_uid, started_at, ended_at, user_name, flavor, devices, nodes)
            SELECT uid, now() - interval '2 hours', now() - interval '1 hour', 'ada', 'cpu', 0, 1 FROM devservers",
        )
        .await?;
        Ok(())
    }

    /// Lets the key of [`Actor::Expired`] expire, which the API knows as valid.
    async fn expire_key(&self, service: &Service<'_>) -> anyhow::Result<()> {
        let client = self.client(Actor::Expired);
        let me = client.get("/me").await?.body;
        let id = me["keyId"].as_str().with_context(|| me.to_string())?;
        let expire = format!(
            "UPDATE api_keys SET created_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'
            WHERE id = '{id}'"
        );
        execute(&mut administrator(service.database).await?, &expire).await?;
        wait::until("expired key", TIMEOUT, async || {
            let response = client.get("/me").await?;
            anyhow::ensure!(response.status == 401, "{response:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the API has received the objects that were not created through it.
    async fn wait_until_visible(&self) -> anyhow::Result<()> {
        wait::until("objects of ada", TIMEOUT, async || {
            for actor in [Actor::Mate, Actor::Auditor, Actor::Admin] {
                let team = self.client(actor).get("/teams/ada-team").await?;
                anyhow::ensure!(team.status == 200, "{actor:?}: {team:?}");
            }
            for actor in [Actor::Auditor, Actor::Admin] {
                let points = self.client(actor).get("/disks/ada-home/points?user=ada").await?;
                anyhow::ensure!(points.body["items"][0]["name"] == "ada-point", "{actor:?}: {points:?}");
            }
            Ok(())
        })
        .await
    }

    /// Waits until the operator answers questions about ada's server.
    pub async fn wait_until_queued(&self) -> anyhow::Result<()> {
        wait::until("queued server", TIMEOUT, async || {
            let entries = self.client(Actor::Owner).get("/queue/entries").await?;
            let server = self.client(Actor::Owner).get("/devservers/ada-box").await?.body;
            anyhow::ensure!(entries.body.to_string().contains("\"ada-box\""), "{} {server}", entries.body);
            Ok(())
        })
        .await
    }
}

/// Creates the users and a key of each one.
async fn create_users(service: &Service<'_>, api: &ServiceProcess) -> anyhow::Result<BTreeMap<Actor, ApiClient>> {
    manifests::apply(&service.plane.client, &flavor()).await?;
    let users = [
        (Actor::Owner, "ada", "User"),
        (Actor::Other, "other", "User"),
        (Actor::Mate, "mate", "User"),
        (Actor::Auditor, "auditor", "Auditor"),
        (Actor::Admin, "admin", "Admin"),
    ];
    let clients = users.map(async |(actor, user, role)| {
        service.create_user(user).await?;
        service.set_role(user, role).await?;
        anyhow::Ok((actor, service.sign_in(api, user).await?))
    });
    let mut clients: BTreeMap<_, _> = try_join_all(clients).await?.into_iter().collect();
    clients.insert(Actor::Expired, service.sign_in(api, "ada").await?);
    clients.insert(Actor::Anonymous, service.client(api, "")?);
    Ok(clients)
}

/// Creates keys that lack one scope, and the scope `admin`. Each is used once: after many failures of an address, keys that
/// the API does not know are refused.
async fn create_keys_without_scope(
    clients: &BTreeMap<Actor, ApiClient>,
) -> anyhow::Result<BTreeMap<(Actor, String), ApiClient>> {
    let mut without_scope = BTreeMap::new();
    for creator in [Actor::Owner, Actor::Admin] {
        let client = clients.get(&creator).context("a client")?;
        let me = client.get("/me").await?.body;
        let all = me["scopes"].as_array().with_context(|| me.to_string())?;
        for scope in all.iter().filter_map(Value::as_str) {
            let scopes: Vec<&Value> = all.iter().filter(|other| *other != scope && *other != "admin").collect();
            let created = client.post("/keys", &json!({"scopes": scopes})).await?.body;
            let key = created["key"].as_str().with_context(|| created.to_string())?;
            let client = client.with_credential(key);
            let me = client.get("/me").await?;
            anyhow::ensure!(me.status == 200, "{me:?}");
            without_scope.insert((creator, scope.to_owned()), client);
        }
    }
    Ok(without_scope)
}

/// Creates what neither the API nor a worker creates: a team, a restore point with a listing, and a pod that no node runs.
async fn create_in_cluster(service: &Service<'_>) -> anyhow::Result<()> {
    let client = &service.plane.client;
    namespace::wait_ready(client, NAMESPACE).await?;
    let container = json!({"name": "dev", "image": "any"});
    let listing = json!({LISTING_KEY: "bGlzdGluZw=="});
    for object in [
        // So that the operator, which starts later, manages the namespace.
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {label::OWNER: "ada"}}}),
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "metadata": {"name": "ada-team"},
            "spec": {"members": ["ada", "mate"]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ada-point", "namespace": NAMESPACE},
            "binaryData": listing}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ada-box-0", "namespace": NAMESPACE},
            "spec": {"containers": [container], "schedulingGates": [{"name": "odc.test/never"}]}}),
    ] {
        manifests::apply(client, &object).await?;
    }
    let point = json!({"name": "ada-point", "reason": "OnDemand", "consistency": "Clean", "ready": true});
    let status = Patch::Merge(json!({"status": {"points": [point]}}));
    let disks: Api<Disk> = Api::namespaced(client.clone(), NAMESPACE);
    disks.patch_status("ada-home", &PatchParams::default(), &status).await?;
    Ok(())
}
