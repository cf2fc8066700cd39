//! The public CSI sanity suite, from the Go module in `local/csi`.

use std::process::Command;

use crate::harness::TestPool;

/// Path of the executable `csi-sanity`; `./dev test` builds it and sets this variable.
const EXECUTABLE: &str = "ODC_CSI_SANITY";
/// Specs of the offered capabilities. A lost capability would be skipped silently.
const MIN_PASSED_SPECS: u32 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn sanity_suite_passes() {
    let executable = std::env::var_os(EXECUTABLE);
    let executable = executable.unwrap_or_else(|| panic!("{EXECUTABLE} is not set; run `./dev test csi`"));
    // The suite creates volumes of 10 GiB. The file is sparse.
    let pool = TestPool::with_sizes("64Gi", "64Gi");
    let driver = pool.start().await;
    let mut command = Command::new(executable);
    command
        .arg(format!("--csi.endpoint=unix:{}", driver.endpoint.display()))
        .arg(format!("--csi.mountdir={}", pool.path("mount").display()))
        .arg(format!("--csi.stagingdir={}", pool.path("staging").display()))
        .args(["--ginkgo.no-color", "--ginkgo.fail-on-empty"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(passed_specs(&text) >= MIN_PASSED_SPECS, "{text}");
    assert_eq!(driver.list().await, Vec::<String>::new(), "the suite deletes its volumes");
}

/// Reads the number before ` Passed` in the summary.
fn passed_specs(text: &str) -> u32 {
    let (before, _) = text.split_once(" Passed").unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}
