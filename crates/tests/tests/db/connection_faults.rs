//! Behaviour when connections to the database are cut, stalled, reset or refused.

use std::time::{Duration, Instant};

use odc_store::request::{Accepted, State};
use odc_store::{Settings, Store};
use odc_tests::dbfault::{Action, Dbfault, Fault, Outcome};
use odc_tests::{Database, DatabaseRole, with_migrated_database};
use uuid::Uuid;

use crate::fixture::{TestRequest, accept_many, administrator, count, fail, read, succeed};

/// Settings with short limits.
fn settings(dbfault: &Dbfault) -> anyhow::Result<Settings> {
    let mut settings = Settings::from_url(dbfault.url(), "test")?;
    settings.acquire_timeout = Duration::from_millis(500);
    settings.statement_timeout = Duration::from_millis(500);
    Ok(settings)
}

fn start(database: &Database, fault: Fault) -> anyhow::Result<(Dbfault, Store)> {
    let dbfault = Dbfault::start(database.url(DatabaseRole::Api), [fault])?;
    let store = Store::new(&settings(&dbfault)?);
    Ok((dbfault, store))
}

#[tokio::test]
async fn request_whose_answer_is_lost_is_accepted_once() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        for action in [Action::Cut, Action::Reset] {
            let (dbfault, store) = start(database, Fault::commit(1).after(action))?;
            let sql = &mut administrator(database).await?;
            let before = count(sql, "requests").await?;
            let request = TestRequest::with_key(&format!("{action:?}"));
            let error = request.accept(&store).await.unwrap_err();
            assert!(error.is_unavailable(), "{error:?}");
            assert_eq!(dbfault.statements()[0].outcome, Outcome::Succeeded, "it was committed");
            assert_eq!(count(sql, "requests").await?, before + 1);
            let repeated = TestRequest { id: Uuid::now_v7(), ..request.clone() };
            assert_eq!(repeated.accept(&store).await?, Accepted::Repeated(request.id));
            for table in ["requests", "pgmq.q_gpu_reservations", "audit_log"] {
                assert_eq!(count(sql, table).await?, before + 1, "{table}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn request_that_does_not_reach_the_server_is_not_accepted() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (dbfault, store) = start(database, Fault::statement(1).before(Action::Cut))?;
        let request = TestRequest::with_key("key");
        assert!(request.accept(&store).await.unwrap_err().is_unavailable());
        assert_eq!(dbfault.fired(), 1);
        assert_eq!(count(&mut administrator(database).await?, "requests").await?, 0);
        assert_eq!(request.accept(&store).await?, Accepted::New(request.id));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_request_ends_once_whichever_statement_of_the_worker_is_cut() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let api = database.store(DatabaseRole::Api)?;
        let url = database.url(DatabaseRole::Worker);
        let reference = Dbfault::start(url, [])?;
        work(database, &api, &reference).await?;
        let statements = reference.statements().len() as u64;
        assert_eq!(statements, 3, "read, finish, and a read that finds nothing");
        for nth in 1..=statements {
            for fault in [Fault::statement(nth).before(Action::Cut), Fault::statement(nth).after(Action::Cut)] {
                let dbfault = Dbfault::start(url, [fault.clone()])?;
                work(database, &api, &dbfault).await?;
                assert_eq!(dbfault.fired(), 1, "{fault:?}");
            }
        }
        Ok(())
    })
    .await
}

/// Accepts requests and executes them with a worker that starts again after an error, as after a crash. Half of them fail.
async fn work(database: &Database, api: &Store, dbfault: &Dbfault) -> anyhow::Result<()> {
    const REQUESTS: usize = 4;
    let ids = accept_many(api, REQUESTS).await?;
    // Handled once per delivery; the handler itself can be repeated.
    loop {
        let worker = Store::new(&settings(dbfault)?);
        let cycle = async || -> odc_store::Result<bool> {
            let messages = read(&worker, 0).await?;
            let results: Vec<_> = messages
                .iter()
                .map(|message| {
                    let id = message.request.as_ref().map(|work| work.id);
                    if ids.iter().position(|other| Some(*other) == id).is_some_and(|index| index % 2 == 0) {
                        succeed(message)
                    } else {
                        fail(message, "Test")
                    }
                })
                .collect();
            if !results.is_empty() {
                worker.finish_messages(&results).await?;
            }
            Ok(messages.is_empty())
        };
        match cycle().await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
        worker.close().await;
    }
    let sql = &mut administrator(database).await?;
    for (index, id) in ids.iter().enumerate() {
        let expected = if index % 2 == 0 { State::Succeeded } else { State::Failed };
        assert_eq!(api.get_request(*id).await?.map(|request| request.state), Some(expected));
        let entries = count(sql, &format!("audit_log WHERE request_id = '{id}'")).await?;
        assert_eq!(entries, if index % 2 == 0 { 1 } else { 2 });
        let archived = count(sql, &format!("pgmq.a_gpu_reservations WHERE message ->> 'request' = '{id}'")).await?;
        assert_eq!(archived, index as u64 % 2);
    }
    assert_eq!(count(sql, "pgmq.q_gpu_reservations").await?, 0);
    Ok(())
}

#[tokio::test]
async fn stalled_connection_is_unavailable_and_replaced() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (dbfault, store) = start(database, Fault::commit(1).after(Action::Stall))?;
        let request = TestRequest::with_key("key");
        let started = Instant::now();
        assert!(request.accept(&store).await.unwrap_err().is_unavailable());
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(request.accept(&store).await?, Accepted::Repeated(request.id), "on another connection");
        dbfault.release();
        store.ping().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn statements_that_are_abandoned_do_not_use_up_the_pool() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let faults = (1..=4).map(|nth| Fault::statement(nth).before(Action::Stall));
        let dbfault = Dbfault::start(database.url(DatabaseRole::Api), faults)?;
        let mut settings = settings(&dbfault)?;
        settings.max_connections = 2;
        let store = Store::new(&settings);
        for _ in 0..4 {
            // The caller has its own limit.
            let abandoned = tokio::time::timeout(Duration::from_millis(200), store.ping()).await;
            assert!(abandoned.is_err(), "{abandoned:?}");
        }
        store.ping().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn refused_connections_are_unavailable_until_the_server_returns() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let dbfault = Dbfault::start(database.url(DatabaseRole::Api), [])?;
        let store = Store::new(&settings(&dbfault)?);
        store.ping().await?;
        dbfault.down().await?;
        for _ in 0..2 {
            let error = store.ping().await.unwrap_err();
            assert!(error.is_unavailable(), "{error:?}");
        }
        dbfault.up().await?;
        TestRequest::new().accept(&store).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn reset_connections_are_replaced() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let dbfault = Dbfault::start(database.url(DatabaseRole::Worker), [])?;
        let store = Store::new(&settings(&dbfault)?);
        let (mut listener, _) = store.listen_for_messages().await?;
        store.ping().await?;
        dbfault.reset();
        let lost = tokio::time::timeout(Duration::from_secs(10), listener.next()).await?;
        assert!(lost.unwrap_err().is_unavailable());
        // The connection is tested before it is used.
        store.ping().await?;
        Ok(())
    })
    .await
}
