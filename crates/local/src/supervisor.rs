//! Keeps the parts of a cloud running: starts each when what it needs is ready, restarts what dies with back-off,
//! adopts what an earlier supervisor started, ends all in reverse order.
//!
//! ```text
//! Waiting ─► Starting ─► Ready ─┐
//!    ▲                          │ ended
//!    └───────── BackOff ◄───────┘
//! ```
//! It is level-triggered: [`Supervisor::apply`] takes the whole list of parts that should run and makes it so.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::part::{Ending, Kind, Part};
use crate::process::{Process, Record};

/// Between two questions to a part that is starting.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// A part that is not ready by then is started anew.
const READY_LIMIT: Duration = Duration::from_secs(120);
const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const LAST_BACK_OFF: Duration = Duration::from_secs(10);
/// A part that ran this long has earned a quick restart again.
const STEADY: Duration = Duration::from_secs(60);
/// A log larger than this is put aside before the next start.
const LOG_LIMIT: u64 = 20 << 20;

/// Whether the processes outlive us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// They do, and the next supervisor adopts them.
    Detached,
    /// The kernel ends them with the thread that started them: for tests, which must leave nothing behind.
    Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Waiting,
    Starting,
    Ready,
    BackOff,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    pub state: State,
    pub pid: Option<i32>,
    pub restarts: u32,
    /// Why it is not ready, or why it was restarted last.
    pub message: String,
}

/// What all parts are doing, by name.
pub type Snapshot = BTreeMap<String, PartStatus>;

#[derive(Debug)]
pub struct Supervisor {
    layout: Layout,
    lifetime: Lifetime,
    keepers: HashMap<String, Keeper>,
    board: Arc<watch::Sender<Snapshot>>,
}

#[derive(Debug)]
struct Keeper {
    part: Part,
    task: JoinHandle<()>,
}

impl Supervisor {
    pub fn new(layout: Layout, lifetime: Lifetime) -> anyhow::Result<Self> {
        for directory in [layout.run(), layout.logs(), layout.config()] {
            std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        }
        Ok(Self { layout, lifetime, keepers: HashMap::new(), board: Arc::new(watch::Sender::new(Snapshot::new())) })
    }

    pub fn watch(&self) -> watch::Receiver<Snapshot> {
        self.board.subscribe()
    }

    /// Makes exactly these parts run. What is gone from the list or has changed is ended first.
    pub async fn apply(&mut self, parts: Vec<Part>) -> anyhow::Result<()> {
        let wanted: HashMap<&str, String> = parts.iter().map(|part| (part.name.as_str(), part.fingerprint())).collect();
        let outdated: Vec<String> = self
            .keepers
            .values()
            .filter(|keeper| wanted.get(keeper.part.name.as_str()) != Some(&keeper.part.fingerprint()))
            .map(|keeper| keeper.part.name.clone())
            .collect();
        for name in &outdated {
            self.release(name).await;
        }
        // Also what an earlier supervisor started and nobody wants any more, or wants differently.
        let leftover = |record: &Record| {
            !self.keepers.contains_key(&record.name) && wanted.get(record.name.as_str()) != Some(&record.fingerprint)
        };
        let leftovers: Vec<Record> = Record::load_all(&self.layout.run()).into_iter().filter(leftover).collect();
        end_in_order(&self.layout.run(), leftovers).await?;
        for part in parts {
            if !self.keepers.contains_key(&part.name) {
                self.keep(part);
            }
        }
        Ok(())
    }

    /// Stops watching; the processes go on. The next supervisor adopts them.
    pub async fn let_go(&mut self) {
        let names: Vec<String> = self.keepers.keys().cloned().collect();
        for name in names {
            self.release(&name).await;
        }
    }

    /// Ends every part, none before what needs it.
    pub async fn end_all(&mut self) -> anyhow::Result<()> {
        self.let_go().await;
        end_in_order(&self.layout.run(), Record::load_all(&self.layout.run())).await
    }

    /// Stops watching the parts of one node.
    pub async fn release_node(&mut self, node: NodeIndex) {
        let names: Vec<String> = self
            .keepers
            .values()
            .filter(|keeper| keeper.part.node == Some(node))
            .map(|keeper| keeper.part.name.clone())
            .collect();
        for name in names {
            self.release(&name).await;
        }
    }

    async fn release(&mut self, name: &str) {
        if let Some(keeper) = self.keepers.remove(name) {
            keeper.task.abort();
            // A cancelled task is the expected end here.
            let _ = keeper.task.await;
            self.board.send_modify(|snapshot| {
                snapshot.remove(name);
            });
        }
    }

    fn keep(&mut self, part: Part) {
        let watcher = Watch {
            run: self.layout.run(),
            log: self.layout.log_of(&part.name),
            part: match self.lifetime {
                Lifetime::Detached => part.clone(),
                Lifetime::Bound => bound(part.clone()),
            },
            fingerprint: part.fingerprint(),
            board: self.board.clone(),
        };
        watcher.post(State::Waiting, None, String::new());
        let task = tokio::spawn(watcher.keep());
        self.keepers.insert(part.name.clone(), Keeper { part, task });
    }
}

/// One part's life.
struct Watch {
    part: Part,
    /// Of the part as described; what it is wrapped in does not count.
    fingerprint: String,
    run: PathBuf,
    log: PathBuf,
    board: Arc<watch::Sender<Snapshot>>,
}

impl Watch {
    async fn keep(self) {
        let mut back_off = FIRST_BACK_OFF;
        loop {
            self.needs_ready().await;
            let since = Instant::now();
            let message = match self.live().await {
                Ok(never) => match never {},
                Err(error) => format!("{error:#}"),
            };
            if since.elapsed() >= STEADY {
                back_off = FIRST_BACK_OFF;
            }
            warn!(part = self.part.name, "{message}; starting it again in {back_off:?}");
            self.board.send_modify(|snapshot| {
                if let Some(status) = snapshot.get_mut(&self.part.name) {
                    status.restarts += 1;
                }
            });
            self.post(State::BackOff, None, message);
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(LAST_BACK_OFF);
        }
    }

    async fn needs_ready(&self) {
        let mut board = self.board.subscribe();
        let ready = |snapshot: &Snapshot| {
            self.part.needs.iter().all(|need| snapshot.get(need).is_some_and(|status| status.state == State::Ready))
        };
        // The sender lives as long as we do.
        let _ = board.wait_for(ready).await;
    }

    /// From start (or adoption) to end; always an error, since a service should not end.
    async fn live(&self) -> anyhow::Result<std::convert::Infallible> {
        let process = match self.adopted() {
            Some(process) => process,
            None => self.start().await?,
        };
        self.post(State::Starting, Some(process.pid()), String::new());
        let Kind::Service(probe) = &self.part.kind else { return self.finish(process).await };
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let reason = tokio::select! {
                exit = process.ended() => anyhow::bail!("ended while starting ({exit})"),
                answer = probe.ask() => match answer {
                    Ok(()) => break,
                    Err(error) => error.to_string(),
                },
            };
            self.post(State::Starting, Some(process.pid()), reason.clone());
            if Instant::now() > deadline {
                process.end(self.part.ending).await?;
                anyhow::bail!("not ready after {} s ({reason})", READY_LIMIT.as_secs());
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        info!(part = self.part.name, pid = process.pid(), "ready");
        self.post(State::Ready, Some(process.pid()), String::new());
        let exit = process.ended().await;
        Record::remove(&self.run, &self.part.name);
        anyhow::bail!("ended ({exit})")
    }

    /// A job that ended well stays ready for good.
    async fn finish(&self, process: Process) -> anyhow::Result<std::convert::Infallible> {
        use crate::process::Exit;
        let exit = process.ended().await;
        Record::remove(&self.run, &self.part.name);
        anyhow::ensure!(exit == Exit::Code(0), "failed ({exit})");
        self.post(State::Ready, None, String::new());
        std::future::pending().await
    }

    /// A job that was under way is run again instead: how it ended would not be known.
    fn adopted(&self) -> Option<Process> {
        let record = Record::load(&self.run, &self.part.name)?;
        if record.fingerprint != self.fingerprint || matches!(self.part.kind, Kind::Job) {
            return None;
        }
        let process = Process::adopt(&record)?;
        info!(part = self.part.name, pid = process.pid(), "adopted");
        Some(process)
    }

    async fn start(&self) -> anyhow::Result<Process> {
        // A job of an earlier supervisor that is still at it must not get company.
        if let Some(earlier) = Record::load(&self.run, &self.part.name).and_then(|record| Process::adopt(&record)) {
            earlier.end(self.part.ending).await?;
        }
        Process::end_strays(&self.part, &self.log).await?;
        if std::fs::metadata(&self.log).is_ok_and(|log| log.len() > LOG_LIMIT) {
            std::fs::rename(&self.log, self.log.with_extension("log.1"))?;
        }
        // From here to the record no `await`: a cancelled keeper leaves nothing unrecorded.
        let process = Process::start(&self.part, &self.log)?;
        if let Some(mut record) = process.record(&self.part)? {
            record.fingerprint.clone_from(&self.fingerprint);
            record.store(&self.run)?;
        }
        info!(part = self.part.name, pid = process.pid(), "started");
        Ok(process)
    }

    fn post(&self, state: State, pid: Option<i32>, message: String) {
        self.board.send_if_modified(|snapshot| {
            let restarts = snapshot.get(&self.part.name).map_or(0, |status| status.restarts);
            let next = PartStatus { state, pid, restarts, message };
            let changed = snapshot.get(&self.part.name) != Some(&next);
            snapshot.insert(self.part.name.clone(), next);
            changed
        });
    }
}

/// The guard comes last before the command: a change of user would take it off again.
fn bound(part: Part) -> Part {
    let signal = match part.ending {
        Ending::Terminate { .. } => "KILL",
        // PostgreSQL leaves shared memory behind when it is killed.
        Ending::Interrupt { .. } => "INT",
    };
    part.wrapper(["setpriv", "--pdeathsig", signal, "--"])
}

/// Ends recorded processes so that nothing ends before what needs it. Those of one layer end together.
pub async fn end_in_order(run: &std::path::Path, mut records: Vec<Record>) -> anyhow::Result<()> {
    while !records.is_empty() {
        let needed = |name: &str| records.iter().any(|record| record.needs.iter().any(|need| need == name));
        let (keep, mut end): (Vec<_>, Vec<_>) = records.iter().cloned().partition(|record| needed(&record.name));
        if end.is_empty() {
            // A circle can only come from damaged records; then order means nothing.
            end.clone_from(&keep);
            records.clear();
        } else {
            records = keep;
        }
        let endings = end.into_iter().map(|record| {
            let run = run.to_path_buf();
            tokio::spawn(async move {
                if let Some(process) = Process::adopt(&record) {
                    process.end(record.ending).await.with_context(|| format!("ending {}", record.name))?;
                }
                Record::remove(&run, &record.name);
                anyhow::Ok(())
            })
        });
        for ending in endings.collect::<Vec<_>>() {
            ending.await??;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;

    struct Bench {
        _directory: tempfile::TempDir,
        layout: Layout,
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self { layout: Layout::new(directory.path().into()), _directory: directory }
        }

        fn supervisor(&self, lifetime: Lifetime) -> Supervisor {
            Supervisor::new(self.layout.clone(), lifetime).unwrap()
        }

        fn lines(&self, file: &str) -> Vec<String> {
            std::fs::read_to_string(self.layout.root().join(file)).unwrap_or_default().lines().map(Into::into).collect()
        }

        /// Notes its start and its end in `events`, and is ready at once.
        fn service(&self, name: &str) -> Part {
            let events = self.layout.root().join("events");
            let script = format!(
                "echo start {name} >> {0}; trap 'echo end {name} >> {0}; exit 0' TERM; while :; do sleep 0.05; done",
                events.display()
            );
            Part::new(name).command(["sh", "-c"]).command([script]).ready(Probe::Command(vec![
                "grep".into(),
                "-q".into(),
                format!("start {name}"),
                events.display().to_string(),
            ]))
        }
    }

    async fn until(supervisor: &Supervisor, what: impl FnMut(&Snapshot) -> bool) -> Snapshot {
        let mut board = supervisor.watch();
        tokio::time::timeout(Duration::from_secs(20), board.wait_for(what)).await.expect("in time").unwrap().clone()
    }

    fn all_ready(snapshot: &Snapshot) -> bool {
        snapshot.values().all(|status| status.state == State::Ready)
    }

    #[tokio::test]
    async fn parts_start_after_what_they_need_and_end_before_it() {
        let bench = Bench::new();
        let mut supervisor = bench.supervisor(Lifetime::Detached);
        let parts = vec![bench.service("c").needs("b"), bench.service("b").needs("a"), bench.service("a")];
        supervisor.apply(parts).await.unwrap();
        until(&supervisor, all_ready).await;
        supervisor.end_all().await.unwrap();
        assert_eq!(bench.lines("events"), ["start a", "start b", "start c", "end c", "end b", "end a"]);
        assert!(Record::load_all(&bench.layout.run()).is_empty());
    }

    #[tokio::test]
    async fn what_dies_is_started_again() {
        let bench = Bench::new();
        let mut supervisor = bench.supervisor(Lifetime::Detached);
        supervisor.apply(vec![bench.service("a")]).await.unwrap();
        let first = until(&supervisor, all_ready).await["a"].pid.unwrap();
        let record = Record::load(&bench.layout.run(), "a").unwrap();
        Process::adopt(&record).unwrap().signal(rustix::process::Signal::KILL).unwrap();
        let second =
            until(&supervisor, |snapshot| all_ready(snapshot) && snapshot["a"].restarts == 1).await["a"].pid.unwrap();
        assert_ne!(first, second);
        supervisor.end_all().await.unwrap();
    }

    #[tokio::test]
    async fn a_later_supervisor_adopts_what_runs_and_restarts_only_what_changed() {
        let bench = Bench::new();
        let mut first = bench.supervisor(Lifetime::Detached);
        first.apply(vec![bench.service("same"), bench.service("changed"), bench.service("unwanted")]).await.unwrap();
        let before = until(&first, all_ready).await;
        first.let_go().await;
        drop(first);

        let mut second = bench.supervisor(Lifetime::Detached);
        second.apply(vec![bench.service("same"), bench.service("changed").environment("X", "1")]).await.unwrap();
        let after = until(&second, all_ready).await;
        assert_eq!(after["same"].pid, before["same"].pid);
        assert_ne!(after["changed"].pid, before["changed"].pid);
        assert!(!after.contains_key("unwanted"));
        assert!(bench.lines("events").contains(&"end unwanted".into()));
        second.end_all().await.unwrap();
    }

    #[tokio::test]
    async fn a_process_that_was_never_written_down_does_not_stay() {
        let bench = Bench::new();
        let mut first = bench.supervisor(Lifetime::Detached);
        let sleeper = || Part::new("sleeper").command(["sleep", "1000"]).ready(Probe::Command(vec!["true".into()]));
        first.apply(vec![sleeper()]).await.unwrap();
        let before = until(&first, all_ready).await["sleeper"].pid.unwrap();
        first.let_go().await;
        Record::remove(&bench.layout.run(), "sleeper");

        let mut second = bench.supervisor(Lifetime::Detached);
        second.apply(vec![sleeper()]).await.unwrap();
        let after = until(&second, all_ready).await["sleeper"].pid.unwrap();
        assert_ne!(after, before);
        let state = std::fs::read_to_string(format!("/proc/{before}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
        second.end_all().await.unwrap();
    }

    #[tokio::test]
    async fn the_same_list_twice_changes_nothing() {
        let bench = Bench::new();
        let mut supervisor = bench.supervisor(Lifetime::Detached);
        supervisor.apply(vec![bench.service("a")]).await.unwrap();
        let before = until(&supervisor, all_ready).await;
        supervisor.apply(vec![bench.service("a")]).await.unwrap();
        assert_eq!(*supervisor.watch().borrow(), before);
        supervisor.end_all().await.unwrap();
        assert_eq!(bench.lines("events"), ["start a", "end a"]);
    }

    #[tokio::test]
    async fn a_failing_job_is_repeated_until_it_succeeds_and_holds_back_what_needs_it() {
        let bench = Bench::new();
        let mut supervisor = bench.supervisor(Lifetime::Detached);
        let marks = bench.layout.root().join("marks");
        let script = format!("echo try >> {0}; [ $(wc -l < {0}) -ge 2 ]", marks.display());
        supervisor
            .apply(vec![Part::new("job").command(["sh", "-c"]).command([script]), bench.service("after").needs("job")])
            .await
            .unwrap();
        let snapshot = until(&supervisor, all_ready).await;
        assert_eq!(snapshot["job"].restarts, 1);
        assert_eq!(bench.lines("marks"), ["try", "try"]);
        supervisor.end_all().await.unwrap();
    }
}
