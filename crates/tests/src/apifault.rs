//! A proxy between a Kubernetes client and a real API server that makes planned things go wrong, and notes what passed.
//!
//! A client is a process of its own, such as our operator, started with the kubeconfig that [`Apifault::kubeconfig`]
//! writes. It has a proxy for itself: numbers count what one client does, and a kill meets that client. The API server
//! is real, so is everything it answers unless the plan says otherwise.
//!
//! The trace of a run without faults names the crash points; a test then repeats the run once for each:
//!
//! ```text
//! let writes = reference.writes().len() as u64;
//! for k in 1..=writes {
//!     let apifault = Apifault::start(&plane.kubeconfig, Plan::new([Fault::write(k).after(Action::Kill)])).await?;
//!     ...
//! }
//! ```
//!
//! Towards the client it speaks TLS and HTTP/1.1. It does not judge: what must hold after a fault is the test's matter.
//! It does not restart the client, changes no object by itself, and passes no upgraded connections (`exec`,
//! `port-forward`). What a third party does between a read and a write is a hold, the test's own write, and a release.

mod answer;
pub mod call;
mod door;
pub mod event;
mod lists;
mod object;
pub mod pattern;
pub mod plan;
mod process;
mod proxy;
mod tally;
pub mod trace;
mod upstream;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use serde_json::json;

pub use call::Verb;
pub use event::Kind;
pub use pattern::Pattern;
pub use plan::{Action, EventAction, Fault, Moment, Plan, Times};
pub use trace::{Entry, Passed};

use door::Door;
use process::Process;
use proxy::Proxy;
use upstream::Upstream;

/// Runs until it is dropped.
pub struct Apifault {
    proxy: Arc<Proxy>,
    door: Door,
}

impl Apifault {
    /// The kubeconfig says where the API server is, and who asks when a client brings no token.
    pub async fn start(kubeconfig: &Path, plan: Plan) -> anyhow::Result<Self> {
        crate::begin();
        let proxy = Arc::new(Proxy::new(Upstream::open(kubeconfig).await?, plan));
        let door = Door::open(Arc::clone(&proxy))?;
        Ok(Self { proxy, door })
    }

    /// Writes a kubeconfig for the client. With a token the client is whom the token says, else whom the proxy's own
    /// kubeconfig says.
    pub fn kubeconfig(&self, path: &Path, token: Option<&str>) -> anyhow::Result<()> {
        let authority = ByteString(self.door.authority.clone().into_bytes());
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "apifault", "cluster": {
                "server": format!("https://{}", self.door.address),
                "certificate-authority-data": authority,
            }}],
            "users": [{"name": "client", "user": {"token": token.unwrap_or(upstream::NO_TOKEN)}}],
            "contexts": [{"name": "apifault", "context": {"cluster": "apifault", "user": "client"}}],
            "current-context": "apifault",
        });
        // JSON is YAML.
        std::fs::write(path, config.to_string()).with_context(|| format!("writing {}", path.display()))
    }

    /// Whom to kill or stop.
    pub fn client(&self, pid: u32) -> anyhow::Result<()> {
        let process = Arc::new(Process::open(pid)?);
        self.proxy.state().client = Some(process);
        Ok(())
    }

    /// Lets a stopped client go on.
    pub fn resume(&self) -> anyhow::Result<()> {
        let client = self.proxy.state().client.clone();
        client.context("nobody said which process the client is")?.resume()
    }

    /// One more fault, which counts from now on.
    pub fn add(&self, fault: Fault) {
        self.proxy.state().tally.add(fault);
    }

    /// Lets everything go on that is held now. What is held later waits for the next call.
    pub fn release(&self) {
        self.proxy.release();
    }

    /// The API server is away: connections break, and new ones are refused. A request that was under way is carried
    /// through, and its answer lost.
    pub async fn down(&self) -> anyhow::Result<()> {
        self.door.shut().await
    }

    /// At the same address as before.
    pub async fn up(&self) -> anyhow::Result<()> {
        self.door.reopen().await
    }

    /// How many faults have fired.
    pub fn fired(&self) -> u64 {
        *self.proxy.fired().borrow()
    }

    /// Waits until so many faults have fired in all.
    pub async fn until_fired(&self, count: u64, limit: Duration) -> anyhow::Result<()> {
        let mut fired = self.proxy.fired();
        let enough =
            tokio::time::timeout(limit, fired.wait_for(|fired| *fired >= count)).await.map(|enough| enough.is_ok());
        let seconds = limit.as_secs();
        anyhow::ensure!(matches!(enough, Ok(true)), "{} of {count} faults have fired after {seconds} s", self.fired());
        Ok(())
    }

    /// Every request so far, in the order of arrival.
    pub fn trace(&self) -> Vec<Entry> {
        self.proxy.state().trace.entries.clone()
    }

    /// The stored writes, Leases and Events apart, in the order in which they were stored.
    pub fn writes(&self) -> Vec<Entry> {
        self.proxy.state().trace.writes()
    }

    /// Every event of every watch so far.
    pub fn events(&self) -> Vec<Passed> {
        self.proxy.state().trace.events.clone()
    }

    /// From now on every finished request becomes a line of JSON in this file.
    pub fn trace_to(&self, path: &Path) -> anyhow::Result<()> {
        self.proxy.state().trace.write_to(path)
    }
}

impl Drop for Apifault {
    fn drop(&mut self) {
        self.proxy.end();
    }
}
