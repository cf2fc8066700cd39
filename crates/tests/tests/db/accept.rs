//! Acceptance of requests: one statement, one commit, one row per idempotency key.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use odc_store::audit::Actor;
use odc_store::request::{Accepted, State};
use odc_store::{Settings, Store};
use odc_tests::dbfault::Dbfault;
use odc_tests::{DatabaseRole, with_migrated_database};
use uuid::Uuid;

use crate::fixture::{LONG, TestRequest, actor, administrator, count, read, succeed, value};

#[tokio::test]
async fn accept_is_one_statement_and_one_commit() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let dbfault = Dbfault::start(database.url(DatabaseRole::Api), [])?;
        let store = Store::new(&Settings::from_url(dbfault.url(), "test")?);
        for expected in 1..=3 {
            TestRequest::new().accept(&store).await?;
            assert_eq!(dbfault.statements().len(), expected);
            assert_eq!(dbfault.commits(), expected);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn accepted_request_has_row_message_and_audit_entry() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        let request = TestRequest::with_key("first");
        assert_eq!(request.accept(&store).await?, Accepted::New(request.id));
        let stored = store.get_request(request.id).await?.unwrap();
        assert_eq!((stored.user.as_str(), stored.object_name.as_str(), stored.state), ("ada", "box", State::Pending));
        let sql = &mut administrator(database).await?;
        let message = value(sql, "SELECT message FROM pgmq.q_gpu_reservations").await?;
        assert_eq!(message, format!(r#"{{"request": "{}", "version": 1}}"#, request.id));
        let entry =
            "SELECT concat_ws(' ', actor, actor_kind, key_id, user_name, action, object_kind, object_name, result,
            host(client_ip), user_agent) FROM audit_log";
        assert_eq!(
            value(sql, entry).await?,
            "ada ApiKey k12345678901 ada devserver.create DevServer box Accepted 192.0.2.1 devctl/0.1.0"
        );
        assert_eq!(value(sql, "SELECT request_id FROM audit_log").await?, request.id.to_string());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn concurrent_requests_with_one_key_are_accepted_once() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        let requests: Vec<TestRequest> = (0..100).map(|_| TestRequest::with_key("same")).collect();
        let accepted = try_join_all(requests.iter().map(|request| request.accept(&store))).await?;
        let new = accepted.iter().filter(|accepted| matches!(accepted, Accepted::New(_))).count();
        let ids: BTreeSet<_> = accepted
            .iter()
            .map(|accepted| match accepted {
                Accepted::New(id) | Accepted::Repeated(id) => *id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((new, ids.len()), (1, 1));
        let sql = &mut administrator(database).await?;
        for table in ["requests", "pgmq.q_gpu_reservations", "audit_log"] {
            assert_eq!(count(sql, table).await?, 1, "{table}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn key_with_another_body_is_reported_as_reused() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        let first = TestRequest::with_key("key");
        first.accept(&store).await?;
        let other = TestRequest { body_hash: [2; 32], ..TestRequest::with_key("key") };
        assert_eq!(other.accept(&store).await?, Accepted::KeyReused);
        assert_eq!(TestRequest::with_key("key").accept(&store).await?, Accepted::Repeated(first.id));
        assert_eq!(count(&mut administrator(database).await?, "requests").await?, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn requests_without_a_key_are_all_accepted() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        for _ in 0..2 {
            assert!(matches!(TestRequest::new().accept(&store).await?, Accepted::New(_)));
        }
        assert_eq!(count(&mut administrator(database).await?, "pgmq.q_gpu_reservations").await?, 2);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pending_requests_of_an_actor_are_limited() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let first = TestRequest::with_key("first");
        assert_eq!(first.accept_within(&api, Some(2)).await?, Accepted::New(first.id));
        let second = TestRequest::new();
        assert_eq!(second.accept_within(&api, Some(2)).await?, Accepted::New(second.id));
        assert_eq!(TestRequest::new().accept_within(&api, Some(2)).await?, Accepted::TooMany);
        assert_eq!(TestRequest::with_key("third").accept_within(&api, Some(2)).await?, Accepted::TooMany);
        let repeated = TestRequest { id: Uuid::now_v7(), ..first.clone() };
        assert_eq!(
            repeated.accept_within(&api, Some(2)).await?,
            Accepted::Repeated(first.id),
            "it is no further request"
        );
        let other = Actor { name: "bob".to_owned(), ..actor() };
        let request = TestRequest::new();
        assert_eq!(request.accept_as(&api, &other, Some(2)).await?, Accepted::New(request.id));
        let sql = &mut administrator(database).await?;
        for table in ["requests", "pgmq.q_gpu_reservations", "audit_log"] {
            assert_eq!(count(sql, table).await?, 3, "{table}");
        }
        let messages = read(&worker, LONG).await?;
        worker.finish_messages(&[succeed(&messages[0])]).await?;
        let next = TestRequest::new();
        assert_eq!(next.accept_within(&api, Some(2)).await?, Accepted::New(next.id));
        Ok(())
    })
    .await
}
