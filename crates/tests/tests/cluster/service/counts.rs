//! Statements and commits, counted by a proxy for PostgreSQL.

use std::time::Duration;

use futures_util::future::try_join_all;
use odc_tests::dbfault::{Dbfault, Statement};
use odc_tests::sql::{administrator, count};
use odc_tests::{wait, with_service};

use super::fixture::{TIMEOUT, check_requests_ended_once, create_objects, create_server, server, wait_requests_ended};

const BATCH_SIZE: usize = 50;
/// A user may have 400 pending requests.
const BATCHES: usize = if cfg!(feature = "full") { 7 } else { 5 };
const MAX_COMMITS_PER_REQUEST: f64 = 1.05;
const IDLE_TIME: Duration = Duration::from_secs(if cfg!(feature = "full") { 60 } else { 10 });
/// Three a minute.
const MAX_IDLE_STATEMENTS: usize = if cfg!(feature = "full") { 3 } else { 1 };

/// Returns the statements after the first `mark`, and whether each ends a transaction.
fn since(dbfault: &Dbfault, mark: usize) -> Vec<Statement> {
    dbfault.statements().split_off(mark)
}

/// Reports whether a statement reads or finishes messages. Others do not depend on the number of requests.
fn is_pipeline(statement: &Statement) -> bool {
    statement.sql.contains("pgmq.read(") || statement.sql.contains("DELETE FROM pgmq.q_")
}

#[tokio::test]
async fn accepted_request_is_one_statement_and_one_commit_and_reads_are_none() -> anyhow::Result<()> {
    with_service(async |service| {
        let dbfault = service.api().dbfault()?;
        let api = service.api().database(&dbfault).start().await?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        assert_eq!(ada.post("/devservers", &server("first")).await?.status, 202);
        let (mark, commits) = (dbfault.statements().len(), dbfault.commits());
        for number in 0..20 {
            assert_eq!(ada.post("/devservers", &server(&format!("box-{number}"))).await?.status, 202);
        }
        let statements = since(&dbfault, mark);
        assert!(statements.iter().all(|statement| statement.sql.contains("INSERT INTO requests")), "{statements:#?}");
        assert_eq!((statements.len(), dbfault.commits() - commits), (20, 20));

        let reader = ada.with_credential(&service.create_key("ada", &["servers:read"], "1h").await?);
        let mark = dbfault.statements().len();
        let read = async |number: usize| {
            let path = if number.is_multiple_of(2) { "/devservers" } else { "/flavors/cpu" };
            let response = reader.get(path).await?;
            anyhow::ensure!(response.status == 200, "{response:?}");
            Ok(())
        };
        try_join_all((0..100).map(read)).await?;
        let statements = since(&dbfault, mark);
        assert_eq!(statements.len(), 1, "{statements:#?}");
        assert!(statements[0].sql.contains("FROM api_keys"), "{statements:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn batches_of_requests_take_few_commits() -> anyhow::Result<()> {
    with_service(async |service| {
        let (accepts, work) = (service.api().dbfault()?, service.worker().dbfault()?);
        let api = service.api().database(&accepts).start().await?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        let requests = BATCHES * BATCH_SIZE;
        let commits = accepts.commits();
        for number in 0..requests {
            create_server(&ada, &format!("box-{number}")).await?;
        }
        let accepted = accepts.commits() - commits;
        let worker = service.worker().database(&work).setting("BATCH_SIZE", &BATCH_SIZE.to_string());
        let _worker = worker.start().await?;
        let sql = &mut administrator(service.database).await?;
        wait_requests_ended(sql).await?;
        check_requests_ended_once(sql).await?;
        let executed = work.statements().iter().filter(|statement| statement.commits && is_pipeline(statement)).count();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let per_request = (accepted + executed) as f64 / requests as f64;
        assert!(per_request <= MAX_COMMITS_PER_REQUEST, "{per_request}: {accepted} accepts, {executed} of the worker");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idle_service_sends_few_statements() -> anyhow::Result<()> {
    with_service(async |service| {
        let databases = [service.api().dbfault()?, service.api().dbfault()?, service.worker().dbfault()?];
        let [first, second, worker] = &databases;
        let (api, _second, worker) = tokio::try_join!(
            service.api().database(first).start(),
            service.api().database(second).start(),
            service.worker().database(worker).start(),
        )?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        assert_eq!(ada.post("/devservers", &server("box")).await?.status, 202);
        let sql = &mut administrator(service.database).await?;
        wait::until("projected server", TIMEOUT, async || {
            anyhow::ensure!(count(sql, "devservers").await? == 1);
            Ok(())
        })
        .await?;
        for metric in ["odc_worker_listening", "odc_projection_writer"] {
            assert!(worker.metric(metric).await? > 0.0, "{metric}");
        }
        if cfg!(feature = "full") {
            // The use of the key is recorded within a minute.
            wait::until("recorded use of the key", Duration::from_secs(90), async || {
                anyhow::ensure!(count(sql, "api_keys WHERE last_used_at IS NOT NULL").await? == 1);
                Ok(())
            })
            .await?;
        }
        let statements = || databases.iter().map(|database| database.statements().len()).collect::<Vec<_>>();
        wait::until("end of the statements at the start", TIMEOUT, async || {
            let before = statements();
            tokio::time::sleep(Duration::from_secs(1)).await;
            anyhow::ensure!(statements() == before);
            Ok(())
        })
        .await?;
        let marks = statements();
        tokio::time::sleep(IDLE_TIME).await;
        let idle: Vec<Statement> =
            databases.iter().zip(marks).flat_map(|(database, mark)| since(database, mark)).collect();
        assert!(idle.len() <= MAX_IDLE_STATEMENTS, "{idle:#?}");
        if cfg!(feature = "full") {
            assert!(!idle.is_empty(), "the queues are read in case a notification was lost");
        }
        Ok(())
    })
    .await
}
