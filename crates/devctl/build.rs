//! Passes the commit that is being built to the compiler as `DEVCTL_COMMIT`.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    // A source tarball has no history; packagers set ODC_COMMIT instead.
    let commit = std::env::var("ODC_COMMIT").ok().or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo:rustc-env=DEVCTL_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo:rerun-if-env-changed=ODC_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    // Git appends to this file at every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
}
