use std::fs;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::pre_stop_script::claim::Claim;
use crate::process_id::ProcessId;

const TIMEOUT: Duration = Duration::from_secs(60);

struct Server {
    home: TempDir,
    state: TempDir,
    quiesce: Arc<Quiesce>,
}

fn server(pre_stop: Option<&str>) -> Server {
    let (home, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = state.path().join("pre-stop.sh");
    if let Some(text) = pre_stop {
        fs::write(&script, text.replace("$H", home.path().to_str().unwrap())).unwrap();
    }
    let quiesce = Quiesce {
        state_dir: state.path().to_owned(),
        home: home.path().to_owned(),
        pre_stop: pre_stop.is_some().then_some(script),
    };
    Server { home, state, quiesce: Arc::new(quiesce) }
}

#[tokio::test]
async fn script_runs_once_for_concurrent_requests() {
    let server = server(Some("echo saved; echo run >>$H/runs; exit 3"));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let quiesce = Arc::clone(&server.quiesce);
            tokio::spawn(async move { quiesce.run(TIMEOUT).await })
        })
        .collect();
    for task in tasks {
        let quiesced = task.await.unwrap();
        assert_eq!(quiesced.pre_stop, Some(Outcome::Code(3)));
        assert!(quiesced.synced);
        assert_eq!(quiesced.pre_stop_log.as_deref(), Some("saved"));
        let listing = quiesced.home.unwrap().listing.decompress().unwrap();
        assert!(listing.entries.iter().any(|entry| entry.path == "runs") && !listing.incomplete, "{listing:?}");
    }
    assert_eq!(fs::read_to_string(server.home.path().join("runs")).unwrap(), "run\n");
    assert_eq!(fs::read_to_string(server.state.path().join("pre-stop.log")).unwrap(), "saved\n");
    let Availability::Claimed(run) = PreStopRuns::new(server.state.path()).availability() else { panic!() };
    assert_eq!(run.state(), RunState::Finished(Outcome::Code(3)));
}

#[tokio::test]
async fn stop_after_a_cancelled_one_runs_the_script_again() {
    let server = server(Some("echo run >>$H/runs"));
    for stop in 1..3 {
        for _ in 0..2 {
            assert_eq!(server.quiesce.run(TIMEOUT).await.pre_stop, Some(Outcome::Code(0)));
        }
        server.quiesce.cancel().unwrap();
        assert_eq!(fs::read_to_string(server.home.path().join("runs")).unwrap(), "run\n".repeat(stop));
    }
}

#[tokio::test]
async fn cancelled_run_finishes_before_the_next_starts() {
    let server = server(Some("echo begin >>$H/runs; until test -e $H/go; do sleep 0.01; done; echo end >>$H/runs"));
    let runs = server.home.path().join("runs");
    let quiesce = || {
        let quiesce = Arc::clone(&server.quiesce);
        tokio::spawn(async move { quiesce.run(TIMEOUT).await.pre_stop })
    };
    let first = quiesce();
    while !runs.exists() {
        sleep(POLL_INTERVAL).await;
    }
    server.quiesce.cancel().unwrap();
    let second = quiesce();
    fs::write(server.home.path().join("go"), "").unwrap();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(Outcome::Code(0)), Some(Outcome::Code(0))));
    assert_eq!(fs::read_to_string(runs).unwrap(), "begin\nend\nbegin\nend\n");
}

#[tokio::test]
async fn hanging_script_is_killed_with_its_process_group() {
    let server = server(Some("sleep 1000 & echo $! >$H/pid; wait"));
    let started = Instant::now();
    let quiesced = server.quiesce.run(Duration::from_secs(3)).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(quiesced.pre_stop, Some(Outcome::TimedOut));
    let pid: u32 = fs::read_to_string(server.home.path().join("pid")).unwrap().trim().parse().unwrap();
    let started = Instant::now();
    while ProcessId::of_pid(pid).is_some_and(|process| process.is_running()) {
        assert!(started.elapsed() < TIMEOUT);
        sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test]
async fn hanging_log_is_not_awaited_beyond_the_timeout() {
    let server = server(Some("exit 0"));
    let Claim::Acquired(run) = PreStopRuns::new(server.state.path()).try_claim().unwrap() else { panic!() };
    run.finish(&Outcome::Code(1)).unwrap();
    // Opening a FIFO blocks until its other end is opened.
    let log = server.state.path().join("pre-stop.log");
    mknodat(CWD, &log, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let quiesced = timeout(TIMEOUT, server.quiesce.run(Duration::from_millis(300))).await;
    // Releases the thread that is blocked on it.
    let _end = fs::OpenOptions::new().read(true).write(true).open(&log).unwrap();
    let quiesced = quiesced.expect("it respects the timeout");
    assert_eq!((quiesced.pre_stop, quiesced.pre_stop_log), (Some(Outcome::Code(1)), None));
}

#[tokio::test]
async fn script_that_cannot_run_is_reported() {
    let server = server(Some("#!/no/such/thing\n"));
    let Some(Outcome::NotStarted { code: 127, reason }) = server.quiesce.run(TIMEOUT).await.pre_stop else { panic!() };
    assert!(reason.contains("/no/such/thing"));
}

#[tokio::test]
async fn run_of_another_process_is_awaited() {
    let server = server(Some("exit 1"));
    let Claim::Acquired(run) = PreStopRuns::new(server.state.path()).try_claim().unwrap() else { panic!() };
    let task = tokio::spawn({
        let quiesce = Arc::clone(&server.quiesce);
        async move { quiesce.run(TIMEOUT).await }
    });
    tokio::task::yield_now().await;
    run.finish(&Outcome::Code(0)).unwrap();
    assert_eq!(task.await.unwrap().pre_stop, Some(Outcome::Code(0)));
}

#[tokio::test]
async fn sync_runs_without_script_and_home() {
    let server = server(None);
    let quiesce = Quiesce { home: "/no/such/home".into(), ..(*server.quiesce).clone() };
    let quiesced = quiesce.run(TIMEOUT).await;
    assert_eq!(quiesced, Quiesced { pre_stop: None, pre_stop_log: None, synced: true, sync_error: None, home: None });
}

#[tokio::test]
async fn flush_syncs_and_lists_without_the_script() {
    let server = server(Some("echo run >>$H/runs"));
    fs::write(server.home.path().join("work"), "x").unwrap();
    let flushed = server.quiesce.flush(TIMEOUT).await;
    assert!(flushed.synced && flushed.sync_error.is_none(), "{flushed:?}");
    let listing = flushed.home.unwrap().listing.decompress().unwrap();
    let paths: Vec<&str> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["work"]);
    let without_home = Quiesce { home: "/no/such/home".into(), ..(*server.quiesce).clone() };
    let flushed = without_home.flush(TIMEOUT).await;
    assert!(!flushed.synced && flushed.home.is_none());
    assert!(flushed.sync_error.unwrap().starts_with("/no/such/home: "));
}
