//! sshfs mounts of the home directory.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Server, ServerBuilder, random_bytes, wait_until};

/// Runs in its own namespaces, so that no mount remains. `$R` is the directory of the server, `$SSH` the client.
const FILE_OPERATIONS: &str = r#"
mkdir $R/mount
sshfs -o ssh_command="$SSH" dev@127.0.0.1: $R/mount
trap 'cd /; umount $R/mount' EXIT
cd $R/mount
cp -r $R/tree there && diff -r $R/tree there
mv there/deep moved && cmp $R/tree/deep/large moved/large
truncate -s 1000 moved/large && head -c 1000 $R/tree/deep/large | cmp - moved/large
printf end >>moved/large && tail -c 3 moved/large && echo
ln -s moved/large link && readlink link && cmp link moved/large
chmod 600 moved/large && touch -d @1000000000 moved/large && stat -c '%a %Y %s' moved/large
printf 1 >one && printf 2 >two && mv two one && cat one && echo
test "$(stat -f -c %b .)" -gt 0
rm -r there moved link one && ls -A
! cat nothing 2>/dev/null
"#;

/// Returns the `ssh_command` of sshfs.
fn ssh_command(server: &Server) -> String {
    assert!(Path::new("/dev/fuse").exists(), "sshfs needs /dev/fuse");
    let client = server.client("ssh");
    let args: Vec<&str> = client.get_args().map(|arg| arg.to_str().unwrap()).collect();
    format!("ssh {}", args.join(" "))
}

#[test]
fn sshfs_supports_file_operations() {
    let server = Server::start();
    fs::create_dir_all(server.path("tree/deep")).unwrap();
    fs::write(server.path("tree/deep/large"), random_bytes(3 << 20)).unwrap();
    fs::write(server.path("tree/Gr\u{fc}\u{df}e"), "hello").unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "/bin/sh", "-ec", FILE_OPERATIONS])
        .env("R", server.dir.path())
        .env("SSH", ssh_command(&server))
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout, "end\nmoved/large\n600 1000000000 1003\n2\n");
    assert_eq!(fs::read_dir(server.path("home")).unwrap().count(), 0);
}

/// Mounts the home from a server that does not respond. Without caching, every access blocks.
const HANGING_HOME: &str = r#"
sshfs -f -o attr_timeout=0,entry_timeout=0,dir_cache=no,ssh_command="$SSH" dev@127.0.0.1: $R/home &
until mountpoint -q $R/home; do sleep 0.05; done
kill -STOP $!
"#;

#[test]
fn hanging_home_blocks_neither_sessions_nor_the_stop() {
    let storage = Server::start();
    let builder = ServerBuilder::new().env("SSH", ssh_command(&storage)).before(HANGING_HOME);
    fs::write(builder.path("setup.sh"), "exit 0").unwrap();
    let setup = format!("--setup={}", builder.path("setup.sh").display());
    let server = builder.flag(setup).flag("--grace=60").start();
    let output = server.run("true");
    assert!(!output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("is not responding"), "{stderr}");
    assert!(server.state().setup.unwrap().ended.is_none(), "setup is blocked on the home");
    let started = Instant::now();
    server.terminate();
    wait_until("it exits", || server.has_exited().then_some(()));
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
}
