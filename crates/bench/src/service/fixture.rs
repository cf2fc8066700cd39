//! Users, keys and servers, and the objects and messages that are checked.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use odc_api::v1alpha1::DevServer;
use odc_tests::api_client::ApiClient;
use odc_tests::service::ServiceProcess;
use odc_tests::sql::{count, value};
use odc_tests::{Service, manifests, wait};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::Sizes;
use super::peer::{Peers, credential};
use crate::operator::CONCURRENCY;
use crate::{Report, cpu};

pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) struct Fixture<'a> {
    pub service: &'a Service<'a>,
    pub sizes: &'a Sizes,
    pub users: Vec<String>,
    pub peers: Peers,
    /// Process id of PostgreSQL.
    pub postgres: u32,
}

impl<'a> Fixture<'a> {
    pub(super) async fn create(
        service: &'a Service<'a>,
        sizes: &'a Sizes,
        python: std::path::PathBuf,
        sql: &mut PgConnection,
    ) -> anyhow::Result<Self> {
        let flavor = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "cpu"}, "spec": {
            "default": true, "privilege": "Sudo", "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}});
        manifests::apply(&service.plane.client, &flavor).await?;
        let users: Vec<String> = (0..sizes.users).map(|number| format!("u{number}")).collect();
        for user in &users {
            service.create_user(user).await?;
        }
        let peers = Peers::install(service, python, &users, sql).await?;
        let postgres = cpu::parent(value(sql, "pg_backend_pid()").await?.parse()?)?;
        Ok(Self { service, sizes, users, peers, postgres })
    }

    /// Returns a client of `odc api` for each user, with an API key. They share their connections.
    pub(super) async fn sign_in(&self, api: &ServiceProcess) -> anyhow::Result<Vec<ApiClient>> {
        let all = self.service.client(api, "")?;
        let mut clients = Vec::new();
        for user in &self.users {
            let client = all.with_credential(&self.service.create_key(user, &[], "2h").await?);
            wait::until("user known to the API", TIMEOUT, async || {
                let response = client.get("/me").await?;
                anyhow::ensure!(response.status == 200, "{response:?}");
                Ok(())
            })
            .await?;
            clients.push(client);
        }
        Ok(clients)
    }

    /// Returns a client of the peer for each user, which share their connections.
    pub(super) fn peer_clients(&self, client: &ApiClient) -> Vec<ApiClient> {
        self.users.iter().map(|user| client.with_credential(&credential(user))).collect()
    }

    /// Returns the user of a request.
    pub(super) fn user(&self, number: usize) -> &str {
        &self.users[number % self.users.len()]
    }

    pub(super) fn servers(&self, user: &str) -> Api<DevServer> {
        Api::namespaced(self.service.plane.client.clone(), &format!("dev-{user}"))
    }

    /// Creates servers without the API, distributed over the users.
    pub(super) async fn create_servers(&self, count: usize) -> anyhow::Result<()> {
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(CONCURRENCY, async |number| {
                let server = serde_json::from_value(json!({
                    "metadata": {"name": server_name(number)},
                    "spec": {"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}},
                }))?;
                self.servers(self.user(number)).create(&PostParams::default(), &server).await?;
                anyhow::Ok(())
            })
            .await
    }

    /// Returns all servers whose names begin with a prefix.
    pub(super) async fn servers_with_prefix(&self, prefix: &str) -> anyhow::Result<Vec<DevServer>> {
        let all: Api<DevServer> = Api::all(self.service.plane.client.clone());
        let mut items = all.list(&ListParams::default()).await?.items;
        items.retain(|server| server.metadata.name.as_ref().is_some_and(|name| name.starts_with(prefix)));
        Ok(items)
    }

    /// Deletes all servers, so that each measurement begins with the same number of objects.
    pub(super) async fn delete_servers(&self) -> anyhow::Result<()> {
        for user in &self.users {
            self.servers(user).delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        }
        wait::until("deleted servers", TIMEOUT, async || {
            let left = self.servers_with_prefix("").await?.len();
            anyhow::ensure!(left == 0, "{left} servers are left");
            Ok(())
        })
        .await
    }

    /// Waits until no request is pending, as long as some end.
    pub(super) async fn wait_requests_ended(&self, sql: &mut PgConnection) -> anyhow::Result<()> {
        let total = usize::try_from(count(sql, "requests").await?)?;
        let ended = async || Ok(usize::try_from(count(sql, "requests WHERE state <> 'Pending'").await?)?);
        wait::until_count("ended requests", total, TIMEOUT, ended).await
    }

    /// Checks that all messages were consumed: none is left or archived, every request has succeeded, and each has its
    /// object.
    pub(super) async fn check_consumed(
        &self,
        report: &mut Report,
        sql: &mut PgConnection,
        (what, prefix, objects): (&str, &str, usize),
    ) -> anyhow::Result<()> {
        let mut counts = vec![];
        for rows in [
            "pgmq.q_gpu_reservations",
            "pgmq.a_gpu_reservations",
            "pgmq.q_peer_reservations",
            "pgmq.a_peer_reservations",
            "requests WHERE state <> 'Succeeded'",
        ] {
            counts.push((rows, count(sql, rows).await?, 0));
        }
        counts.push(("DevServers", self.servers_with_prefix(prefix).await?.len() as u64, objects as u64));
        for (rows, found, expected) in counts {
            report.goal(found == expected, || format!("{what}: {found} {rows}, expected {expected}"));
        }
        Ok(())
    }
}

/// Returns the name of a server that was created without the API.
pub(super) fn server_name(number: usize) -> String {
    format!("server-{number}")
}

/// Returns the body of a request to create a server.
pub(super) fn server_body(name: &str) -> Value {
    json!({"name": name, "flavor": "cpu", "lifetime": "1h", "home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}})
}
