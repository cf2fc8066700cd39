//! Current notices to users: a line before every prompt, and a file in the home directory per kind.
//!
//! The home may be full, read-only, or on a file system that hangs, so a separate thread writes there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use odc_control::Text;

use crate::atomic_write::write_atomic;
use crate::text_format::sanitize_line;

/// In the state directory; absent without notices.
pub const PROMPT_FILE: &str = "prompt";

/// Changes of files that are queued while the home hangs.
const MAX_QUEUED_CHANGES: usize = 64;

/// In the sequence of the lines before a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeKind {
    Expiry,
    Idle,
    Oom,
    Message,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// For prompts and `odc-status`. Absent if only a file is written.
    pub line: Option<String>,
    /// Name and text of the file in the home directory.
    pub file: Option<(&'static str, String)>,
}

#[derive(Debug)]
pub struct Notices {
    prompt_file: PathBuf,
    home: PathBuf,
    current: Mutex<BTreeMap<NoticeKind, Notice>>,
    /// Absent if the thread could not be started; then no files are written.
    writer: Option<SyncSender<Change>>,
    #[cfg(test)]
    thread: Option<thread::JoinHandle<()>>,
}

/// Tests remove the home directory, so the thread must finish first. In production the home may hang, so it is not
/// joined.
#[cfg(test)]
impl Drop for Notices {
    fn drop(&mut self) {
        self.writer = None;
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A change of a file in the home directory.
#[derive(Debug)]
enum Change {
    Write(PathBuf, String),
    Remove(PathBuf),
}

impl Notices {
    /// Removes `stale_files`, which an earlier server may have left in the home. If files cannot be written, notices
    /// are still shown on terminals and before prompts; `on_error` is called once until a write succeeds again.
    pub fn new(
        state_dir: &Path,
        home: &Path,
        stale_files: &[&str],
        on_error: impl Fn(String) + Send + 'static,
    ) -> Self {
        let (sender, changes) = sync_channel(MAX_QUEUED_CHANGES);
        let write = move || {
            let mut is_failing = false;
            for change in changes {
                match apply(&change) {
                    // A successful removal does not show that files can be written.
                    Ok(()) => is_failing &= !matches!(change, Change::Write(..)),
                    Err(_) if is_failing => {}
                    Err(error) => {
                        is_failing = true;
                        on_error(format!("cannot write warning file {}: {error}", change.path().display()));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("notices".to_owned()).spawn(write).ok();
        let notices = Self {
            prompt_file: state_dir.join(PROMPT_FILE),
            home: home.to_owned(),
            current: Mutex::default(),
            writer: thread.as_ref().map(|_| sender),
            #[cfg(test)]
            thread,
        };
        for name in stale_files {
            notices.queue(Change::Remove(home.join(name)));
        }
        notices.write_prompt_file(&BTreeMap::new());
        notices
    }

    /// Sets or clears the notice of a kind. Reports whether it changed.
    pub fn set(&self, kind: NoticeKind, notice: Option<Notice>) -> bool {
        let mut notices = self.current();
        if notices.get(&kind) == notice.as_ref() {
            return false;
        }
        let file = |notice: Option<&Notice>| notice.and_then(|notice| notice.file.clone());
        let (previous, current) = (file(notices.get(&kind)), file(notice.as_ref()));
        if let Some((name, _)) = previous
            && current.as_ref().is_none_or(|(current, _)| *current != name)
        {
            self.queue(Change::Remove(self.home.join(name)));
        }
        if let Some((name, text)) = current {
            self.queue(Change::Write(self.home.join(name), text));
        }
        match notice {
            Some(notice) => notices.insert(kind, notice),
            None => notices.remove(&kind),
        };
        self.write_prompt_file(&notices);
        true
    }

    pub fn contains(&self, kind: NoticeKind) -> bool {
        self.current().contains_key(&kind)
    }

    pub fn lines(&self) -> Vec<Text> {
        self.current().values().filter_map(|notice| notice.line.as_ref()).map(Text::new).collect()
    }

    /// Shells read the file at any time, so it is replaced atomically.
    fn write_prompt_file(&self, notices: &BTreeMap<NoticeKind, Notice>) {
        let lines: Vec<String> =
            notices.values().filter_map(|notice| notice.line.as_deref()).map(single_line).collect();
        // On failure, notices are still shown on terminals and as files.
        let _ = if lines.is_empty() {
            fs::remove_file(&self.prompt_file)
        } else {
            let text = lines.join("\n") + "\n";
            write_atomic(&self.prompt_file, 0o644, |file| file.write_all(text.as_bytes()))
        };
    }

    fn queue(&self, change: Change) {
        if let Some(writer) = &self.writer {
            let _ = writer.try_send(change);
        }
    }

    fn current(&self) -> MutexGuard<'_, BTreeMap<NoticeKind, Notice>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joins the lines of a notice and removes control characters.
fn single_line(notice: &str) -> String {
    sanitize_line(&notice.replace(['\n', '\t'], " "))
}

impl Change {
    fn path(&self) -> &Path {
        let (Self::Write(path, _) | Self::Remove(path)) = self;
        path
    }
}

fn apply(change: &Change) -> io::Result<()> {
    match change {
        Change::Write(path, text) => write_atomic(path, 0o644, |file| file.write_all(text.as_bytes())),
        Change::Remove(path) => match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    const THIRTY: &str = "WARN_30.txt";
    const FIVE: &str = "WARN_5.txt";

    #[expect(clippy::unnecessary_wraps, reason = "the type of the argument of `set`")]
    fn notice(line: &str, file: &'static str) -> Option<Notice> {
        Some(Notice { line: Some(line.to_owned()), file: Some((file, format!("{line}.\n"))) })
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn each_kind_has_one_file_and_one_line() {
        let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = || {
            let mut names: Vec<_> = fs::read_dir(home.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let prompt = || fs::read_to_string(state.path().join(PROMPT_FILE)).unwrap_or_default();
        fs::write(home.path().join(FIVE), "stale").unwrap();
        fs::write(state.path().join(PROMPT_FILE), "stale").unwrap();
        let notices = Notices::new(state.path(), home.path(), &[THIRTY, FIVE], |error| panic!("{error}"));
        assert_eq!(prompt(), "");
        wait_until(|| files().is_empty());

        assert!(notices.set(NoticeKind::Expiry, notice("expires in 30m", THIRTY)));
        assert!(!notices.set(NoticeKind::Expiry, notice("expires in 30m", THIRTY)));
        notices.set(NoticeKind::Message, Some(Notice { line: Some("hello\x1b[2J\nworld".to_owned()), file: None }));
        assert_eq!(prompt(), "expires in 30m\nhello\u{fffd}[2J world\n");
        wait_until(|| files() == [THIRTY]);

        notices.set(NoticeKind::Expiry, notice("expires in 5m", FIVE));
        wait_until(|| files() == [FIVE]);
        assert_eq!(fs::read_to_string(home.path().join(FIVE)).unwrap(), "expires in 5m.\n");
        notices.set(NoticeKind::Expiry, None);
        notices.set(NoticeKind::Message, None);
        wait_until(|| files().is_empty());
        assert!(!state.path().join(PROMPT_FILE).exists() && !notices.contains(NoticeKind::Expiry));
    }

    #[test]
    fn unwritable_home_is_reported_once_until_it_recovers() {
        let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (sender, errors) = mpsc::channel();
        let home = dir.path().join("home");
        let notices = Notices::new(state.path(), &home, &[], move |error| sender.send(error).unwrap());
        let write = || {
            for (line, file) in [("a", THIRTY), ("b", FIVE)] {
                notices.set(NoticeKind::Expiry, notice(line, file));
            }
        };
        write();
        let error = errors.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(error.contains(THIRTY) && error.contains("No such file"), "{error}");
        fs::create_dir(&home).unwrap();
        write();
        wait_until(|| home.join(FIVE).exists() && !home.join(THIRTY).exists());
        fs::remove_dir_all(&home).unwrap();
        write();
        errors.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(notices);
        assert_eq!(errors.iter().count(), 0, "once per failure");
    }

    #[test]
    fn unwritable_home_does_not_affect_prompt_lines() {
        let state = tempfile::tempdir().unwrap();
        let notices = Notices::new(state.path(), Path::new("/dev/null/x"), &[THIRTY], drop);
        for _ in 0..2 * MAX_QUEUED_CHANGES {
            notices.set(NoticeKind::Expiry, notice("expires", THIRTY));
            notices.set(NoticeKind::Expiry, None);
        }
        notices.set(NoticeKind::Expiry, notice("expires", THIRTY));
        assert_eq!(notices.lines(), [Text::new("expires")]);
    }
}
