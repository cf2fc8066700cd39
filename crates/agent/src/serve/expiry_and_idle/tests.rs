use std::fs;
use std::sync::Mutex;

use super::*;
use crate::serve::notify::current_notices::PROMPT_FILE;

struct Fixture {
    directory: tempfile::TempDir,
    activity: Activity,
    broadcasts: Mutex<Vec<String>>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, activity: Activity::new(), broadcasts: Mutex::default() }
    }

    fn lifecycle(&self) -> Lifecycle {
        let path = self.directory.path().to_owned();
        let server = "ada-1".to_owned();
        let config = LifecycleConfig { state_dir: path.clone(), home: path, pre_stop: None, server, jupyter_port: 1 };
        Lifecycle::new(config, &Arc::default())
    }

    /// Updates the warnings and returns the broadcasts.
    fn update(&self, lifecycle: &Lifecycle) -> Vec<String> {
        lifecycle.update_warnings(&self.activity, |text| self.broadcasts.lock().unwrap().push(text.to_owned()));
        std::mem::take(&mut self.broadcasts.lock().unwrap())
    }

    fn prompt(&self) -> String {
        fs::read_to_string(self.directory.path().join(PROMPT_FILE)).unwrap_or_default()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the type of the argument of `set_deadline`")]
fn minutes(minutes: u64) -> Option<Duration> {
    Some(Duration::from_secs(60 * minutes))
}

/// Waits until `LastSeen` values, which have millisecond precision, differ.
fn next_millisecond() {
    let now = boot_time::since_boot().as_millis();
    while boot_time::since_boot().as_millis() < now + 2 {
        std::thread::yield_now();
    }
}

#[test]
fn expiry_warning_is_broadcast_once_and_cleared_by_an_extension() {
    let fixture = Fixture::new();
    let lifecycle = fixture.lifecycle();
    lifecycle.set_deadline(minutes(15), None);
    let broadcasts = fixture.update(&lifecycle);
    assert_eq!(broadcasts.len(), 1);
    assert!(
        broadcasts[0].contains("expires in 15m") && broadcasts[0].contains("devctl extend ada-1"),
        "{broadcasts:?}"
    );
    assert_eq!(fixture.update(&lifecycle), [""; 0]);
    assert_eq!(fixture.prompt(), "ada-1 expires in 15m; extend with `devctl extend ada-1 2h`\n");
    lifecycle.set_deadline(minutes(120), None);
    assert_eq!((fixture.update(&lifecycle), fixture.prompt()), (vec![], String::new()));
}

#[test]
fn restarted_serve_shows_the_warning_and_does_not_broadcast_it_again() {
    let fixture = Fixture::new();
    let first = fixture.lifecycle();
    first.set_deadline(minutes(4), None);
    assert_eq!(fixture.update(&first).len(), 1);
    drop(first);
    let second = fixture.lifecycle();
    assert_eq!(fixture.update(&second), [""; 0]);
    assert!(fixture.prompt().contains("expires in 4m"));
}

#[test]
fn idle_warning_is_cleared_by_activity() {
    let fixture = Fixture::new();
    let lifecycle = fixture.lifecycle();
    fixture.activity.record_terminal_input();
    next_millisecond();
    let text = Text::new("ada-1 hibernates in 5m unless it is used");
    assert_eq!(lifecycle.notify(odc_control::NoticeKind::Idle, Some(&text)).as_deref(), Some(text.as_str()));
    assert_eq!(lifecycle.notify(odc_control::NoticeKind::Idle, Some(&text)), None, "it is broadcast once");
    fixture.update(&lifecycle);
    assert_eq!(fixture.prompt(), format!("{text}\n"));
    next_millisecond();
    fixture.activity.record_terminal_input();
    fixture.update(&lifecycle);
    assert_eq!(fixture.prompt(), "");

    lifecycle.notify(odc_control::NoticeKind::Idle, Some(&text));
    lifecycle.keep_alive(&fixture.activity, 60, None).unwrap();
    fixture.update(&lifecycle);
    assert_eq!(fixture.prompt(), "");

    lifecycle.notify(odc_control::NoticeKind::Idle, Some(&text));
    lifecycle.notify(odc_control::NoticeKind::Idle, None);
    assert_eq!(fixture.prompt(), "");
}

#[test]
fn message_is_not_cleared_by_activity() {
    let fixture = Fixture::new();
    let lifecycle = fixture.lifecycle();
    let text = Text::new("Preempted by server b. Save your work.");
    lifecycle.notify(odc_control::NoticeKind::Message, Some(&text));
    next_millisecond();
    fixture.activity.record_terminal_input();
    lifecycle.keep_alive(&fixture.activity, 60, None).unwrap();
    fixture.update(&lifecycle);
    assert_eq!(fixture.prompt(), format!("{text}\n"));
    lifecycle.notify(odc_control::NoticeKind::Message, None);
    assert_eq!(fixture.prompt(), "");
}

#[test]
fn oom_kills_leave_a_file_and_are_persisted() {
    let fixture = Fixture::new();
    let lifecycle = fixture.lifecycle();
    assert!(lifecycle.report_oom(2).contains("2 OOM kills"));
    let file = fixture.directory.path().join(OOM_NOTICE_FILE);
    let started = std::time::Instant::now();
    while !file.exists() {
        assert!(started.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(lifecycle.reported_oom_kills(|| panic!("it is stored")), 2);
}
