//! File transfer with scp, sftp and rsync.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::server::{Running, Server, ServerBuilder, random_bytes};

const NON_UTF8_NAME: &[u8] = b"odd \xff\xfe name";

fn create_tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/large"), random_bytes(5 << 20)).unwrap();
    fs::write(tree.join("a/empty"), "").unwrap();
    fs::write(tree.join(OsStr::from_bytes(NON_UTF8_NAME)), "odd").unwrap();
    fs::write(tree.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("run"), fs::Permissions::from_mode(0o750)).unwrap();
    tree
}

fn assert_same(one: &Path, other: &Path) {
    let diff = Command::new("diff").args(["-r", "--no-dereference"]).args([one, other]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

fn sftp(server: &Server, batch: &[u8]) -> Output {
    let mut command = server.client("sftp");
    command.args(["-q", "-b", "-", "dev@127.0.0.1"]);
    let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    client.0.stdin.take().unwrap().write_all(batch).unwrap();
    let (mut out, mut err) = (client.0.stdout.take().unwrap(), client.0.stderr.take().unwrap());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    std::io::Read::read_to_end(&mut out, &mut stdout).unwrap();
    std::io::Read::read_to_end(&mut err, &mut stderr).unwrap();
    let status = client.0.wait().unwrap();
    Output { status, stdout, stderr }
}

#[test]
fn scp_copies_a_tree_in_both_directions() {
    let server = Server::start();
    let tree = create_tree(server.dir.path());
    for (from, to) in [
        (tree.display().to_string(), "dev@127.0.0.1:there".to_owned()),
        ("dev@127.0.0.1:there".to_owned(), server.path("back").display().to_string()),
    ] {
        let output = server.client("scp").args(["-q", "-r", "-p", &from, &to]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_same(&tree, &server.path("home/there"));
    assert_same(&tree, &server.path("back"));
    assert_eq!(server.path("back/run").metadata().unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn legacy_scp_uses_the_program_of_the_image() {
    let server = Server::start();
    fs::write(server.path("f"), random_bytes(1 << 20)).unwrap();
    let from = server.path("f").display().to_string();
    let output = server.client("scp").args(["-O", "-q", &from, "dev@127.0.0.1:f"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_same(&server.path("f"), &server.path("home/f"));
}

#[test]
fn rsync_synchronizes_a_tree() {
    let server = Server::start();
    let tree = create_tree(server.dir.path());
    symlink("run", tree.join("link")).unwrap();
    fs::create_dir_all(server.path("home/there/old")).unwrap();
    let client = server.client("ssh");
    let args = client.get_args().map(|arg| format!("'{}'", arg.to_str().unwrap()));
    let shell = format!("ssh {}", args.collect::<Vec<_>>().join(" "));
    let from = format!("{}/", tree.display());
    let output = Command::new("rsync")
        .args(["-a", "--no-owner", "--no-group", "--delete", "-e", &shell, &from, "dev@127.0.0.1:there/"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_same(&tree, &server.path("home/there"));
}

#[test]
fn sftp_client_commands_are_supported() {
    let server = Server::start();
    let home = server.path("home");
    fs::write(server.path("local"), "local").unwrap();
    let local = server.path("local").display().to_string();
    let back = server.path("back").display().to_string();
    let batch = format!(
        "mkdir d\ncd d\nput {local} a\nrename a b\nsymlink b s\nln b hard\nchmod 600 b\ndf\nls -la\nget b {back}\n\
         put -f {local} synced\nrm hard\ncd ..\nmkdir e\nrmdir e\npwd\n"
    );
    let output = sftp(&server, batch.as_bytes());
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains(&format!("Remote working directory: {}", fs::canonicalize(&home).unwrap().display())),
        "{stdout}"
    );
    assert!(stdout.contains("lrwxrwxrwx"), "{stdout}");
    assert_eq!(fs::read(home.join("d/b")).unwrap(), b"local");
    assert_eq!(fs::read_link(home.join("d/s")).unwrap(), Path::new("b"));
    assert_eq!(fs::read(server.path("back")).unwrap(), b"local");
    assert!(!home.join("d/hard").exists() && !home.join("e").exists());
}

#[test]
fn non_utf8_names_are_supported() {
    let server = Server::start();
    fs::write(server.path("local"), "odd").unwrap();
    let mut batch = format!("put {} \"", server.path("local").display()).into_bytes();
    batch.extend_from_slice(NON_UTF8_NAME);
    batch.extend_from_slice(b"\"\nls\nget \"");
    batch.extend_from_slice(NON_UTF8_NAME);
    batch.extend_from_slice(format!("\" {}\nrm \"", server.path("back").display()).as_bytes());
    batch.extend_from_slice(NON_UTF8_NAME);
    batch.extend_from_slice(b"\"\n");
    let output = sftp(&server, &batch);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(server.path("back")).unwrap(), b"odd");
    assert_eq!(fs::read_dir(server.path("home")).unwrap().count(), 0);
}

#[test]
fn full_and_read_only_file_systems_are_reported() {
    let mounts = "mkdir $R/home/full $R/home/fixed
        mount -t tmpfs -o size=1m odc $R/home/full; mount -t tmpfs -o ro odc $R/home/fixed";
    let server = ServerBuilder::new().before(mounts).start();
    let mut other = server.ssh(&[]);
    let mut other = Running::start(other.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()));
    fs::write(server.path("large"), random_bytes(5 << 20)).unwrap();
    fs::write(server.path("small"), random_bytes(5 << 10)).unwrap();
    let [large, small] = ["large", "small"].map(|name| server.path(name).display().to_string());

    // The OpenSSH client prints only the status code, not the message.
    let output = sftp(&server, format!("put {large} full/large\n").as_bytes());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("write remote") && stderr.contains("Failure"), "{stderr}");
    let output = sftp(&server, format!("put {small} fixed/small\n").as_bytes());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("Permission denied"), "{stderr}");
    let output = server.client("scp").args(["-q", &large, "dev@127.0.0.1:full/again"]).output().unwrap();
    assert!(!output.status.success(), "{output:?}");

    // Other file systems and sessions are not affected.
    let batch = format!("put {large} elsewhere\nrm full/large\n-rm full/again\nput {small} full/small\n");
    let output = sftp(&server, batch.as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.stdout("cat $HOME/full/small | wc -c"), format!("{}\n", 5 << 10));
    assert_same(&server.path("large"), &server.path("home/elsewhere"));
    other.0.stdin.take().unwrap().write_all(b"still here").unwrap();
    let mut echoed = String::new();
    std::io::Read::read_to_string(&mut other.0.stdout.take().unwrap(), &mut echoed).unwrap();
    assert_eq!(echoed, "still here");
}

#[test]
fn failed_commands_do_not_end_the_session() {
    let server = Server::start();
    let output = sftp(&server, b"-get nothing\n-put /dev/null /proc/nothing\n-mkdir /proc/x\nmkdir fine\n");
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("not found"), "{stderr}");
    assert!(server.path("home/fine").is_dir());
}
