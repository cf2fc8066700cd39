//! What people in the server should read now: a line for every prompt, and a file in the home directory for each subject.
//!
//! The home may be full, read-only, or on a file system that hangs, so a thread of its own writes there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use odc_control::Text;

use crate::replace::replace;

/// In the state directory; absent while there is nothing to read.
pub const PROMPT: &str = "prompt";

/// Changes of files that wait while the home hangs.
const WAITING: usize = 64;

/// In the order of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Expiry,
    Idle,
    Memory,
    Message,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// For the prompt and `odc-status`. Absent, if only a file is to be left.
    pub line: Option<String>,
    /// Name and text of the file in the home directory.
    pub file: Option<(&'static str, String)>,
}

#[derive(Debug)]
pub struct Board {
    prompt: PathBuf,
    home: PathBuf,
    notices: Mutex<BTreeMap<Subject, Notice>>,
    /// Absent if there may be no thread. Then there are no files.
    writer: Option<SyncSender<Change>>,
    #[cfg(test)]
    thread: Option<thread::JoinHandle<()>>,
}

/// A test removes its home at the end, and nobody may write to it then. A server's may hang, so nobody waits there.
#[cfg(test)]
impl Drop for Board {
    fn drop(&mut self) {
        self.writer = None;
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Of a file in the home directory.
#[derive(Debug)]
enum Change {
    Write(PathBuf, String),
    Remove(PathBuf),
}

impl Board {
    /// Clears what an earlier life left: the home outlives its servers, and `leftovers` are names of files in it. If the
    /// home takes no files, there are still terminals and prompts; `complain` is told, once until it takes them again.
    pub fn new(state: &Path, home: &Path, leftovers: &[&str], complain: impl Fn(String) + Send + 'static) -> Self {
        let (sender, changes) = sync_channel(WAITING);
        let write = move || {
            let mut broken = false;
            for change in changes {
                match make(&change) {
                    // That a file was not there to be removed says nothing.
                    Ok(()) => broken &= !matches!(change, Change::Write(..)),
                    Err(_) if broken => {}
                    Err(error) => {
                        broken = true;
                        complain(format!("warnings cannot be left as files: {}: {error}", change.path().display()));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("board".to_owned()).spawn(write).ok();
        let board = Self {
            prompt: state.join(PROMPT),
            home: home.to_owned(),
            notices: Mutex::default(),
            writer: thread.as_ref().map(|_| sender),
            #[cfg(test)]
            thread,
        };
        for name in leftovers {
            board.change(Change::Remove(home.join(name)));
        }
        board.show(&BTreeMap::new());
        board
    }

    /// Replaces what is said on a subject; nothing happens if it says so already. Tells whether it changed.
    pub fn put(&self, subject: Subject, notice: Option<Notice>) -> bool {
        let mut notices = self.notices();
        if notices.get(&subject) == notice.as_ref() {
            return false;
        }
        let file = |notice: Option<&Notice>| notice.and_then(|notice| notice.file.clone());
        let (before, now) = (file(notices.get(&subject)), file(notice.as_ref()));
        if let Some((name, _)) = before
            && now.as_ref().is_none_or(|(next, _)| *next != name)
        {
            self.change(Change::Remove(self.home.join(name)));
        }
        if let Some((name, text)) = now {
            self.change(Change::Write(self.home.join(name), text));
        }
        match notice {
            Some(notice) => notices.insert(subject, notice),
            None => notices.remove(&subject),
        };
        self.show(&notices);
        true
    }

    pub fn has(&self, subject: Subject) -> bool {
        self.notices().contains_key(&subject)
    }

    pub fn lines(&self) -> Vec<Text> {
        self.notices().values().filter_map(|notice| notice.line.as_ref()).map(Text::new).collect()
    }

    /// The prompts' file is read by shells at any moment, so it changes as a whole.
    fn show(&self, notices: &BTreeMap<Subject, Notice>) {
        let lines: Vec<String> = notices.values().filter_map(|notice| notice.line.as_ref()).map(plain).collect();
        // Without a place for it, there are still terminals and files.
        let _ = if lines.is_empty() {
            fs::remove_file(&self.prompt)
        } else {
            let text = lines.join("\n") + "\n";
            replace(&self.prompt, 0o644, |file| file.write_all(text.as_bytes()))
        };
    }

    fn change(&self, change: Change) {
        if let Some(writer) = &self.writer {
            let _ = writer.try_send(change);
        }
    }

    fn notices(&self) -> MutexGuard<'_, BTreeMap<Subject, Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line is a line, and moves no cursor.
fn plain(line: &String) -> String {
    Text::new(line).replace(['\n', '\t'], " ")
}

impl Change {
    fn path(&self) -> &Path {
        let (Self::Write(path, _) | Self::Remove(path)) = self;
        path
    }
}

fn make(change: &Change) -> io::Result<()> {
    match change {
        Change::Write(path, text) => replace(path, 0o644, |file| file.write_all(text.as_bytes())),
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

    #[expect(clippy::unnecessary_wraps, reason = "as it is put")]
    fn notice(line: &str, file: &'static str) -> Option<Notice> {
        Some(Notice { line: Some(line.to_owned()), file: Some((file, format!("{line}.\n"))) })
    }

    fn eventually(condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_subject_has_one_file_and_one_line() {
        let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = || {
            let mut names: Vec<_> = fs::read_dir(home.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let prompt = || fs::read_to_string(state.path().join(PROMPT)).unwrap_or_default();
        fs::write(home.path().join(FIVE), "left by an earlier server").unwrap();
        fs::write(state.path().join(PROMPT), "left too").unwrap();
        let board = Board::new(state.path(), home.path(), &[THIRTY, FIVE], |said| panic!("{said}"));
        assert_eq!(prompt(), "");
        eventually(|| files().is_empty());

        assert!(board.put(Subject::Expiry, notice("ends in 30 min", THIRTY)));
        assert!(!board.put(Subject::Expiry, notice("ends in 30 min", THIRTY)));
        board.put(Subject::Message, Some(Notice { line: Some("hello\x1b[2J\nworld".to_owned()), file: None }));
        assert_eq!(prompt(), "ends in 30 min\nhello\u{fffd}[2J world\n");
        eventually(|| files() == [THIRTY]);

        board.put(Subject::Expiry, notice("ends in 5 min", FIVE));
        eventually(|| files() == [FIVE]);
        assert_eq!(fs::read_to_string(home.path().join(FIVE)).unwrap(), "ends in 5 min.\n");
        board.put(Subject::Expiry, None);
        board.put(Subject::Message, None);
        eventually(|| files().is_empty());
        assert!(!state.path().join(PROMPT).exists() && !board.has(Subject::Expiry));
    }

    #[test]
    fn a_home_that_takes_no_files_is_told_of_once_and_again_when_it_happens_again() {
        let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (tell, told) = mpsc::channel();
        let home = place.path().join("home");
        let board = Board::new(state.path(), &home, &[], move |said| tell.send(said).unwrap());
        let write = || {
            for (line, file) in [("a", THIRTY), ("b", FIVE)] {
                board.put(Subject::Expiry, notice(line, file));
            }
        };
        write();
        let said = told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(said.contains(THIRTY) && said.contains("No such file"), "{said}");
        fs::create_dir(&home).unwrap();
        write();
        eventually(|| home.join(FIVE).exists() && !home.join(THIRTY).exists());
        fs::remove_dir_all(&home).unwrap();
        write();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(board);
        assert_eq!(told.iter().count(), 0, "only once each time");
    }

    #[test]
    fn a_home_that_takes_no_files_is_no_matter() {
        let state = tempfile::tempdir().unwrap();
        let board = Board::new(state.path(), Path::new("/dev/null/x"), &[THIRTY], drop);
        for _ in 0..2 * WAITING {
            board.put(Subject::Expiry, notice("ends", THIRTY));
            board.put(Subject::Expiry, None);
        }
        board.put(Subject::Expiry, notice("ends", THIRTY));
        assert_eq!(board.lines(), [Text::new("ends")]);
    }
}
