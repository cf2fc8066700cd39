//! With a stub that behaves as Jupyter does, as far as we can see.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::kill_process;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;

/// Says how it was started, and then does nothing, as long as it is left.
const STUB: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>says
echo $$ >>pids
echo "$JUPYTER_TOKEN" >token
test -e dies && { echo "stub: port is in use"; exit 1; }
exec sleep 1000
"#;

/// Answers for the stub on its port, as one that has a busy kernel, to those who know the token.
fn answer(listener: &TcpListener, token: &Path) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let said = lines.find_map(|line| Some(line.strip_prefix("Authorization: token ")?.to_owned()));
    let known = fs::read_to_string(token).is_ok_and(|token| said.as_deref() == Some(token.trim()));
    let status = if known { "200 OK" } else { "403 Forbidden" };
    let body = r#"[{"id": "1", "execution_state": "busy", "connections": 1, "last_activity": "x"}]"#;
    write!(&stream, "HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{body}")
}

struct Place {
    directory: TempDir,
    port: u16,
}

/// Ends its process with the test, whatever happens.
struct Here {
    notebook: Arc<Notebook>,
    task: JoinHandle<()>,
}

/// A start waits for it: it is opened when somebody reads it.
struct Obstacle(PathBuf);

impl Obstacle {
    fn remove(self) -> fs::File {
        fs::OpenOptions::new().read(true).write(true).open(self.0).unwrap()
    }
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let token = directory.path().join("token");
        // Ends with the test's process.
        thread::spawn(move || {
            loop {
                let _ = answer(&listener, &token);
            }
        });
        Self { directory, port }
    }

    fn with_jupyter(self) -> Self {
        let program = self.directory.path().join("jupyter");
        fs::write(&program, STUB).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn that_dies(self) -> Self {
        fs::write(self.directory.path().join("dies"), "").unwrap();
        self
    }

    fn notebook(&self) -> Notebook {
        let mut notebook = Notebook::begin(self.directory.path(), self.directory.path(), self.port);
        notebook.launch.path = Some(self.directory.path().as_os_str().to_owned());
        notebook
    }

    /// In the way of what a start needs.
    fn obstacle(&self) -> Obstacle {
        let log = self.directory.path().join(LOG);
        mknodat(CWD, &log, FileType::Fifo, Mode::RWXU, 0).unwrap();
        Obstacle(log)
    }

    fn run(&self) -> Here {
        let mut notebook = self.notebook();
        notebook.apart.patience = Duration::from_millis(100);
        let notebook = Arc::new(notebook);
        let task = tokio::spawn({
            let notebook = Arc::clone(&notebook);
            async move { notebook.run().await }
        });
        Here { notebook, task }
    }

    fn says(&self) -> String {
        fs::read_to_string(self.directory.path().join("says")).unwrap_or_default()
    }

    /// Of all that were started, those that still run.
    fn left(&self) -> Vec<u32> {
        let pids = fs::read_to_string(self.directory.path().join("pids")).unwrap_or_default();
        let pids = pids.lines().map(|pid| pid.parse().unwrap());
        pids.filter(|pid| Process::of(*pid).is_some_and(|process| process.runs())).collect()
    }
}

impl Here {
    /// `serve` dies, and what it started goes on.
    fn forget(self) -> Option<Process> {
        let running = self.notebook.inner().kept.running.take();
        self.task.abort();
        running.map(|running| running.process)
    }

    fn process(&self) -> Option<Process> {
        self.notebook.inner().kept.running.as_ref().map(|running| running.process)
    }

    fn token(&self) -> String {
        self.notebook.inner().kept.wanted.clone().unwrap()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(process) = self.process() {
            signal(process, Signal::KILL);
        }
    }
}

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn running(here: &Here) -> Jupyter {
    eventually("it runs", || Some(here.notebook.told()).filter(|told| told.state == JupyterState::Running)).await
}

#[tokio::test]
async fn it_runs_while_it_is_wanted() {
    let place = Place::new().with_jupyter();
    let here = place.run();
    assert_eq!(here.notebook.told().state, JupyterState::Off);
    here.notebook.want(true);
    let told = running(&here).await;
    assert_eq!((told.port, told.path.as_deref(), told.error), (Some(place.port), Some("/lab"), None));
    assert_eq!(told.token.unwrap().len(), 48);
    let says = place.says();
    assert!(
        says.starts_with(&format!("lab --no-browser --ip=127.0.0.1 --log-level=WARN --port={}", place.port)),
        "{says}"
    );
    assert!(!says.contains(&here.token()));
    assert_eq!(here.notebook.kernels(&here.token()).await.unwrap().len(), 1);

    let process = here.process().unwrap();
    here.notebook.want(false);
    eventually("it is gone", || (!process.runs() && here.process().is_none()).then_some(())).await;
    assert_eq!(
        here.notebook.told(),
        Jupyter { state: JupyterState::Off, port: None, path: None, token: None, error: None }
    );
}

#[tokio::test]
async fn one_that_dies_is_started_again() {
    let place = Place::new().with_jupyter();
    let here = place.run();
    here.notebook.want(true);
    let token = running(&here).await.token;
    let first = here.process().unwrap();
    kill_process(Pid::from_raw(i32::try_from(first.pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    eventually("another runs", || here.process().filter(|process| *process != first)).await;
    let told = running(&here).await;
    assert_eq!(told.token, token, "links people have go on working");
    assert!(told.error.unwrap().contains("ended by itself"));
}

#[tokio::test]
async fn a_start_that_takes_long_is_waited_for_and_not_repeated() {
    let place = Place::new().with_jupyter();
    let obstacle = place.obstacle();
    let here = place.run();
    here.notebook.want(true);
    let error = eventually("it is told that it takes long", || here.notebook.told().error).await;
    assert_eq!(error.as_str(), "Jupyter does not start yet: its file system does not answer");
    assert_eq!(here.notebook.told().state, JupyterState::Starting);
    let _log = obstacle.remove();
    assert_eq!(running(&here).await.error, None);
    assert_eq!((place.says().lines().count(), place.left()), (1, vec![here.process().unwrap().pid]));
}

#[tokio::test]
async fn one_that_starts_when_nobody_wants_it_any_more_is_ended() {
    let place = Place::new().with_jupyter();
    let obstacle = place.obstacle();
    let here = place.run();
    here.notebook.want(true);
    eventually("its start takes long", || here.notebook.told().error).await;
    here.notebook.want(false);
    assert_eq!(here.notebook.told().state, JupyterState::Off);
    let _log = obstacle.remove();
    eventually("it has started", || (here.process().is_some() || !place.says().is_empty()).then_some(())).await;
    eventually("it is gone", || (place.left().is_empty() && here.process().is_none()).then_some(())).await;
}

#[tokio::test]
async fn the_token_that_is_told_is_the_one_it_has_however_it_was_switched() {
    for hangs in [true, false] {
        let place = Place::new().with_jupyter();
        let obstacle = hangs.then(|| place.obstacle());
        let here = place.run();
        here.notebook.want(true);
        if hangs {
            eventually("its start takes long", || here.notebook.told().error).await;
        } else {
            running(&here).await;
        }
        let first = here.token();
        here.notebook.want(false);
        here.notebook.want(true);
        let _log = obstacle.map(Obstacle::remove);
        // Only to who knows its token does it answer.
        let token = running(&here).await.token.unwrap();
        assert_ne!(token.as_str(), first);
        assert_eq!(fs::read_to_string(place.directory.path().join("token")).unwrap().trim(), token.as_str());
        eventually("the other is gone", || (place.left() == [here.process()?.pid]).then_some(())).await;
    }
}

#[tokio::test]
async fn a_new_serve_adopts_it() {
    let place = Place::new().with_jupyter();
    let first = place.run();
    first.notebook.want(true);
    let token = running(&first).await.token;
    let process = first.forget().unwrap();
    assert!(process.runs());
    let second = place.run();
    assert_eq!(running(&second).await.token, token);
    assert_eq!(second.process(), Some(process));
    assert_eq!(place.says().lines().count(), 1);
    second.notebook.want(false);
    eventually("it is gone", || (!process.runs()).then_some(())).await;
}

#[tokio::test]
async fn an_image_without_it_is_told_so_until_it_has_it() {
    let place = Place::new();
    let here = place.run();
    here.notebook.want(true);
    let told = here.notebook.settled(Duration::from_secs(10)).await;
    assert_eq!((told.state, told.port), (JupyterState::Absent, None));
    assert_eq!(told.error.as_deref(), Some(launch::ABSENT));
}

#[tokio::test]
async fn one_that_cannot_live_says_why_and_is_not_tried_without_pause() {
    let place = Place::new().with_jupyter().that_dies();
    let here = place.run();
    here.notebook.want(true);
    let error = eventually("it has died", || here.notebook.told().error).await;
    assert!(error.contains("Its last words: stub: port is in use"), "{error}");
    assert_eq!(here.notebook.told().state, JupyterState::Restarting);
    here.notebook.want(false);
    eventually("nobody wants it", || (here.notebook.told().state == JupyterState::Off).then_some(())).await;
}

#[test]
fn pauses_grow_and_end() {
    let seconds: Vec<u64> = [0, 1, 2, 5, 6, 7, 100].into_iter().map(|deaths| pause(deaths).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 32, 60, 60, 60]);
}

#[test]
fn the_best_there_is_is_found() {
    let place = Place::new();
    let launch =
        || place.notebook().launch.find().map(|(flavor, program)| (flavor, program.file_name().unwrap().to_owned()));
    let add = |name: &str| {
        let path = place.directory.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    assert_eq!(launch(), None);
    for (name, flavor) in [
        ("jupyter", Flavor::Lab),
        ("jupyter-server", Flavor::Server),
        ("jupyter-notebook", Flavor::Notebook),
        ("jupyter-lab", Flavor::Lab),
    ] {
        add(name);
        assert_eq!(launch(), Some((flavor, name.into())));
    }
}
