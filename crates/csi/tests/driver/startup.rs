//! Reasons for which the driver does not start.

use std::path::Path;
use std::process::Command;

use crate::harness::TestPool;

/// Returns the standard error of a driver that does not start.
fn start(pool: &TestPool, arguments: &[&Path]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_odc-csi"));
    command.args(["--node", "n1", "--endpoint"]).arg(pool.path("csi.sock")).args(arguments);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn pool_must_be_on_btrfs() {
    let pool = TestPool::new();
    // The kernel offers no btrfs below /proc on any machine.
    let message = start(&pool, &["--pool".as_ref(), "/proc".as_ref()]);
    let expected = "error: pool /proc is not on a btrfs file system\n\
                    hint: pass a directory on btrfs, or `--pool-file FILE --pool-size SIZE` to create a btrfs file system \
                    in a file\n";
    assert_eq!(message, expected);
    let message = start(&pool, &["--pool".as_ref(), &pool.path("missing")]);
    assert!(message.contains("does not exist\nhint: create the directory"), "{message}");
}

#[test]
fn file_without_file_system_is_not_formatted() {
    let pool = TestPool::new();
    std::fs::write(pool.image(), "important").unwrap();
    let arguments = ["--pool", "pool", "--pool-size", "1Gi", "--pool-file"].map(Path::new);
    let message = start(&pool, &[&arguments[..], &[&pool.image()]].concat());
    assert!(message.contains("contains no btrfs file system"), "{message}");
    assert_eq!(std::fs::read_to_string(pool.image()).unwrap(), "important");
}
