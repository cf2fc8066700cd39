use super::*;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

fn acquire(runs: &PreStopRuns) -> Run {
    match runs.try_claim().unwrap() {
        Claim::Acquired(run) => run,
        Claim::HeldByOther(run) | Claim::PreviousStillRunning(run) => panic!("{run:?}"),
    }
}

/// Returns a process that has exited.
fn dead_process() -> ProcessId {
    let mut child = Command::new("true").spawn().unwrap();
    let process = ProcessId::of_pid(child.id()).unwrap();
    child.wait().unwrap();
    process
}

/// Returns a run whose claimant has died.
fn acquire_and_die(runs: &PreStopRuns) -> Run {
    let run = acquire(runs);
    write(&run.file(CLAIMANT), &dead_process()).unwrap();
    run
}

#[test]
fn concurrent_claims_are_acquired_once() {
    for _ in 0..100 {
        let dir = tempfile::tempdir().unwrap();
        let runs = PreStopRuns::new(dir.path());
        let barrier = Barrier::new(4);
        let claim = || {
            barrier.wait();
            matches!(runs.try_claim().unwrap(), Claim::Acquired(_))
        };
        let acquired = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|acquired| *acquired).count()
        });
        assert_eq!(acquired, 1);
    }
}

#[test]
fn claim_is_held_until_the_next_stop() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PreStopRuns::new(dir.path());
    assert_eq!(runs.availability(), Availability::Unclaimed);
    let barrier = Barrier::new(8);
    let mut acquired: Vec<Run> = thread::scope(|scope| {
        let claim = || {
            barrier.wait();
            runs.try_claim().unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
        let claims = threads.into_iter().map(|thread| thread.join().unwrap());
        claims.filter_map(|claim| if let Claim::Acquired(run) = claim { Some(run) } else { None }).collect()
    });
    assert_eq!(acquired.len(), 1);
    let run = acquired.remove(0);
    assert_eq!((runs.availability(), run.state()), (Availability::Claimed(run.clone()), RunState::Running));
    run.finish(&Outcome::Code(3)).unwrap();
    assert_eq!(run.state(), RunState::Finished(Outcome::Code(3)));
    assert_eq!(runs.try_claim().unwrap(), Claim::HeldByOther(run));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "temporary files are removed");
}

#[test]
fn restarted_container_claims_again() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PreStopRuns::new(dir.path());
    acquire(&runs);
    acquire(&PreStopRuns { boot_id: "another".to_owned(), ..runs });
}

#[test]
fn claim_of_dead_process_without_script_is_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PreStopRuns::new(dir.path());
    let abandoned = acquire_and_die(&runs);
    assert_eq!((abandoned.state(), runs.availability()), (RunState::Abandoned, Availability::Unclaimed));
    let next = acquire(&runs);
    assert_eq!(runs.try_claim().unwrap(), Claim::HeldByOther(next.clone()));
    assert_eq!(next.state(), RunState::Running);
}

#[test]
fn script_of_dead_claimant_is_running_until_it_exits() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PreStopRuns::new(dir.path());
    let run = acquire_and_die(&runs);
    let mut script = Command::new("sleep").arg("1000").spawn().unwrap();
    run.record_process(ProcessId::of_pid(script.id()).unwrap()).unwrap();
    let running = run.state();
    script.kill().unwrap();
    script.wait().unwrap();
    assert_eq!(running, RunState::Running);
    assert_eq!(run.state(), RunState::Finished(unknown_outcome()));
    assert_eq!(runs.try_claim().unwrap(), Claim::HeldByOther(run));
}

#[test]
fn stop_after_a_cancelled_one_claims_again() {
    let dir = tempfile::tempdir().unwrap();
    let runs = PreStopRuns::new(dir.path());
    runs.cancel().unwrap();
    let first = acquire(&runs);
    runs.cancel().unwrap();
    // The script continues and is not started a second time concurrently.
    assert_eq!(runs.availability(), Availability::PreviousStillRunning(first.clone()));
    assert_eq!(runs.try_claim().unwrap(), Claim::PreviousStillRunning(first.clone()));
    first.finish(&Outcome::Code(0)).unwrap();
    assert_eq!(runs.availability(), Availability::Unclaimed);
    let second = acquire(&runs);
    second.finish(&Outcome::Code(1)).unwrap();
    assert_eq!(runs.availability(), Availability::Claimed(second.clone()));
    // The outcome of the first run stays available.
    assert_eq!(first.state(), RunState::Finished(Outcome::Code(0)));
    runs.cancel().unwrap();
    runs.cancel().unwrap();
    assert_eq!(acquire(&runs).number, second.number + 1);
}

#[test]
fn unwritable_directory_is_an_error() {
    assert!(PreStopRuns::new(Path::new("/dev/null/x")).try_claim().is_err());
}
