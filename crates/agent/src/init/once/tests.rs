use super::*;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

fn ours(once: &Once) -> Run {
    match once.claim().unwrap() {
        Claim::Ours(run) => run,
        Claim::Theirs(run) | Claim::Busy(run) => panic!("{run:?}"),
    }
}

/// One that is no more.
fn dead() -> Process {
    let mut gone = Command::new("true").spawn().unwrap();
    let dead = Process::of(gone.id()).unwrap();
    gone.wait().unwrap();
    dead
}

/// A run whose claimant died.
fn claimed_by_the_dead(once: &Once) -> Run {
    let run = ours(once);
    write(&run.file("started"), &dead()).unwrap();
    run
}

#[test]
fn however_often_they_race_only_one_runs_it() {
    for _ in 0..100 {
        let place = tempfile::tempdir().unwrap();
        let once = Once::new(place.path());
        let barrier = Barrier::new(4);
        let claim = || {
            barrier.wait();
            matches!(once.claim().unwrap(), Claim::Ours(_))
        };
        let ours = thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            all.into_iter().map(|one| one.join().unwrap()).filter(|ours| *ours).count()
        });
        assert_eq!(ours, 1);
    }
}

#[test]
fn of_many_only_one_runs_it() {
    let place = tempfile::tempdir().unwrap();
    let once = Once::new(place.path());
    assert_eq!(once.standing(), Standing::Open);
    let barrier = Barrier::new(8);
    let mut ours: Vec<Run> = thread::scope(|scope| {
        let claim = || {
            barrier.wait();
            once.claim().unwrap()
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
        let claims = all.into_iter().map(|one| one.join().unwrap());
        claims.filter_map(|claim| if let Claim::Ours(run) = claim { Some(run) } else { None }).collect()
    });
    assert_eq!(ours.len(), 1);
    let run = ours.remove(0);
    assert_eq!((once.standing(), run.look()), (Standing::Taken(run.clone()), Look::Running));
    run.finish(&Outcome::Code(3)).unwrap();
    assert_eq!(run.look(), Look::Ended(Outcome::Code(3)));
    assert_eq!(once.claim().unwrap(), Claim::Theirs(run));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "claims leave nothing else");
}

#[test]
fn another_life_of_the_container_runs_it_again() {
    let place = tempfile::tempdir().unwrap();
    let once = Once::new(place.path());
    ours(&once);
    ours(&Once { life: "another".to_owned(), ..once });
}

#[test]
fn what_nobody_lived_to_begin_is_begun_by_the_next() {
    let place = tempfile::tempdir().unwrap();
    let once = Once::new(place.path());
    let abandoned = claimed_by_the_dead(&once);
    assert_eq!((abandoned.look(), once.standing()), (Look::Abandoned, Standing::Open));
    let next = ours(&once);
    assert_eq!(once.claim().unwrap(), Claim::Theirs(next.clone()));
    assert_eq!(next.look(), Look::Running);
}

#[test]
fn a_script_whose_starter_died_is_waited_for_and_then_lost() {
    let place = tempfile::tempdir().unwrap();
    let once = Once::new(place.path());
    let run = claimed_by_the_dead(&once);
    let mut script = Command::new("sleep").arg("1000").spawn().unwrap();
    run.began(Process::of(script.id()).unwrap()).unwrap();
    let running = run.look();
    script.kill().unwrap();
    script.wait().unwrap();
    assert_eq!(running, Look::Running);
    assert_eq!(run.look(), Look::Ended(lost()));
    assert_eq!(once.claim().unwrap(), Claim::Theirs(run));
}

#[test]
fn the_stop_after_one_that_was_called_off_runs_it_again() {
    let place = tempfile::tempdir().unwrap();
    let once = Once::new(place.path());
    once.call_off().unwrap();
    let first = ours(&once);
    once.call_off().unwrap();
    // It goes on, and is not begun a second time beside itself.
    assert_eq!(once.standing(), Standing::Busy(first.clone()));
    assert_eq!(once.claim().unwrap(), Claim::Busy(first.clone()));
    first.finish(&Outcome::Code(0)).unwrap();
    assert_eq!(once.standing(), Standing::Open);
    let second = ours(&once);
    second.finish(&Outcome::Code(1)).unwrap();
    assert_eq!(once.standing(), Standing::Taken(second.clone()));
    // Whoever waited for the first still learns how it went.
    assert_eq!(first.look(), Look::Ended(Outcome::Code(0)));
    once.call_off().unwrap();
    once.call_off().unwrap();
    assert_eq!(ours(&once).number, second.number + 1);
}

#[test]
fn a_place_that_takes_no_files_is_an_error() {
    assert!(Once::new(Path::new("/dev/null/x")).claim().is_err());
}
