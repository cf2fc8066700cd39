use std::fs;
use std::sync::Mutex;

use super::*;
use crate::serve::board::PROMPT;

struct Place {
    directory: tempfile::TempDir,
    activity: Activity,
    told: Mutex<Vec<String>>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, activity: Activity::new(), told: Mutex::default() }
    }

    fn steward(&self) -> Steward {
        let path = self.directory.path().to_owned();
        let server = "ada-1".to_owned();
        let settings = Settings { state: path.clone(), home: path, pre_stop: None, server, jupyter_port: 1 };
        Steward::new(settings, &Arc::default())
    }

    fn look(&self, steward: &Steward) -> Vec<String> {
        steward.look(&self.activity, |text| self.told.lock().unwrap().push(text.to_owned()));
        std::mem::take(&mut self.told.lock().unwrap())
    }

    fn prompt(&self) -> String {
        fs::read_to_string(self.directory.path().join(PROMPT)).unwrap_or_default()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as it is set")]
fn minutes(minutes: u64) -> Option<Duration> {
    Some(Duration::from_secs(60 * minutes))
}

/// Until marks, which are kept in milliseconds, can be told apart.
fn next_moment() {
    let now = clock::since_boot().as_millis();
    while clock::since_boot().as_millis() < now + 2 {
        std::thread::yield_now();
    }
}

#[test]
fn an_end_that_comes_near_is_told_once_shown_and_cleared_by_an_extension() {
    let place = Place::new();
    let steward = place.steward();
    steward.set_deadline(minutes(15), None);
    let told = place.look(&steward);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("ends in 15 min") && told[0].contains("devctl extend ada-1"), "{told:?}");
    assert_eq!(place.look(&steward), [""; 0]);
    assert_eq!(place.prompt(), "ada-1 ends in 15 min; to keep it longer: devctl extend ada-1\n");
    steward.set_deadline(minutes(120), None);
    assert_eq!((place.look(&steward), place.prompt()), (vec![], String::new()));
}

#[test]
fn a_new_steward_shows_what_holds_and_tells_nobody_again() {
    let place = Place::new();
    let first = place.steward();
    first.set_deadline(minutes(4), None);
    assert_eq!(place.look(&first).len(), 1);
    drop(first);
    let second = place.steward();
    assert_eq!(place.look(&second), [""; 0]);
    assert!(place.prompt().contains("ends in 4 min"));
}

#[test]
fn an_idle_warning_holds_until_somebody_works() {
    let place = Place::new();
    let steward = place.steward();
    place.activity.terminal_input();
    next_moment();
    let text = Text::new("ada-1 sleeps in 5 min unless somebody uses it");
    assert_eq!(steward.notify(About::Idle, Some(&text)).as_deref(), Some(text.as_str()));
    assert_eq!(steward.notify(About::Idle, Some(&text)), None, "nobody is told twice");
    place.look(&steward);
    assert_eq!(place.prompt(), format!("{text}\n"));
    next_moment();
    place.activity.terminal_input();
    place.look(&steward);
    assert_eq!(place.prompt(), "");

    steward.notify(About::Idle, Some(&text));
    steward.keep_alive(&place.activity, 60, None).unwrap();
    place.look(&steward);
    assert_eq!(place.prompt(), "");

    steward.notify(About::Idle, Some(&text));
    steward.notify(About::Idle, None);
    assert_eq!(place.prompt(), "");
}

#[test]
fn running_out_of_memory_leaves_a_file_and_is_remembered() {
    let place = Place::new();
    let steward = place.steward();
    assert!(steward.ran_out_of_memory(2).contains("2 times"));
    let file = place.directory.path().join(OOM_FILE);
    let begun = std::time::Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(kept::load::<u64>(&place.directory.path().join(OOM_COUNT_FILE)), Some(2));
}
