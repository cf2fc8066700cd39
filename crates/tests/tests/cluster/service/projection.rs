//! The rows of custom resources in the database, which a worker can write again from nothing.

use std::fmt::Debug;

use http::Method;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Disk, Phase};
use odc_tests::dbfault::{Action, Dbfault, Fault};
use odc_tests::sql::{administrator, count, execute, rows, value};
use odc_tests::{Service, manifests, wait, with_service};
use serde::de::DeserializeOwned;
use serde_json::json;
use sqlx::PgConnection;

use super::fixture::{TIMEOUT, check_usage, flavor, server, wait_phase};

/// Tables that the projection writes.
const TABLES: &str =
    "devservers, devserver_timeline, usage_intervals, disks, disk_operations, flavors, cluster_objects";
/// In the short form every fifth statement is a crash point.
const CRASH_POINT_INTERVAL: usize = if cfg!(feature = "full") { 1 } else { 5 };

#[tokio::test]
async fn projection_is_rebuilt_after_a_crash_at_any_statement() -> anyhow::Result<()> {
    with_service(async |service| {
        service.plane.add_node("node-1", &[("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti")]).await?;
        let (mut operator, api, mut worker) =
            tokio::try_join!(service.start_operator(&[]), service.api().start(), service.worker().start())?;
        manifests::apply(&service.plane.client, &flavor()).await?;
        service.create_user_with_operator("ada").await?;
        let ada = service.sign_in(&api, "ada").await?;
        create_history(service, &ada).await?;
        // It updates the status of the flavor from time to time.
        operator.kill().await?;
        let sql = &mut administrator(service.database).await?;
        check_adoption(sql).await?;
        let live = wait::until("complete projection", TIMEOUT, async || complete_rows(service, sql).await).await?;
        check_usage(sql).await?;
        let audit = count(sql, "audit_log").await?;
        worker.kill().await?;

        // A run without faults gives the statements.
        execute(sql, &format!("TRUNCATE {TABLES}")).await?;
        let reference = service.worker().dbfault()?;
        let mut worker = service.worker().database(&reference).start().await?;
        wait_rebuilt(sql, &live).await?;
        worker.kill().await?;
        let statements = reference.statements();
        assert!(statements.iter().any(|statement| statement.sql.contains("INSERT INTO devservers")), "{statements:#?}");

        let total = statements.len();
        for nth in (1..=total).step_by(CRASH_POINT_INTERVAL) {
            for fault in
                [Fault::statement(nth as u64).before(Action::Cut), Fault::statement(nth as u64).after(Action::Cut)]
            {
                execute(sql, &format!("TRUNCATE {TABLES}")).await?;
                let dbfault = Dbfault::start(service.database.url(odc_tests::DatabaseRole::Worker), [fault.clone()])?;
                let mut worker = service.worker().database(&dbfault).spawn()?;
                // The order of statements on several connections varies, so the last ones may be omitted.
                tokio::select! {
                    fired = dbfault.wait_fired(1, TIMEOUT) => {
                        fired?;
                        worker.kill().await?;
                        worker.restart()?;
                        wait_rebuilt(sql, &live).await?;
                    }
                    rebuilt = wait_rebuilt(sql, &live) => rebuilt?,
                }
                worker.kill().await?;
                check_usage(sql).await?;
                assert_eq!(count(sql, "audit_log").await?, audit, "{fault:?}: entries are not repeated");
            }
        }
        Ok(())
    })
    .await
}

/// Creates servers by the API and with kubectl, changes and ends some of them, and creates a disk.
async fn create_history(service: &Service<'_>, ada: &odc_tests::api_client::ApiClient) -> anyhow::Result<()> {
    let servers: Api<DevServer> = Api::namespaced(service.plane.client.clone(), "dev-ada");
    for name in ["ended", "extended"] {
        ada.change(Method::POST, "/devservers", Some(&server(name))).await?;
    }
    let mut object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
        "metadata": {"name": "adopted", "namespace": "dev-ada"}, "spec": server("adopted")});
    object["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove("name")));
    let params = PatchParams::apply("kubectl");
    servers.patch("adopted", &params, &Patch::Apply(&object)).await?;
    for name in ["ended", "extended", "adopted"] {
        wait_phase(&servers, name, Phase::Running).await?;
    }
    object["spec"]["lifetime"] = json!("3h");
    servers.patch("adopted", &params, &Patch::Apply(&object)).await?;
    ada.change(Method::POST, "/devservers/extended/extend", Some(&json!({"by": "1h"}))).await?;
    ada.change(Method::DELETE, "/devservers/ended", None).await?;
    wait_phase(&servers, "ended", Phase::Cancelled).await?;
    ada.change(Method::POST, "/disks", Some(&json!({"name": "data", "size": "1Gi"}))).await?;
    let disk = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Disk",
        "metadata": {"name": "by-kubectl", "namespace": "dev-ada"}, "spec": {"size": "1Gi"}});
    manifests::apply(&service.plane.client, &disk).await?;
    // A deleted object has a row until the table is truncated.
    let mut gone = flavor();
    gone["metadata"]["name"] = json!("gone");
    gone["spec"]["default"] = json!(false);
    manifests::apply(&service.plane.client, &gone).await?;
    Api::<DevServerFlavor>::all(service.plane.client.clone()).delete("gone", &DeleteParams::default()).await?;
    Ok(())
}

/// Checks that changes made without the API have an audit entry with their field manager, and others have none.
async fn check_adoption(sql: &mut PgConnection) -> anyhow::Result<()> {
    let entries = "SELECT string_agg(format('%s %s %s', actor, action, object_name), ', ' ORDER BY id) FROM audit_log
        WHERE result = 'Observed'";
    wait::until("entries of adopted objects", TIMEOUT, async || {
        let found = value(sql, entries).await?;
        for expected in
            ["kubectl devserver.create adopted", "kubectl devserver.update adopted", "odc-tests disk.create by-kubectl"]
        {
            anyhow::ensure!(found.split(", ").filter(|entry| *entry == expected).count() == 1, "{expected}: {found}");
        }
        for by_api in ["ended", "extended", "data"] {
            assert!(!found.split([' ', ',']).any(|word| word == by_api), "{by_api}: {found}");
        }
        Ok(())
    })
    .await
}

/// Returns the rows of existing objects, without the times of observation.
async fn live_rows(sql: &mut PgConnection) -> anyhow::Result<Vec<String>> {
    let mut all = vec![];
    for (table, order) in [
        ("devservers", "uid"),
        ("devserver_timeline", "server_uid, at, phase"),
        ("usage_intervals", "server_uid, started_at"),
        ("disks", "uid"),
        ("disk_operations", "uid"),
        ("flavors", "name"),
        ("cluster_objects", "kind, name"),
    ] {
        let has_deleted = !matches!(table, "devserver_timeline" | "usage_intervals");
        let condition = if has_deleted { "deleted_at IS NULL" } else { "true" };
        let row = "to_jsonb(t) - '{observed_at,position}'::text[]";
        let query = format!("SELECT {row} FROM {table} t WHERE {condition} ORDER BY {order}");
        all.extend(rows(sql, &query).await?.into_iter().map(|row| format!("{table} {row}")));
    }
    Ok(all)
}

/// Returns the rows, if they are those of the current objects.
async fn complete_rows(service: &Service<'_>, sql: &mut PgConnection) -> anyhow::Result<Vec<String>> {
    let client = &service.plane.client;
    let current = [
        ("devservers", versions(&Api::<DevServer>::namespaced(client.clone(), "dev-ada")).await?),
        ("disks", versions(&Api::<Disk>::namespaced(client.clone(), "dev-ada")).await?),
        ("flavors", versions(&Api::<DevServerFlavor>::all(client.clone())).await?),
    ];
    for (table, versions) in current {
        let stored = format!(
            "SELECT string_agg(object -> 'metadata' ->> 'resourceVersion', ' ' ORDER BY name) FROM {table}
                WHERE deleted_at IS NULL"
        );
        let stored = value(sql, &stored).await?;
        anyhow::ensure!(stored == versions, "{table} has versions {stored}, current are {versions}");
    }
    live_rows(sql).await
}

/// Returns the versions of all objects, sorted by name.
async fn versions<K>(api: &Api<K>) -> anyhow::Result<String>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut objects = api.list(&ListParams::default()).await?.items;
    objects.sort_by_key(ResourceExt::name_any);
    let versions = objects.iter().map(|object| object.resource_version().unwrap_or_default());
    Ok(versions.collect::<Vec<_>>().join(" "))
}

async fn wait_rebuilt(sql: &mut PgConnection, expected: &[String]) -> anyhow::Result<()> {
    wait::until("rebuilt projection", TIMEOUT, async || {
        let current = live_rows(sql).await?;
        let missing: Vec<_> = expected.iter().filter(|row| !current.contains(row)).collect();
        let surplus: Vec<_> = current.iter().filter(|row| !expected.contains(row)).collect();
        anyhow::ensure!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}, surplus {surplus:#?}");
        Ok(())
    })
    .await
}
