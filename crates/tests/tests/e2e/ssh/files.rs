//! Concurrent sessions and file transfer.

use std::process::Stdio;

use odc_tests::wait;
use tokio::process::Command;

use super::{SshEndpoint, SshUser, command_line, run};
use crate::tenant::TIMEOUT;

/// Opens many connections at the same time.
pub(super) async fn check_concurrent_sessions(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    const SESSIONS: usize = 50;
    ada.run(endpoint, "mkdir in").await?;
    // Each session has a timeout, so that none is left if the test is killed.
    let line =
        |number| format!("touch in/{number}; timeout 100 sh -c 'until test -e go; do sleep 0.2; done'; echo {number}");
    let start =
        |number| anyhow::Ok(ada.ssh(endpoint, &[&line(number)])?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let sessions = (0..SESSIONS).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    wait::until("all sessions", TIMEOUT, async || {
        let count: usize = ada.run(endpoint, "ls in | wc -l").await?.trim().parse()?;
        anyhow::ensure!(count == SESSIONS, "{count} sessions are open");
        Ok(())
    })
    .await?;
    ada.run(endpoint, "touch go").await?;
    for (number, session) in sessions.into_iter().enumerate() {
        let output = session.wait_with_output().await?;
        assert_eq!((output.status.code(), String::from_utf8(output.stdout)?), (Some(0), format!("{number}\n")));
    }
    Ok(())
}

/// Checks scp, sftp, rsync, and a large file in both directions.
pub(super) async fn check_file_transfer(ada: &SshUser, endpoint: &SshEndpoint) -> anyhow::Result<()> {
    let tree = ada.path("tree");
    std::fs::create_dir_all(tree.join("deep/er"))?;
    std::fs::write(tree.join("deep/er/file"), "content")?;
    let options = ada.options(endpoint)?;
    let remote = format!("tenant@{}:", endpoint.address);
    run(Command::new("scp").args(&options).arg("-r").arg(&tree).arg(format!("{remote}copied"))).await?;
    assert_eq!(ada.run(endpoint, "cat copied/deep/er/file").await?, "content");

    let batch = ada.path("batch");
    std::fs::write(&batch, "mkdir new\ncd new\nput -r tree\nrename tree/deep/er/file moved\nls\nget moved\n")?;
    let mut sftp = Command::new("sftp");
    sftp.args(&options)
        .arg("-b")
        .arg(&batch)
        .arg(format!("tenant@{}", endpoint.address))
        .current_dir(ada.directory.path());
    run(&mut sftp).await?;
    assert_eq!(std::fs::read_to_string(ada.path("moved"))?, "content");

    ada.run(endpoint, "mkdir -p synced && touch synced/surplus").await?;
    let shell = format!("ssh {}", options.join(" "));
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "--delete", "-e", &shell]).arg(format!("{}/", tree.display())).arg(format!("{remote}synced"));
    run(&mut rsync).await?;
    assert_eq!(ada.run(endpoint, "cd synced && find . -type f").await?, "./deep/er/file\n");

    let size = if cfg!(feature = "full") { 2_u64 << 30 } else { 64 << 20 };
    let up = format!(
        "head -c {size} /dev/urandom | tee >(sha256sum >&2) | {} 'tee big | sha256sum >&2; sha256sum < big'",
        command_line(ada, endpoint)?
    );
    let output = Command::new("bash").args(["-c", &up]).kill_on_drop(true).output().await?;
    let sums = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let mut sums: Vec<&str> = sums.lines().collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 1, "{sums:?}");
    let down = format!("{} 'cat big' | sha256sum", command_line(ada, endpoint)?);
    assert_eq!(run(Command::new("bash").args(["-c", &down])).await?.trim(), sums[0].trim());
    ada.run(endpoint, "rm big").await.map(drop)
}
