//! Capacity, a full pool, and a pool file that grows.

use std::fs;
use std::io::Write as _;

use odc_csi::proto::csi::{GetCapacityRequest, Topology};
use tonic::Code;

use crate::harness::{Driver, MIB, TestPool, from_volume};

async fn capacity(driver: &Driver, pool_id: &str) -> u64 {
    let segments = [("csi.odc.dev/pool".to_owned(), pool_id.to_owned())].into();
    let request = GetCapacityRequest { accessible_topology: Some(Topology { segments }), ..Default::default() };
    driver.controller().get_capacity(request).await.unwrap().into_inner().available_capacity.cast_unsigned()
}

#[tokio::test]
async fn full_pool_rejects_volumes_and_snapshots() {
    let pool = TestPool::with_sizes("512Mi", "512Mi");
    let driver = pool.start().await;
    let free = capacity(&driver, "test").await;
    assert!((256 * MIB..512 * MIB).contains(&free), "{free}");
    assert_eq!(capacity(&driver, "other").await, 0);

    let error = driver.create("large", 10 << 30).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().starts_with("pool is full: requested 10Gi, available "), "{}", error.message());

    driver.create("a", 300 * MIB).await.unwrap();
    let mut file = fs::File::create(pool.root().join("ballast")).unwrap();
    let block = vec![7; usize::try_from(MIB).unwrap()];
    while capacity(&driver, "test").await >= 64 * MIB {
        for _ in 0..16 {
            file.write_all(&block).unwrap();
        }
        file.sync_all().unwrap();
    }
    assert_eq!(driver.snapshot("s", "a").await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(driver.create("b", 16 * MIB).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(driver.create_from("c", 0, from_volume("a")).await.unwrap_err().code(), Code::ResourceExhausted);
    // A full pool can still be emptied, and serves what exists.
    driver.create("a", 300 * MIB).await.unwrap();
    driver.delete("a").await.unwrap();
    assert_eq!(driver.list().await, Vec::<String>::new());
}

#[tokio::test]
async fn pool_file_grows_up_to_its_maximum() {
    let pool = TestPool::with_sizes("512Mi", "2Gi");
    let driver = pool.start().await;
    assert_eq!(fs::metadata(pool.image()).unwrap().len(), 512 * MIB);
    assert!(capacity(&driver, "test").await > 1536 * MIB);
    driver.create("a", 1024 * MIB).await.unwrap();
    let grown = fs::metadata(pool.image()).unwrap().len();
    assert!((1280 * MIB..=2048 * MIB).contains(&grown), "{grown}");
    assert_eq!(driver.create("b", 4096 * MIB).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(fs::metadata(pool.image()).unwrap().len(), 2048 * MIB);
    driver.kill();
    // A restart does not shrink it.
    let driver = pool.start().await;
    assert_eq!(fs::metadata(pool.image()).unwrap().len(), 2048 * MIB);
    assert_eq!(driver.list().await, ["a"]);
}
