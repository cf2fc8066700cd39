//! Startup files in the home directory, in an image of its own.

use std::fs;

use odc_control::Outcome;

use crate::harness::{ServerBuilder, outcome};
use crate::image::minimal;

const HOME: &str = "mount -t proc proc $R/proc; export HOME=/home/dev";

/// The home of the image is separate from that of the harness, which has files.
fn server(mounts: &str, action: &str) -> ServerBuilder {
    let builder = minimal(&format!("{HOME}\n{mounts}"));
    for directory in ["etc/skel", "home/dev", "dev"] {
        fs::create_dir_all(builder.home().join(directory)).unwrap();
    }
    fs::write(builder.home().join("etc/skel/.bashrc"), "image").unwrap();
    fs::write(builder.home().join("dev/null"), "").unwrap();
    builder.flag("--state-dir=/state").flag("--server-uid=uid-1").flag(format!("--startup-files={action}"))
}

#[test]
fn new_home_is_filled_before_the_server_is_ready() {
    let mut server = server("", "create").start();
    let state = server.wait_running();
    assert_eq!(outcome(state.startup_files), Outcome::Code(0));
    assert_eq!(server.text("home/dev/.bashrc"), "image");
    assert_eq!(server.stop(), 0);
}

#[test]
fn old_home_is_reset_on_request() {
    let builder = server("", "recreate");
    fs::write(builder.home().join("home/dev/.bashrc"), "mine").unwrap();
    let mut server = builder.start();
    assert_eq!(outcome(server.wait_running().startup_files), Outcome::Code(0));
    assert_eq!(server.text("home/dev/.bashrc"), "image");
    server.wait_for_text("stderr", "moved 1 startup files to .startup-files-backup-");
    assert_eq!(server.stop(), 0);
}

#[test]
fn read_only_home_is_left_alone() {
    let read_only = "mount --bind $R/home $R/home; mount -o remount,bind,ro $R/home";
    let mut server = server(read_only, "recreate").start();
    assert_eq!(outcome(server.wait_running().startup_files), Outcome::Code(0));
    server.wait_for_text("stderr", "/home/dev is not writable; its startup files are not changed");
    assert!(!server.path("home/dev/.bashrc").exists());
    assert_eq!(server.stop(), 0);
}

#[test]
fn server_without_home_starts() {
    let mut server = server("rmdir $R/home/dev", "create").start();
    assert_eq!(outcome(server.wait_running().startup_files), Outcome::Code(1));
    server.wait_for_text("stderr", "cannot create the startup files in /home/dev");
    assert_eq!(server.stop(), 0);
}
