//! Two drivers on one pool, as on nodes that share it.

use std::process::Command;

use crate::harness::{MIB, TestPool, create_request};

#[tokio::test]
async fn drivers_that_share_a_pool_create_a_volume_once() {
    let pool = TestPool::new();
    let (one, two) = (pool.start_as("n1").await, pool.start_as("n2").await);
    for round in 0..8 {
        let name = format!("v-{round}");
        let (mut first, mut second) = (one.controller(), two.controller());
        let request = || create_request(&name, 16 * MIB, None);
        let (first, second) = tokio::join!(first.create_volume(request()), second.create_volume(request()));
        assert_eq!(first.unwrap().into_inner(), second.unwrap().into_inner());
    }
    assert_eq!(one.list().await.len(), 8);
    assert_eq!(one.list().await, two.list().await);
    assert_eq!(pool.temporaries(), Vec::<std::path::PathBuf>::new());
    // A starting driver leaves the directories of running ones alone.
    one.kill();
    let one = pool.start_as("n1").await;
    two.create("w", 16 * MIB).await.unwrap();
    assert_eq!(one.list().await.len(), 9);
    // What one driver created, the other deletes.
    one.delete("w").await.unwrap();
    assert_eq!(two.list().await.len(), 8);
}

#[tokio::test]
async fn drivers_that_start_together_attach_the_pool_once() {
    let pool = TestPool::new();
    let (_one, _two) = tokio::join!(pool.start_as("n1"), pool.start_as("n2"));
    let attached = Command::new("losetup").arg("--associated").arg(pool.image()).output().unwrap();
    assert!(attached.status.success(), "{attached:?}");
    assert_eq!(String::from_utf8(attached.stdout).unwrap().lines().count(), 1);
}
