//! `odc-agent prepare` with the real executable, and tools of an image with the prepared files.

#![expect(clippy::unwrap_used, reason = "test helpers panic on failure")]

use std::path::Path;
use std::process::Command;

const AGENT: &str = env!("CARGO_BIN_EXE_odc-agent");

fn prepare(to: &Path, flags: &[&str]) {
    let output = Command::new(AGENT).args(["prepare", "--to"]).arg(to).args(flags).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Runs a command as user and group 54321, with the prepared files mounted.
fn run_as_user(files: &Path, line: &str) -> String {
    let user = "unshare --user --map-user=54321 --map-group=54321";
    let mounts = "mount --bind $FILES/passwd /etc/passwd; mount --bind $FILES/group /etc/group";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "/bin/sh", "-ec"])
        .arg(format!("{mounts}; exec {user} /bin/sh -c '{line}'"))
        .env("FILES", files)
        .env_remove("HOME")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn tools_of_the_image_know_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--uid=54321", "--gid=54321", "--full-name=Ada Lovelace", "--home=/srv/ada", "--name=ada"];
    prepare(dir.path(), &flags);
    for (line, expect) in [
        ("id -un; id -gn", "ada\nada"),
        ("whoami", "ada"),
        ("echo ~ada", "/srv/ada"),
        ("getent passwd root | cut -d: -f3", "0"),
        ("EMAIL=ada@example.org git var GIT_AUTHOR_IDENT", "Ada Lovelace <ada@example.org>"),
        ("ssh -G example.org | grep -m1 ^user\\ ", "user ada"),
        ("ssh -G example.org | grep -m1 ^userknownhostsfile", "userknownhostsfile /srv/ada/.ssh/known_hosts"),
    ] {
        // git and ssh may not be installed.
        let tool = line.split_whitespace().find(|word| !word.contains('=')).unwrap();
        if !Command::new("/bin/sh").args(["-c", &format!("command -v {tool} >/dev/null")]).status().unwrap().success() {
            continue;
        }
        let output = run_as_user(dir.path(), line);
        assert!(output.starts_with(expect), "{line}: {output}");
    }
}

#[test]
fn defaults_are_the_current_user_and_group() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path(), &[]);
    let uid = rustix::process::getuid().as_raw().to_string();
    let gid = rustix::process::getgid().as_raw().to_string();
    let has_id = |name: &str, value: &str| {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.lines().any(|line| line.split(':').nth(2) == Some(value)), "{text}");
    };
    has_id("passwd", &uid);
    has_id("group", &gid);
}
