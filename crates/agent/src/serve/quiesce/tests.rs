use std::fs;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::init::once::Claim;
use crate::state::process::Process;

const LONG: Duration = Duration::from_secs(60);

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
        state: state.path().to_owned(),
        home: home.path().to_owned(),
        pre_stop: pre_stop.is_some().then_some(script),
    };
    Server { home, state, quiesce: Arc::new(quiesce) }
}

#[tokio::test]
async fn the_script_runs_once_however_often_it_is_asked_for() {
    let server = server(Some("echo saved; echo run >>$H/runs; exit 3"));
    let all: Vec<_> = (0..4)
        .map(|_| {
            let quiesce = Arc::clone(&server.quiesce);
            tokio::spawn(async move { quiesce.run(LONG).await })
        })
        .collect();
    for one in all {
        let quiesced = one.await.unwrap();
        assert_eq!(quiesced.pre_stop, Some(Outcome::Code(3)));
        assert!(quiesced.synced && !quiesced.listing_cut);
        assert_eq!(quiesced.pre_stop_log.as_deref(), Some("saved"));
        assert!(quiesced.listing.unwrap().contains("  runs\n"));
    }
    assert_eq!(fs::read_to_string(server.home.path().join("runs")).unwrap(), "run\n");
    assert_eq!(fs::read_to_string(server.state.path().join("pre-stop.log")).unwrap(), "saved\n");
    let Standing::Taken(run) = Once::new(server.state.path()).standing() else { panic!() };
    assert_eq!(run.look(), Look::Ended(Outcome::Code(3)));
}

#[tokio::test]
async fn a_stop_that_was_called_off_is_none_and_the_next_runs_the_script_again() {
    let server = server(Some("echo run >>$H/runs"));
    for stop in 1..3 {
        for _ in 0..2 {
            assert_eq!(server.quiesce.run(LONG).await.pre_stop, Some(Outcome::Code(0)));
        }
        server.quiesce.call_off().unwrap();
        assert_eq!(fs::read_to_string(server.home.path().join("runs")).unwrap(), "run\n".repeat(stop));
    }
}

#[tokio::test]
async fn a_run_that_was_called_off_is_over_before_the_next_begins() {
    let server = server(Some("echo begin >>$H/runs; until test -e $H/go; do sleep 0.01; done; echo end >>$H/runs"));
    let runs = server.home.path().join("runs");
    let ask = || {
        let quiesce = Arc::clone(&server.quiesce);
        tokio::spawn(async move { quiesce.run(LONG).await.pre_stop })
    };
    let first = ask();
    while !runs.exists() {
        sleep(GLANCE).await;
    }
    server.quiesce.call_off().unwrap();
    let second = ask();
    fs::write(server.home.path().join("go"), "").unwrap();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(Outcome::Code(0)), Some(Outcome::Code(0))));
    assert_eq!(fs::read_to_string(runs).unwrap(), "begin\nend\nbegin\nend\n");
}

#[tokio::test]
async fn a_script_that_hangs_is_killed_with_all_it_started() {
    let server = server(Some("sleep 1000 & echo $! >$H/pid; wait"));
    let begun = Instant::now();
    let quiesced = server.quiesce.run(Duration::from_secs(3)).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(quiesced.pre_stop, Some(Outcome::TimedOut));
    let pid: u32 = fs::read_to_string(server.home.path().join("pid")).unwrap().trim().parse().unwrap();
    let begun = Instant::now();
    while Process::of(pid).is_some_and(|process| process.runs()) {
        assert!(begun.elapsed() < LONG);
        sleep(GLANCE).await;
    }
}

#[tokio::test]
async fn a_log_that_hangs_is_not_waited_for_beyond_the_end() {
    let server = server(Some("exit 0"));
    let Claim::Ours(run) = Once::new(server.state.path()).claim().unwrap() else { panic!() };
    run.finish(&Outcome::Code(1)).unwrap();
    // A pipe is opened when somebody opens its other end too.
    let log = server.state.path().join("pre-stop.log");
    mknodat(CWD, &log, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let quiesced = timeout(LONG, server.quiesce.run(Duration::from_millis(300))).await;
    // Whoever still waits for it is let go.
    let _end = fs::OpenOptions::new().read(true).write(true).open(&log).unwrap();
    let quiesced = quiesced.expect("it ends in its time");
    assert_eq!((quiesced.pre_stop, quiesced.pre_stop_log), (Some(Outcome::Code(1)), None));
}

#[tokio::test]
async fn a_script_that_cannot_run_says_why() {
    let server = server(Some("#!/no/such/thing\n"));
    let Some(Outcome::NotStarted { code: 127, reason }) = server.quiesce.run(LONG).await.pre_stop else { panic!() };
    assert!(reason.contains("/no/such/thing"));
}

#[tokio::test]
async fn what_somebody_else_runs_is_waited_for() {
    let server = server(Some("exit 1"));
    let Claim::Ours(run) = Once::new(server.state.path()).claim().unwrap() else { panic!() };
    let asked = tokio::spawn({
        let quiesce = Arc::clone(&server.quiesce);
        async move { quiesce.run(LONG).await }
    });
    tokio::task::yield_now().await;
    run.finish(&Outcome::Code(0)).unwrap();
    assert_eq!(asked.await.unwrap().pre_stop, Some(Outcome::Code(0)));
}

#[tokio::test]
async fn without_script_and_home_the_rest_is_done() {
    let server = server(None);
    let quiesce = Quiesce { home: "/no/such/home".into(), ..(*server.quiesce).clone() };
    let quiesced = quiesce.run(LONG).await;
    assert_eq!(
        quiesced,
        Quiesced {
            pre_stop: None,
            pre_stop_log: None,
            synced: true,
            not_synced: None,
            listing: None,
            listing_cut: false,
        }
    );
}
