//! The home as a directory of somebody's own machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Plan, Server, eventually, noise};

/// In namespaces of its own, so that no mount is left. `$R` is the place, `$SSH` the client.
const USE: &str = r#"
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

/// What mounts a server's home somewhere else.
fn ssh(server: &Server) -> String {
    assert!(Path::new("/dev/fuse").exists(), "sshfs needs /dev/fuse, which this machine does not give us");
    let client = server.client("ssh");
    let words: Vec<&str> = client.get_args().map(|word| word.to_str().unwrap()).collect();
    format!("ssh {}", words.join(" "))
}

#[test]
fn sshfs_shows_the_home_as_a_directory() {
    let server = Server::start();
    fs::create_dir_all(server.path("tree/deep")).unwrap();
    fs::write(server.path("tree/deep/large"), noise(3 << 20)).unwrap();
    fs::write(server.path("tree/Gr\u{fc}\u{df}e"), "hello").unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "/bin/sh", "-ec", USE])
        .env("R", server.place.path())
        .env("SSH", ssh(&server))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "end\nmoved/large\n600 1000000000 1003\n2\n");
    assert_eq!(fs::read_dir(server.path("home")).unwrap().count(), 0);
}

/// The home is on a network whose other end stands still. Nothing of it is remembered, so that every look waits.
const HANGS: &str = r#"
sshfs -f -o attr_timeout=0,entry_timeout=0,dir_cache=no,ssh_command="$SSH" dev@127.0.0.1: $R/home &
until mountpoint -q $R/home; do sleep 0.05; done
kill -STOP $!
"#;

#[test]
fn a_home_that_hangs_holds_up_neither_people_nor_the_end() {
    let storage = Server::start();
    let plan = Plan::new().env("SSH", ssh(&storage)).before(HANGS);
    fs::write(plan.path("setup.sh"), "exit 0").unwrap();
    let setup = format!("--setup={}", plan.path("setup.sh").display());
    let server = plan.flag(setup).flag("--grace=20").start();
    let told = server.run("true");
    assert!(!told.status.success());
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("does not answer"), "{told}");
    assert!(server.state().setup.unwrap().ended.is_none(), "it waits for the home");
    let begun = Instant::now();
    server.terminate();
    eventually("it ends", || server.has_ended().then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
