//! Runs the components of a cluster: starts each when its dependencies are ready, restarts it with backoff when it exits,
//! adopts processes of an earlier supervisor, and stops all in reverse order.
//!
//! ```text
//! Waiting ─► Starting ─► Ready ─┐
//!    ▲                          │ exited
//!    └───────── BackOff ◄───────┘
//! ```
//! It is level-triggered: [`Supervisor::apply`] takes the complete list of components that should run.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use odc_api::duration::format_seconds;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::component::{Component, Kind, StopSignal};
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::process::{Exit, Process, Record};

/// Interval between readiness probes of a starting component.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// A component that is not ready after this time is restarted.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Uptime after which the backoff starts again from its initial delay.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);
/// A larger log is rotated before the next start.
const MAX_LOG_BYTES: u64 = 20 << 20;

/// Whether components outlive the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// They keep running, and the next supervisor adopts them.
    Detached,
    /// The kernel kills them with the thread that started them (`PR_SET_PDEATHSIG`), so that tests leave no processes
    /// behind.
    DiesWithParent,
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
pub struct ComponentStatus {
    pub state: State,
    pub pid: Option<i32>,
    pub restarts: u32,
    /// Why it is not ready, or why it was restarted last.
    pub message: String,
}

/// Status of every component, by name.
pub type Statuses = BTreeMap<String, ComponentStatus>;

#[derive(Debug)]
pub struct Supervisor {
    layout: Layout,
    lifetime: Lifetime,
    running: HashMap<String, RunningComponent>,
    statuses: Arc<watch::Sender<Statuses>>,
}

#[derive(Debug)]
struct RunningComponent {
    component: Component,
    task: JoinHandle<()>,
}

impl Supervisor {
    pub fn new(layout: Layout, lifetime: Lifetime) -> anyhow::Result<Self> {
        for directory in [layout.run(), layout.logs(), layout.config()] {
            std::fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        }
        Ok(Self { layout, lifetime, running: HashMap::new(), statuses: Arc::new(watch::Sender::new(Statuses::new())) })
    }

    pub fn watch(&self) -> watch::Receiver<Statuses> {
        self.statuses.subscribe()
    }

    /// Runs exactly these components. Components that were removed or changed are stopped first.
    pub async fn apply(&mut self, components: Vec<Component>) -> anyhow::Result<()> {
        let desired: HashMap<&str, String> =
            components.iter().map(|component| (component.name.as_str(), component.fingerprint())).collect();
        let outdated: Vec<String> = self
            .running
            .values()
            .map(|running| &running.component)
            .filter(|component| desired.get(component.name.as_str()) != Some(&component.fingerprint()))
            .map(|component| component.name.clone())
            .collect();
        for name in &outdated {
            self.detach_component(name).await;
        }
        // Includes processes of an earlier supervisor that are no longer desired, or desired with another definition.
        let is_stale = |record: &Record| {
            !self.running.contains_key(&record.name) && desired.get(record.name.as_str()) != Some(&record.fingerprint)
        };
        let stale: Vec<Record> = Record::load_all(&self.layout.run()).into_iter().filter(is_stale).collect();
        stop_in_dependency_order(&self.layout.run(), stale).await?;
        for component in components {
            if !self.running.contains_key(&component.name) {
                self.spawn(component);
            }
        }
        Ok(())
    }

    /// Stops supervising and leaves the processes running, for the next supervisor to adopt.
    pub async fn detach(&mut self) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        for name in names {
            self.detach_component(&name).await;
        }
    }

    /// Stops every component, dependents before their dependencies.
    pub async fn stop_all(&mut self) -> anyhow::Result<()> {
        self.detach().await;
        stop_in_dependency_order(&self.layout.run(), Record::load_all(&self.layout.run())).await
    }

    /// Stops supervising the components of one node.
    pub async fn detach_node(&mut self, node: NodeIndex) {
        let names: Vec<String> = self
            .running
            .values()
            .filter(|running| running.component.node == Some(node))
            .map(|running| running.component.name.clone())
            .collect();
        for name in names {
            self.detach_component(&name).await;
        }
    }

    async fn detach_component(&mut self, name: &str) {
        if let Some(running) = self.running.remove(name) {
            running.task.abort();
            // Returns the cancellation error of the abort.
            let _ = running.task.await;
            self.statuses.send_modify(|statuses| {
                statuses.remove(name);
            });
        }
    }

    fn spawn(&mut self, component: Component) {
        let task = ComponentTask {
            run: self.layout.run(),
            log: self.layout.component_log(&component.name),
            component: match self.lifetime {
                Lifetime::Detached => component.clone(),
                Lifetime::DiesWithParent => with_parent_death_signal(component.clone()),
            },
            fingerprint: component.fingerprint(),
            statuses: self.statuses.clone(),
        };
        task.set_status(State::Waiting, None, String::new());
        let task = tokio::spawn(task.run());
        self.running.insert(component.name.clone(), RunningComponent { component, task });
    }
}

/// Supervises one component.
struct ComponentTask {
    component: Component,
    /// Of the component as defined, without the wrapper of [`with_parent_death_signal`].
    fingerprint: String,
    run: PathBuf,
    log: PathBuf,
    statuses: Arc<watch::Sender<Statuses>>,
}

impl ComponentTask {
    async fn run(self) {
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF, BACKOFF_RESET_AFTER);
        loop {
            self.wait_for_dependencies().await;
            let started = Instant::now();
            let message = match self.run_once().await {
                Ok(never) => match never {},
                Err(error) => format!("{error:#}"),
            };
            let delay = backoff.next_delay(started.elapsed());
            warn!(component = self.component.name, "{message}; restarting in {delay:?}");
            self.statuses.send_modify(|statuses| {
                if let Some(status) = statuses.get_mut(&self.component.name) {
                    status.restarts += 1;
                }
            });
            self.set_status(State::BackOff, None, message);
            tokio::time::sleep(delay).await;
        }
    }

    async fn wait_for_dependencies(&self) {
        let mut statuses = self.statuses.subscribe();
        let ready = |statuses: &Statuses| {
            let mut dependencies = self.component.depends_on.iter();
            dependencies.all(|name| statuses.get(name).is_some_and(|status| status.state == State::Ready))
        };
        // Cannot fail: this task holds the sender.
        let _ = statuses.wait_for(ready).await;
    }

    /// Starts or adopts the process and waits until it exits, which is always an error for a service.
    async fn run_once(&self) -> anyhow::Result<Infallible> {
        let process = match self.try_adopt() {
            Some(process) => process,
            None => self.start().await?,
        };
        self.set_status(State::Starting, Some(process.pid()), String::new());
        let Kind::Service(probe) = &self.component.kind else { return self.wait_for_completion(process).await };
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let reason = tokio::select! {
                exit = process.wait() => anyhow::bail!("exited while starting ({exit})"),
                result = probe.check() => match result {
                    Ok(()) => break,
                    Err(error) => error.to_string(),
                },
            };
            self.set_status(State::Starting, Some(process.pid()), reason.clone());
            if Instant::now() > deadline {
                process.stop(self.component.stop_signal).await?;
                anyhow::bail!("not ready after {} ({reason})", format_seconds(READY_TIMEOUT.as_secs()));
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
        info!(component = self.component.name, pid = process.pid(), "ready");
        self.set_status(State::Ready, Some(process.pid()), String::new());
        let exit = process.wait().await;
        Record::remove(&self.run, &self.component.name);
        anyhow::bail!("exited ({exit})")
    }

    /// Waits for a one-shot component, which stays ready once it has succeeded.
    async fn wait_for_completion(&self, process: Process) -> anyhow::Result<Infallible> {
        let exit = process.wait().await;
        Record::remove(&self.run, &self.component.name);
        anyhow::ensure!(exit == Exit::Code(0), "failed ({exit})");
        self.set_status(State::Ready, None, String::new());
        std::future::pending().await
    }

    /// Adopts the process of an earlier supervisor. One-shot components are run again instead, because the exit code of
    /// a process that is not a child is unknown.
    fn try_adopt(&self) -> Option<Process> {
        let record = Record::load(&self.run, &self.component.name)?;
        if record.fingerprint != self.fingerprint || matches!(self.component.kind, Kind::OneShot) {
            return None;
        }
        let process = Process::adopt(&record)?;
        info!(component = self.component.name, pid = process.pid(), "adopted");
        Some(process)
    }

    async fn start(&self) -> anyhow::Result<Process> {
        // A one-shot process of an earlier supervisor may still be running.
        if let Some(earlier) = Record::load(&self.run, &self.component.name).and_then(|record| Process::adopt(&record))
        {
            earlier.stop(self.component.stop_signal).await?;
        }
        Process::kill_orphans(&self.component, &self.log).await?;
        if std::fs::metadata(&self.log).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
            std::fs::rename(&self.log, self.log.with_extension("log.1"))?;
        }
        // No `await` between start and record: a cancelled task must not leave an unrecorded process.
        let process = Process::start(&self.component, &self.log)?;
        if let Some(mut record) = process.record(&self.component)? {
            record.fingerprint.clone_from(&self.fingerprint);
            record.store(&self.run)?;
        }
        info!(component = self.component.name, pid = process.pid(), "started");
        Ok(process)
    }

    fn set_status(&self, state: State, pid: Option<i32>, message: String) {
        self.statuses.send_if_modified(|statuses| {
            let restarts = statuses.get(&self.component.name).map_or(0, |status| status.restarts);
            let next = ComponentStatus { state, pid, restarts, message };
            let changed = statuses.get(&self.component.name) != Some(&next);
            statuses.insert(self.component.name.clone(), next);
            changed
        });
    }
}

/// Makes the kernel signal the process when its parent dies. Must be the last wrapper, because a change of user clears
/// the setting.
fn with_parent_death_signal(component: Component) -> Component {
    let signal = match component.stop_signal {
        StopSignal::Terminate { .. } => "KILL",
        // PostgreSQL leaks shared memory when it is killed.
        StopSignal::Interrupt { .. } => "INT",
    };
    component.wrapper(["setpriv", "--pdeathsig", signal, "--"])
}

/// Stops recorded processes, dependents before their dependencies. Independent processes are stopped concurrently.
pub async fn stop_in_dependency_order(run: &Path, mut records: Vec<Record>) -> anyhow::Result<()> {
    while !records.is_empty() {
        let has_dependents =
            |name: &str| records.iter().any(|record| record.depends_on.iter().any(|dependency| dependency == name));
        let (remaining, mut batch): (Vec<_>, Vec<_>) =
            records.iter().cloned().partition(|record| has_dependents(&record.name));
        if batch.is_empty() {
            // A cycle is possible only in corrupt records; stop the rest in any order.
            batch.clone_from(&remaining);
            records.clear();
        } else {
            records = remaining;
        }
        let tasks = batch.into_iter().map(|record| {
            let run = run.to_path_buf();
            tokio::spawn(async move {
                if let Some(process) = Process::adopt(&record) {
                    process.stop(record.stop_signal).await.with_context(|| format!("stopping {}", record.name))?;
                }
                Record::remove(&run, &record.name);
                anyhow::Ok(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;

    struct Fixture {
        _directory: tempfile::TempDir,
        layout: Layout,
    }

    impl Fixture {
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

        /// Appends its start and its stop to `events`, and is ready at once.
        fn service(&self, name: &str) -> Component {
            let events = self.layout.root().join("events");
            let script = format!(
                "echo start {name} >> {0}; trap 'echo end {name} >> {0}; exit 0' TERM; while :; do sleep 0.05; done",
                events.display()
            );
            Component::new(name).command(["sh", "-c"]).command([script]).ready(Probe::Command(vec![
                "grep".into(),
                "-q".into(),
                format!("start {name}"),
                events.display().to_string(),
            ]))
        }
    }

    async fn wait_for(supervisor: &Supervisor, condition: impl FnMut(&Statuses) -> bool) -> Statuses {
        let mut statuses = supervisor.watch();
        tokio::time::timeout(Duration::from_secs(20), statuses.wait_for(condition))
            .await
            .expect("condition holds before the timeout")
            .unwrap()
            .clone()
    }

    fn all_ready(statuses: &Statuses) -> bool {
        statuses.values().all(|status| status.state == State::Ready)
    }

    #[tokio::test]
    async fn components_start_after_and_stop_before_their_dependencies() {
        let fixture = Fixture::new();
        let mut supervisor = fixture.supervisor(Lifetime::Detached);
        let components =
            vec![fixture.service("c").depends_on("b"), fixture.service("b").depends_on("a"), fixture.service("a")];
        supervisor.apply(components).await.unwrap();
        wait_for(&supervisor, all_ready).await;
        supervisor.stop_all().await.unwrap();
        assert_eq!(fixture.lines("events"), ["start a", "start b", "start c", "end c", "end b", "end a"]);
        assert!(Record::load_all(&fixture.layout.run()).is_empty());
    }

    #[tokio::test]
    async fn killed_component_is_restarted() {
        let fixture = Fixture::new();
        let mut supervisor = fixture.supervisor(Lifetime::Detached);
        supervisor.apply(vec![fixture.service("a")]).await.unwrap();
        let first = wait_for(&supervisor, all_ready).await["a"].pid.unwrap();
        let record = Record::load(&fixture.layout.run(), "a").unwrap();
        Process::adopt(&record).unwrap().signal(rustix::process::Signal::KILL).unwrap();
        let second = wait_for(&supervisor, |statuses| all_ready(statuses) && statuses["a"].restarts == 1).await["a"]
            .pid
            .unwrap();
        assert_ne!(first, second);
        supervisor.stop_all().await.unwrap();
    }

    #[tokio::test]
    async fn next_supervisor_adopts_running_components_and_restarts_changed_ones() {
        let fixture = Fixture::new();
        let mut first = fixture.supervisor(Lifetime::Detached);
        first
            .apply(vec![fixture.service("same"), fixture.service("changed"), fixture.service("removed")])
            .await
            .unwrap();
        let before = wait_for(&first, all_ready).await;
        first.detach().await;
        drop(first);

        let mut second = fixture.supervisor(Lifetime::Detached);
        second.apply(vec![fixture.service("same"), fixture.service("changed").environment("X", "1")]).await.unwrap();
        let after = wait_for(&second, all_ready).await;
        assert_eq!(after["same"].pid, before["same"].pid);
        assert_ne!(after["changed"].pid, before["changed"].pid);
        assert!(!after.contains_key("removed"));
        assert!(fixture.lines("events").contains(&"end removed".into()));
        second.stop_all().await.unwrap();
    }

    #[tokio::test]
    async fn unrecorded_process_is_killed_before_the_next_start() {
        let fixture = Fixture::new();
        let mut first = fixture.supervisor(Lifetime::Detached);
        let sleeper =
            || Component::new("sleeper").command(["sleep", "1000"]).ready(Probe::Command(vec!["true".into()]));
        first.apply(vec![sleeper()]).await.unwrap();
        let before = wait_for(&first, all_ready).await["sleeper"].pid.unwrap();
        first.detach().await;
        Record::remove(&fixture.layout.run(), "sleeper");

        let mut second = fixture.supervisor(Lifetime::Detached);
        second.apply(vec![sleeper()]).await.unwrap();
        let after = wait_for(&second, all_ready).await["sleeper"].pid.unwrap();
        assert_ne!(after, before);
        let state = std::fs::read_to_string(format!("/proc/{before}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
        second.stop_all().await.unwrap();
    }

    #[tokio::test]
    async fn applying_the_same_components_again_changes_nothing() {
        let fixture = Fixture::new();
        let mut supervisor = fixture.supervisor(Lifetime::Detached);
        supervisor.apply(vec![fixture.service("a")]).await.unwrap();
        let before = wait_for(&supervisor, all_ready).await;
        supervisor.apply(vec![fixture.service("a")]).await.unwrap();
        assert_eq!(*supervisor.watch().borrow(), before);
        supervisor.stop_all().await.unwrap();
        assert_eq!(fixture.lines("events"), ["start a", "end a"]);
    }

    #[tokio::test]
    async fn failing_one_shot_is_retried_and_blocks_its_dependents() {
        let fixture = Fixture::new();
        let mut supervisor = fixture.supervisor(Lifetime::Detached);
        let marks = fixture.layout.root().join("marks");
        let script = format!("echo try >> {0}; [ $(wc -l < {0}) -ge 2 ]", marks.display());
        supervisor
            .apply(vec![
                Component::new("job").command(["sh", "-c"]).command([script]),
                fixture.service("after").depends_on("job"),
            ])
            .await
            .unwrap();
        let statuses = wait_for(&supervisor, all_ready).await;
        assert_eq!(statuses["job"].restarts, 1);
        assert_eq!(fixture.lines("marks"), ["try", "try"]);
        supervisor.stop_all().await.unwrap();
    }
}
