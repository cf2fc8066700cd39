//! Tests with a stub of Jupyter.

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

/// Records how it was started, and sleeps.
const STUB: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>arguments
echo $$ >>pids
echo "$JUPYTER_TOKEN" >token
test -e exits && { echo "stub: port is in use"; exit 1; }
exec sleep 1000
"#;

/// Serves one request for the stub: one busy kernel, if the token is correct.
fn serve_request(listener: &TcpListener, token: &Path) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let presented = lines.find_map(|line| Some(line.strip_prefix("Authorization: token ")?.to_owned()));
    let is_valid = fs::read_to_string(token).is_ok_and(|token| presented.as_deref() == Some(token.trim()));
    let status = if is_valid { "200 OK" } else { "403 Forbidden" };
    let body = r#"[{"id": "1", "execution_state": "busy", "connections": 1, "last_activity": "x"}]"#;
    write!(&stream, "HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{body}")
}

struct Fixture {
    directory: TempDir,
    port: u16,
}

/// Kills its process when dropped.
struct RunningSupervisor {
    supervisor: Arc<Supervisor>,
    task: JoinHandle<()>,
}

/// A FIFO in place of the log. A start blocks until the FIFO is opened.
struct BlockedLog(PathBuf);

impl BlockedLog {
    fn unblock(self) -> fs::File {
        fs::OpenOptions::new().read(true).write(true).open(self.0).unwrap()
    }
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let token = directory.path().join("token");
        // The thread runs until the test process exits.
        thread::spawn(move || {
            loop {
                let _ = serve_request(&listener, &token);
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

    fn that_exits(self) -> Self {
        fs::write(self.directory.path().join("exits"), "").unwrap();
        self
    }

    fn supervisor(&self) -> Supervisor {
        let mut supervisor = Supervisor::load(self.directory.path(), self.directory.path(), self.port);
        supervisor.launch.path = Some(self.directory.path().as_os_str().to_owned());
        supervisor
    }

    /// Makes a start block.
    fn block_log(&self) -> BlockedLog {
        let log = self.directory.path().join(LOG);
        mknodat(CWD, &log, FileType::Fifo, Mode::RWXU, 0).unwrap();
        BlockedLog(log)
    }

    fn run(&self) -> RunningSupervisor {
        let mut supervisor = self.supervisor();
        supervisor.blocking.timeout = Duration::from_millis(100);
        let supervisor = Arc::new(supervisor);
        let task = tokio::spawn({
            let supervisor = Arc::clone(&supervisor);
            async move { supervisor.run().await }
        });
        RunningSupervisor { supervisor, task }
    }

    fn arguments(&self) -> String {
        fs::read_to_string(self.directory.path().join("arguments")).unwrap_or_default()
    }

    /// Returns the PIDs of started processes that still run.
    fn running_pids(&self) -> Vec<u32> {
        let pids = fs::read_to_string(self.directory.path().join("pids")).unwrap_or_default();
        let pids = pids.lines().map(|pid| pid.parse().unwrap());
        pids.filter(|pid| ProcessId::of_pid(*pid).is_some_and(|process| process.is_running())).collect()
    }
}

impl RunningSupervisor {
    /// Simulates the exit of `serve`; the process continues.
    fn detach(self) -> Option<ProcessId> {
        let running = self.supervisor.inner().persisted.running.take();
        self.task.abort();
        running.map(|running| running.process)
    }

    fn process(&self) -> Option<ProcessId> {
        self.supervisor.inner().persisted.running.as_ref().map(|running| running.process)
    }

    fn token(&self) -> String {
        self.supervisor.inner().persisted.token.clone().unwrap()
    }
}

impl Drop for RunningSupervisor {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(process) = self.process() {
            signal_group(process, Signal::KILL);
        }
    }
}

async fn wait_until<T>(condition: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "timed out waiting until {condition}");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn wait_running(jupyter: &RunningSupervisor) -> Jupyter {
    wait_until("it runs", || Some(jupyter.supervisor.status()).filter(|status| status.state == JupyterState::Running))
        .await
}

#[tokio::test]
async fn server_runs_while_enabled() {
    let fixture = Fixture::new().with_jupyter();
    let jupyter = fixture.run();
    assert_eq!(jupyter.supervisor.status().state, JupyterState::Off);
    jupyter.supervisor.set_enabled(true);
    let status = wait_running(&jupyter).await;
    assert_eq!((status.port, status.path.as_deref(), status.error), (Some(fixture.port), Some("/lab"), None));
    assert_eq!(status.token.unwrap().len(), 48);
    let arguments = fixture.arguments();
    assert!(
        arguments.starts_with(&format!("lab --no-browser --ip=127.0.0.1 --log-level=WARN --port={}", fixture.port)),
        "{arguments}"
    );
    assert!(!arguments.contains(&jupyter.token()));
    assert_eq!(jupyter.supervisor.kernels(&jupyter.token()).await.unwrap().len(), 1);

    let process = jupyter.process().unwrap();
    jupyter.supervisor.set_enabled(false);
    wait_until("it has exited", || (!process.is_running() && jupyter.process().is_none()).then_some(())).await;
    assert_eq!(
        jupyter.supervisor.status(),
        Jupyter { state: JupyterState::Off, port: None, path: None, token: None, error: None }
    );
}

#[tokio::test]
async fn exited_server_is_restarted() {
    let fixture = Fixture::new().with_jupyter();
    let jupyter = fixture.run();
    jupyter.supervisor.set_enabled(true);
    let token = wait_running(&jupyter).await.token;
    let first = jupyter.process().unwrap();
    kill_process(Pid::from_raw(i32::try_from(first.pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("another runs", || jupyter.process().filter(|process| *process != first)).await;
    let status = wait_running(&jupyter).await;
    assert_eq!(status.token, token, "existing URLs stay valid");
    assert!(status.error.unwrap().contains("exited unexpectedly"));
}

#[tokio::test]
async fn slow_start_is_awaited_and_not_repeated() {
    let fixture = Fixture::new().with_jupyter();
    let blocked_log = fixture.block_log();
    let jupyter = fixture.run();
    jupyter.supervisor.set_enabled(true);
    let error = wait_until("the delay is reported", || jupyter.supervisor.status().error).await;
    assert_eq!(error.as_str(), "waiting to start Jupyter: the file system is not responding");
    assert_eq!(jupyter.supervisor.status().state, JupyterState::Starting);
    let _log = blocked_log.unblock();
    assert_eq!(wait_running(&jupyter).await.error, None);
    assert_eq!(
        (fixture.arguments().lines().count(), fixture.running_pids()),
        (1, vec![jupyter.process().unwrap().pid])
    );
}

#[tokio::test]
async fn server_that_starts_after_disable_is_stopped() {
    let fixture = Fixture::new().with_jupyter();
    let blocked_log = fixture.block_log();
    let jupyter = fixture.run();
    jupyter.supervisor.set_enabled(true);
    wait_until("the delay is reported", || jupyter.supervisor.status().error).await;
    jupyter.supervisor.set_enabled(false);
    assert_eq!(jupyter.supervisor.status().state, JupyterState::Off);
    let _log = blocked_log.unblock();
    wait_until("it has started", || (jupyter.process().is_some() || !fixture.arguments().is_empty()).then_some(()))
        .await;
    wait_until("it has exited", || (fixture.running_pids().is_empty() && jupyter.process().is_none()).then_some(()))
        .await;
}

#[tokio::test]
async fn reported_token_is_valid_after_toggling() {
    for blocked in [true, false] {
        let fixture = Fixture::new().with_jupyter();
        let blocked_log = blocked.then(|| fixture.block_log());
        let jupyter = fixture.run();
        jupyter.supervisor.set_enabled(true);
        if blocked {
            wait_until("the delay is reported", || jupyter.supervisor.status().error).await;
        } else {
            wait_running(&jupyter).await;
        }
        let first = jupyter.token();
        jupyter.supervisor.set_enabled(false);
        jupyter.supervisor.set_enabled(true);
        let _log = blocked_log.map(BlockedLog::unblock);
        // The stub accepts only its own token.
        let token = wait_running(&jupyter).await.token.unwrap();
        assert_ne!(token.as_str(), first);
        assert_eq!(fs::read_to_string(fixture.directory.path().join("token")).unwrap().trim(), token.as_str());
        wait_until("the first one has exited", || (fixture.running_pids() == [jupyter.process()?.pid]).then_some(()))
            .await;
    }
}

#[tokio::test]
async fn restarted_serve_adopts_the_server() {
    let fixture = Fixture::new().with_jupyter();
    let first = fixture.run();
    first.supervisor.set_enabled(true);
    let token = wait_running(&first).await.token;
    let process = first.detach().unwrap();
    assert!(process.is_running());
    let second = fixture.run();
    assert_eq!(wait_running(&second).await.token, token);
    assert_eq!(second.process(), Some(process));
    assert_eq!(fixture.arguments().lines().count(), 1);
    second.supervisor.set_enabled(false);
    wait_until("it has exited", || (!process.is_running()).then_some(())).await;
}

#[tokio::test]
async fn image_without_jupyter_is_reported() {
    let fixture = Fixture::new();
    let jupyter = fixture.run();
    jupyter.supervisor.set_enabled(true);
    let status = jupyter.supervisor.wait_settled(Duration::from_secs(10)).await;
    assert_eq!((status.state, status.port), (JupyterState::Absent, None));
    assert_eq!(status.error.as_deref(), Some(launch::ABSENT));
}

#[tokio::test]
async fn crashing_server_reports_its_log_and_backs_off() {
    let fixture = Fixture::new().with_jupyter().that_exits();
    let jupyter = fixture.run();
    jupyter.supervisor.set_enabled(true);
    let error = wait_until("it has exited", || jupyter.supervisor.status().error).await;
    assert!(error.contains("Last log lines: stub: port is in use"), "{error}");
    assert_eq!(jupyter.supervisor.status().state, JupyterState::Restarting);
    jupyter.supervisor.set_enabled(false);
    wait_until("it is disabled", || (jupyter.supervisor.status().state == JupyterState::Off).then_some(())).await;
}

#[test]
fn preferred_front_end_is_found() {
    let fixture = Fixture::new();
    let launch = || {
        fixture
            .supervisor()
            .launch
            .find()
            .map(|(front_end, program)| (front_end, program.file_name().unwrap().to_owned()))
    };
    let add = |name: &str| {
        let path = fixture.directory.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    assert_eq!(launch(), None);
    for (name, front_end) in [
        ("jupyter", FrontEnd::Lab),
        ("jupyter-server", FrontEnd::Server),
        ("jupyter-notebook", FrontEnd::Notebook),
        ("jupyter-lab", FrontEnd::Lab),
    ] {
        add(name);
        assert_eq!(launch(), Some((front_end, name.into())));
    }
}
