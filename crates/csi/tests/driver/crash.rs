//! Drivers that are killed: nothing half-done is visible, and everything that was confirmed remains.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::harness::{MIB, TestPool, from_volume, run, wait_until};

const NONE: Vec<PathBuf> = Vec::new();

/// Creates an entry as a driver that was killed after `steps` steps left it.
fn leave_entry(pool: &TestPool, name: &str, steps: usize) {
    let entry = pool.root().join("tmp/killed").join(name);
    let data = entry.join("data");
    let step = |number: usize, work: &dyn Fn()| {
        if number <= steps {
            work();
        }
    };
    step(1, &|| fs::create_dir_all(&entry).unwrap());
    step(2, &|| run("btrfs", &["subvolume".as_ref(), "create".as_ref(), &data]));
    step(3, &|| run("btrfs", &["qgroup".as_ref(), "limit".as_ref(), "64M".as_ref(), &data]));
    let attribute = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&entry, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    step(4, &|| attribute("trusted.odc.csi.size", b"67108864"));
    step(5, &|| attribute("trusted.odc.csi.source", b"volume/a"));
}

#[tokio::test]
async fn leftovers_of_every_step_are_removed_at_start() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("a", 64 * MIB).await.unwrap();
    fs::write(pool.data("a").join("file"), "x").unwrap();
    driver.kill();
    for steps in 1..=5 {
        leave_entry(&pool, &format!("new-{steps}"), steps);
        leave_entry(&pool, &format!("trash-{steps}"), steps);
    }
    let driver = pool.start().await;
    assert_eq!(pool.temporaries(), NONE);
    assert_eq!(fs::read_dir(pool.root().join("tmp")).unwrap().count(), 1, "the directory of this process");
    assert_eq!(driver.list().await, ["a"]);
    assert_eq!(fs::read_to_string(pool.data("a").join("file")).unwrap(), "x");
}

#[tokio::test]
async fn driver_killed_at_any_time_leaves_whole_volumes() {
    let pool = TestPool::new();
    let name = |round: u32, number: u32| format!("v-{round}-{number}");
    for round in 0..6 {
        let driver = pool.start().await;
        assert_eq!(pool.temporaries(), NONE);
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (mut controller, name) = (driver.controller(), name(round, number));
            calls.spawn(async move {
                let request = crate::harness::create_request(&name, 16 * MIB, None);
                controller.create_volume(request).await.ok().map(|_| name)
            });
        }
        // Each round kills the driver after another number of responses.
        let mut confirmed: Vec<String> = Vec::new();
        while confirmed.len() < round as usize {
            confirmed.extend(calls.join_next().await.unwrap().unwrap());
        }
        driver.kill();
        while let Some(created) = calls.join_next().await {
            confirmed.extend(created.unwrap());
        }
        let driver = pool.start().await;
        let volumes = driver.list().await;
        assert!(confirmed.iter().all(|name| volumes.contains(name)), "{confirmed:?} in {volumes:?}");
        for number in 0..8 {
            let (name, target) = (name(round, number), pool.path("target"));
            // Completes what was not created, and finds nothing half-done.
            driver.create(&name, 16 * MIB).await.unwrap();
            driver.publish(&name, &target).await.unwrap();
            let error = fs::write(target.join("large"), vec![1; 32 << 20]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded, "{name}");
            driver.unpublish(&name, &target).await.unwrap();
            driver.delete(&name).await.unwrap();
        }
        driver.kill();
    }
}

#[tokio::test]
async fn restart_keeps_volumes_snapshots_and_mounts() {
    let pool = TestPool::new();
    let target = pool.path("target");
    let driver = pool.start().await;
    let volume = driver.create("a", 64 * MIB).await.unwrap();
    driver.publish("a", &target).await.unwrap();
    fs::write(target.join("file"), "x").unwrap();
    let snapshot = driver.snapshot("s", "a").await.unwrap();
    let clone = driver.create_from("b", 0, from_volume("a")).await.unwrap();
    driver.kill();
    fs::write(target.join("later"), "mounts work without the driver").unwrap();

    let driver = pool.start().await;
    assert_eq!(driver.list().await, ["a", "b"]);
    assert_eq!(driver.create("a", 64 * MIB).await.unwrap(), volume);
    assert_eq!(driver.create_from("b", 0, from_volume("a")).await.unwrap(), clone);
    assert_eq!(driver.snapshot("s", "a").await.unwrap(), snapshot);
    driver.publish("a", &target).await.unwrap();
    assert_eq!(driver.stats("a", &target).await.unwrap().total.cast_unsigned(), 64 * MIB);
    driver.unpublish("a", &target).await.unwrap();
    assert!(!target.exists());
}

/// Limits are stored with the volumes, so they can be set again.
#[tokio::test]
async fn disabled_quotas_are_enabled_at_start() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("a", 16 * MIB).await.unwrap();
    driver.kill();
    run("btrfs", &["quota".as_ref(), "disable".as_ref(), &pool.root()]);
    let _driver = pool.start().await;
    let error = fs::write(pool.data("a").join("large"), vec![1; 32 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
}

/// Users can create subvolumes without privileges, with any name.
#[tokio::test]
async fn nested_subvolumes_are_limited_and_deleted_with_their_volume() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("a", 64 * MIB).await.unwrap();
    driver.create("b", 64 * MIB).await.unwrap();
    fs::write(pool.data("b").join("file"), "x").unwrap();
    // Imitates entries of `btrfs subvolume list`: with the id of another volume, and one that does not exist.
    let hostile = format!(
        "x\nID {} gen 1 top level 256 path y\nID 9999 gen 1 top level 256 path z",
        subvolume_id(&pool.data("b"))
    );
    let nested = pool.data("a").join(std::ffi::OsStr::from_bytes(hostile.as_bytes()));
    let inner = nested.join("inner");
    for path in [&nested, &inner] {
        run("btrfs", &["subvolume".as_ref(), "create".as_ref(), path]);
    }
    driver.kill();
    // Maintenance runs at start, then every minute.
    let driver = pool.start().await;
    let limited = |path: &Path| fs::write(path.join("large"), vec![1; 1 << 20]).is_err().then_some(());
    wait_until("the limit of a nested subvolume", || limited(&nested)).await;
    wait_until("the limit of an inner subvolume", || limited(&inner)).await;
    fs::write(pool.data("b").join("large"), vec![1; 1 << 20]).unwrap();

    driver.delete("a").await.unwrap();
    assert_eq!(pool.temporaries(), NONE);
    assert_eq!(driver.list().await, ["b"]);
    assert_eq!(fs::read_to_string(pool.data("b").join("file")).unwrap(), "x");
}

#[tokio::test]
async fn inconsistent_qgroups_are_rescanned_at_start() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    driver.create("a", 64 * MIB).await.unwrap();
    fs::write(pool.data("a").join("file"), vec![1; 1 << 20]).unwrap();
    driver.snapshot("s", "a").await.unwrap();
    driver.kill();
    let root = pool.root();
    let is_inconsistent = || {
        let output = std::process::Command::new("btrfs").args(["qgroup", "show", "-f"]).arg(&root).output().unwrap();
        String::from_utf8(output.stderr).unwrap().contains("inconsistent")
    };
    let qgroup = |arguments: &[&str]| {
        let arguments = [&["qgroup"], arguments].concat();
        run("btrfs", &arguments.iter().map(Path::new).chain([root.as_path()]).collect::<Vec<_>>());
    };
    // Shared data cannot be accounted to a new group without a rescan.
    qgroup(&["create", "1/1"]);
    qgroup(&["assign", "--no-rescan", &format!("0/{}", subvolume_id(&pool.data("a"))), "1/1"]);
    assert!(is_inconsistent());
    let _driver = pool.start().await;
    wait_until("the end of the rescan", || (!is_inconsistent()).then_some(())).await;
}

fn subvolume_id(path: &Path) -> String {
    let output = std::process::Command::new("btrfs").args(["inspect-internal", "rootid"]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
