//! Notifications that wake the worker, and recovery of messages at its start.

use std::time::Duration;

use odc_store::listen::{Listener, Notification};
use odc_store::queue::Queue;
use odc_store::{Settings, Store};
use odc_tests::dbfault::Dbfault;
use odc_tests::{DatabaseRole, wait, with_migrated_database};

use crate::fixture::{LONG, TestRequest, accept_many, administrator, count, read};

/// Returns the next notification, which must arrive soon.
pub async fn next(listener: &mut Listener) -> anyhow::Result<Notification> {
    Ok(tokio::time::timeout(Duration::from_secs(20), listener.next()).await??)
}

#[tokio::test]
async fn accepted_request_wakes_the_worker() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let (mut listener, recovered) = worker.listen_for_messages().await?;
        assert_eq!(recovered, Some(0));
        for queue in Queue::ALL {
            TestRequest { queue, ..TestRequest::new() }.accept(&api).await?;
            assert_eq!(next(&mut listener).await?, Notification::MessageSent(queue));
        }
        // A repeated request sends no message.
        for _ in 0..2 {
            TestRequest::with_key("key").accept(&api).await?;
        }
        assert_eq!(next(&mut listener).await?, Notification::MessageSent(Queue::Reservations));
        assert!(tokio::time::timeout(Duration::from_millis(100), listener.next()).await.is_err());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn notifications_continue_after_a_crash_of_the_server() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let (mut listener, _) = worker.listen_for_messages().await?;
        accept_many(&api, 1).await?;
        next(&mut listener).await?;
        database.crash().await?;
        let error = tokio::time::timeout(Duration::from_secs(20), listener.next()).await?.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        // Connections of the pool are broken, too, and replaced without an error.
        let mut listener = worker.listen_again_for_messages().await?;
        assert_eq!(read(&worker, LONG).await?.len(), 1, "the message survived the crash");
        accept_many(&api, 1).await?;
        assert_eq!(next(&mut listener).await?, Notification::MessageSent(Queue::Reservations));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn messages_are_recovered_only_by_a_worker_that_starts_alone() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        accept_many(&database.store(DatabaseRole::Api)?, 2).await?;
        let first = database.store(DatabaseRole::Worker)?;
        let (first_listener, _) = first.listen_for_messages().await?;
        assert_eq!(read(&first, LONG).await?.len(), 2);

        let second = database.store(DatabaseRole::Worker)?;
        let (second_listener, recovered) = second.listen_for_messages().await?;
        assert_eq!(recovered, None, "the first worker is handling the messages");
        assert!(read(&second, LONG).await?.is_empty());

        first_listener.close().await;
        second_listener.close().await;
        let third = database.store(DatabaseRole::Worker)?;
        let (_listener, recovered) = third.listen_for_messages().await?;
        assert_eq!(recovered, Some(2));
        let messages = read(&third, LONG).await?;
        assert_eq!(messages.len(), 2);
        assert!(messages.iter().all(|message| message.delivery.read_ct == 2), "crashed deliveries count");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn worker_that_listens_again_keeps_its_messages() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        let worker = database.store(DatabaseRole::Worker)?;
        let (listener, _) = worker.listen_for_messages().await?;
        let messages = read(&worker, LONG).await?;
        listener.close().await;
        let _listener = worker.listen_again_for_messages().await?;
        assert!(read(&worker, LONG).await?.is_empty(), "the worker handles the message");
        let deliveries = [messages[0].delivery];
        assert_eq!(worker.extend_visibility(&deliveries, LONG).await?, deliveries, "the delivery is current");
        // It counts as connected again.
        let (_other, recovered) = database.store(DatabaseRole::Worker)?.listen_for_messages().await?;
        assert_eq!(recovered, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn locks_of_a_listener_end_with_it() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        worker.ping().await?;
        let (listener, _) = worker.listen_for_messages().await?;
        drop(listener);
        let sql = &mut administrator(database).await?;
        wait::until("the end of the session", Duration::from_secs(10), async || {
            anyhow::ensure!(count(sql, "pg_locks WHERE locktype = 'advisory'").await? == 0, "the lock is held");
            Ok(())
        })
        .await?;
        Ok(worker.ping().await?)
    })
    .await
}

#[tokio::test]
async fn listener_notices_a_connection_without_answers() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let dbfault = Dbfault::start(database.url(DatabaseRole::Api), [])?;
        let store = Store::new(&Settings::from_url(dbfault.url(), "test")?);
        let mut listener = store.listen_for_key_changes().await?;
        // Quiet for longer than the interval of the checks, which are no statements.
        let statements = dbfault.statements().len();
        assert!(tokio::time::timeout(Duration::from_secs(3), listener.next()).await.is_err());
        assert_eq!(dbfault.statements().len(), statements);
        dbfault.stall();
        let lost = tokio::time::timeout(Duration::from_secs(5), listener.next()).await?;
        assert!(lost.unwrap_err().is_unavailable());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn workers_that_start_together_recover_messages_once() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        read(&database.store(DatabaseRole::Worker)?, LONG).await?;
        let workers: Vec<_> = (0..4).map(|_| database.store(DatabaseRole::Worker)).collect::<Result<_, _>>()?;
        let started = workers.iter().map(Store::listen_for_messages);
        let started = futures_util::future::try_join_all(started).await?;
        let recovered: u64 = started.iter().filter_map(|(_, recovered)| *recovered).sum();
        assert_eq!(recovered, 1);
        Ok(())
    })
    .await
}
