//! Many at a time, and much.

use std::process::Stdio;

use odc_tests::wait;
use tokio::process::Command;

use super::{Door, Person, command_line, run};
use crate::demo::LIMIT;

/// Sessions of their own, all there at the same time.
pub(super) async fn many(ada: &Person, door: &Door) -> anyhow::Result<()> {
    const SESSIONS: usize = 50;
    ada.say(door, "mkdir in").await?;
    // Each ends by itself, so that none is left if the test is not.
    let line =
        |number| format!("touch in/{number}; timeout 100 sh -c 'until test -e go; do sleep 0.2; done'; echo {number}");
    let start =
        |number| anyhow::Ok(ada.ssh(door, &[&line(number)])?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let sessions = (0..SESSIONS).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    wait::until("all are in", LIMIT, async || {
        let count: usize = ada.say(door, "ls in | wc -l").await?.trim().parse()?;
        anyhow::ensure!(count == SESSIONS, "{count} are in");
        Ok(())
    })
    .await?;
    ada.say(door, "touch go").await?;
    for (number, session) in sessions.into_iter().enumerate() {
        let output = session.wait_with_output().await?;
        assert_eq!((output.status.code(), String::from_utf8(output.stdout)?), (Some(0), format!("{number}\n")));
    }
    Ok(())
}

/// scp, sftp, rsync, and a large file both ways.
pub(super) async fn files(ada: &Person, door: &Door) -> anyhow::Result<()> {
    let tree = ada.path("tree");
    std::fs::create_dir_all(tree.join("deep/er"))?;
    std::fs::write(tree.join("deep/er/file"), "content")?;
    let options = ada.options(door)?;
    let there = format!("demo@{}:", door.address);
    run(Command::new("scp").args(&options).arg("-r").arg(&tree).arg(format!("{there}copied"))).await?;
    assert_eq!(ada.say(door, "cat copied/deep/er/file").await?, "content");

    let batch = ada.path("batch");
    std::fs::write(&batch, "mkdir new\ncd new\nput -r tree\nrename tree/deep/er/file moved\nls\nget moved\n")?;
    let mut sftp = Command::new("sftp");
    sftp.args(&options).arg("-b").arg(&batch).arg(format!("demo@{}", door.address)).current_dir(ada.directory.path());
    run(&mut sftp).await?;
    assert_eq!(std::fs::read_to_string(ada.path("moved"))?, "content");

    ada.say(door, "mkdir -p synced && touch synced/surplus").await?;
    let shell = format!("ssh {}", options.join(" "));
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "--delete", "-e", &shell]).arg(format!("{}/", tree.display())).arg(format!("{there}synced"));
    run(&mut rsync).await?;
    assert_eq!(ada.say(door, "cd synced && find . -type f").await?, "./deep/er/file\n");

    let size = if cfg!(feature = "full") { 2_u64 << 30 } else { 64 << 20 };
    let up = format!(
        "head -c {size} /dev/urandom | tee >(sha256sum >&2) | {} 'tee big | sha256sum >&2; sha256sum < big'",
        command_line(ada, door)?
    );
    let output = Command::new("bash").args(["-c", &up]).kill_on_drop(true).output().await?;
    let sums = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let mut sums: Vec<&str> = sums.lines().collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 1, "{sums:?}");
    let down = format!("{} 'cat big' | sha256sum", command_line(ada, door)?);
    assert_eq!(run(Command::new("bash").args(["-c", &down])).await?.trim(), sums[0].trim());
    ada.say(door, "rm big").await.map(drop)
}
