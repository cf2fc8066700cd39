//! Volumes and snapshots: content, limits, mounts, repeated calls.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use odc_csi::proto::csi::volume_capability::AccessType;
use odc_csi::proto::csi::volume_capability::access_mode::Mode;
use odc_csi::proto::csi::{
    ControllerGetVolumeRequest, DeleteSnapshotRequest, ListSnapshotsRequest, ListVolumesRequest,
};
use tonic::Code;

use crate::harness::{Driver, MIB, TestPool, capability, create_request, from_snapshot, from_volume, run};

/// Writes data and waits until it is on disk.
fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    let block = vec![7; usize::try_from(MIB).unwrap()];
    for _ in 0..bytes / MIB {
        file.write_all(&block)?;
    }
    file.sync_all()
}

async fn publish(driver: &Driver, pool: &TestPool, volume: &str) -> std::path::PathBuf {
    let target = pool.path(&format!("target-{volume}"));
    driver.publish(volume, &target).await.unwrap();
    target
}

#[tokio::test]
async fn snapshot_keeps_the_content_of_its_time() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("home", 64 * MIB).await.unwrap();
    let home = publish(&driver, &pool, "home").await;
    fs::write(home.join("file"), "first").unwrap();
    let snapshot = driver.snapshot("point", "home").await.unwrap();
    assert!(snapshot.ready_to_use);
    assert_eq!((snapshot.size_bytes.cast_unsigned(), snapshot.source_volume_id.as_str()), (64 * MIB, "home"));
    fs::write(home.join("file"), "second").unwrap();

    let restored = driver.create_from("restored", 0, from_snapshot("point")).await.unwrap();
    assert_eq!(restored.capacity_bytes.cast_unsigned(), 64 * MIB);
    driver.create_from("clone", 128 * MIB, from_volume("home")).await.unwrap();
    let (restored, clone) = (publish(&driver, &pool, "restored").await, publish(&driver, &pool, "clone").await);
    assert_eq!(fs::read_to_string(restored.join("file")).unwrap(), "first");
    assert_eq!(fs::read_to_string(clone.join("file")).unwrap(), "second");
    // The copies are independent of the source, and of the snapshot when that is deleted.
    fs::write(clone.join("file"), "third").unwrap();
    let request = DeleteSnapshotRequest { snapshot_id: "point".into() };
    driver.controller().delete_snapshot(request).await.unwrap();
    assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "second");
    assert_eq!(fs::read_to_string(restored.join("file")).unwrap(), "first");
}

#[tokio::test]
async fn limit_is_enforced_and_raised_by_an_expansion() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("home", 32 * MIB).await.unwrap();
    let home = publish(&driver, &pool, "home").await;
    let error = write(&home.join("large"), 64 * MIB).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);

    run("btrfs", &["filesystem".as_ref(), "sync".as_ref(), &pool.root()]);
    let usage = driver.stats("home", &home).await.unwrap();
    assert_eq!(usage.total.cast_unsigned(), 32 * MIB);
    assert!(usage.used.cast_unsigned() > 16 * MIB && usage.used <= usage.total, "{usage:?}");
    assert_eq!(usage.available, usage.total - usage.used);

    // A full volume can be emptied.
    fs::remove_file(home.join("large")).unwrap();
    assert_eq!(driver.expand("home", &home, 96 * MIB).await.unwrap(), 96 * MIB);
    write(&home.join("large"), 64 * MIB).unwrap();
    // A smaller size changes nothing, and the first request is still satisfied.
    assert_eq!(driver.expand("home", &home, 16 * MIB).await.unwrap(), 96 * MIB);
    assert_eq!(driver.create("home", 32 * MIB).await.unwrap().capacity_bytes.cast_unsigned(), 96 * MIB);
    let request = ControllerGetVolumeRequest { volume_id: "home".into() };
    let volume = driver.controller().controller_get_volume(request).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(volume.capacity_bytes.cast_unsigned(), 96 * MIB);
    // Also for a copy, whose qgroup would inherit the limit of the source.
    driver.create_from("clone", 160 * MIB, from_volume("home")).await.unwrap();
    let clone = publish(&driver, &pool, "clone").await;
    write(&clone.join("more"), 64 * MIB).unwrap();
    assert_eq!(write(&clone.join("most"), 64 * MIB).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
}

#[tokio::test]
async fn repeated_calls_succeed_and_conflicting_ones_fail() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    let first = driver.create("a", 64 * MIB).await.unwrap();
    assert_eq!(driver.create("a", 64 * MIB).await.unwrap(), first);
    assert_eq!(driver.create("a", 65 * MIB).await.unwrap_err().code(), Code::AlreadyExists);
    driver.create("b", 64 * MIB).await.unwrap();
    let clone = driver.create_from("a", 64 * MIB, from_volume("b")).await;
    assert_eq!(clone.unwrap_err().code(), Code::AlreadyExists);
    let snapshot = driver.snapshot("s", "a").await.unwrap();
    assert_eq!(driver.snapshot("s", "a").await.unwrap(), snapshot);
    assert_eq!(driver.snapshot("s", "b").await.unwrap_err().code(), Code::AlreadyExists);
    for _ in 0..2 {
        driver.delete("a").await.unwrap();
    }
    // A snapshot survives its volume.
    let restored = driver.create_from("a", 64 * MIB, from_snapshot("s")).await.unwrap();
    assert_eq!(restored.volume_id, "a");
    assert_eq!(driver.list().await, ["a", "b"]);
    assert_eq!(pool.temporaries(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn hostile_names_and_ids_are_rejected() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    for name in ["", "..", "../../etc/x", "a/b", ".hidden", "a\nb"] {
        assert_eq!(driver.create(name, 64 * MIB).await.unwrap_err().code(), Code::InvalidArgument, "{name:?}");
    }
    driver.delete("../volumes").await.unwrap();
    assert!(pool.root().join("volumes").is_dir());
    assert_eq!(driver.snapshot("s", "../volumes/a").await.unwrap_err().code(), Code::NotFound);
    let clone = driver.create_from("a", 64 * MIB, from_snapshot("../volumes/a")).await;
    assert_eq!(clone.unwrap_err().code(), Code::NotFound);
    let mut request = create_request("a", 64 * MIB, None);
    request.parameters.insert("compression".into(), "zstd".into());
    assert_eq!(driver.controller().create_volume(request).await.unwrap_err().code(), Code::InvalidArgument);
    let huge = driver.create("a", u64::MAX >> 1).await;
    assert_eq!(huge.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(driver.list().await, Vec::<String>::new());
}

#[tokio::test]
async fn mounts_are_repeatable_and_honour_the_access_mode() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("a", 64 * MIB).await.unwrap();
    let (one, two) = (pool.path("one"), pool.path("two"));
    for _ in 0..2 {
        driver.publish("a", &one).await.unwrap();
    }
    fs::write(one.join("file"), "x").unwrap();
    driver.publish_with("a", &two, capability(Mode::SingleNodeWriter), true).await.unwrap();
    let error = fs::write(two.join("file"), "y").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let single = driver.publish_with("a", &pool.path("three"), capability(Mode::SingleNodeSingleWriter), false).await;
    assert_eq!(single.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(driver.publish("a", &two).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(driver.publish("missing", &two).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(driver.delete("a").await.unwrap_err().code(), Code::FailedPrecondition);
    for _ in 0..2 {
        driver.unpublish("a", &one).await.unwrap();
        driver.unpublish("a", &two).await.unwrap();
    }
    assert!(!one.exists() && !two.exists());
    assert_eq!(driver.stats("a", &one).await.unwrap_err().code(), Code::NotFound);
    driver.delete("a").await.unwrap();
}

#[tokio::test]
async fn group_owns_the_root_directory_only() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("a", 64 * MIB).await.unwrap();
    let target = publish(&driver, &pool, "a").await;
    fs::write(target.join("file"), "x").unwrap();
    driver.unpublish("a", &target).await.unwrap();
    let mut capability = capability(Mode::SingleNodeWriter);
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        mount.volume_mount_group = "4321".into();
        mount.mount_flags = vec!["nosuid".into()];
    }
    driver.publish_with("a", &target, capability, false).await.unwrap();
    let root = fs::metadata(&target).unwrap();
    assert_eq!((root.gid(), root.mode() & 0o7777), (4321, 0o2775));
    assert_eq!(fs::metadata(target.join("file")).unwrap().gid(), 0);
    fs::write(target.join("new"), "x").unwrap();
    assert_eq!(fs::metadata(target.join("new")).unwrap().gid(), 4321);
}

#[tokio::test]
async fn lists_have_pages() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    for name in ["c", "a", "b"] {
        driver.create(name, 16 * MIB).await.unwrap();
        driver.snapshot(&format!("s-{name}"), name).await.unwrap();
    }
    let request = ListVolumesRequest { max_entries: 2, ..Default::default() };
    let page = driver.controller().list_volumes(request).await.unwrap().into_inner();
    assert_eq!(page.entries.len(), 2);
    driver.delete("b").await.unwrap();
    let request = ListVolumesRequest { max_entries: 2, starting_token: page.next_token };
    let page = driver.controller().list_volumes(request).await.unwrap().into_inner();
    let ids: Vec<_> = page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect();
    assert_eq!((ids, page.next_token.as_str()), (vec!["c".to_owned()], ""));
    let request = ListSnapshotsRequest { source_volume_id: "b".into(), ..Default::default() };
    let page = driver.controller().list_snapshots(request).await.unwrap().into_inner();
    let ids: Vec<_> = page.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect();
    assert_eq!(ids, ["s-b"]);
}

#[tokio::test]
async fn fifty_volumes_are_created_at_once() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..50 {
        let mut controller = driver.controller();
        let request = create_request(&format!("v-{number}"), 16 * MIB, None);
        calls.spawn(async move { controller.create_volume(request).await });
    }
    while let Some(created) = calls.join_next().await {
        created.unwrap().unwrap();
    }
    assert_eq!(driver.list().await.len(), 50);
}

#[tokio::test]
async fn concurrent_calls_for_one_volume_create_it_once() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut controller = driver.controller();
        calls.spawn(async move { controller.create_volume(create_request("a", 16 * MIB, None)).await });
    }
    let mut created = 0;
    while let Some(result) = calls.join_next().await {
        match result.unwrap() {
            Ok(_) => created += 1,
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status:?}"),
        }
    }
    assert!(created > 0);
    assert_eq!(driver.list().await, ["a"]);
    assert_eq!(pool.temporaries(), Vec::<std::path::PathBuf>::new());
}
