//! A proxy between a Kubernetes client and a real API server that injects planned faults and records a trace.
//!
//! The client is a separate process, such as the operator, started with the kubeconfig that [`Apifault::kubeconfig`] writes.
//! Each client has its own proxy: request numbers count the requests of that client, and a kill hits that client. Responses
//! come from the API server unless a fault replaces them.
//!
//! The trace of a run without faults gives the crash points. A test then repeats the run once for each:
//!
//! ```text
//! let writes = reference.writes().len() as u64;
//! for k in 1..=writes {
//!     let apifault = Apifault::start(&plane.kubeconfig, Plan::new([Fault::write(k).after(Action::Kill)])).await?;
//!     ...
//! }
//! ```
//!
//! The proxy speaks TLS and HTTP/1.1 to the client. It does not restart the client, writes no objects, and rejects upgraded
//! connections (`exec`, `port-forward`). To write between a read and a write of the client, a test holds the write, writes
//! itself, and releases the hold.

mod body;
pub mod event;
mod list_cache;
mod listener;
pub mod pattern;
pub mod plan;
mod process;
mod proxy;
pub mod request;
mod response;
pub mod trace;
mod trigger;
mod upstream;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use serde_json::json;

pub use event::EventKind;
pub use pattern::Pattern;
pub use plan::{Action, EventAction, Fault, Moment, Plan, Times};
pub use request::Verb;
pub use trace::{TraceEntry, TraceEvent};

use listener::Listener;
use process::Process;
use proxy::Proxy;
use upstream::Upstream;

/// A running proxy. Stops when dropped.
pub struct Apifault {
    proxy: Arc<Proxy>,
    listener: Listener,
}

impl Apifault {
    /// Starts a proxy for the API server of this kubeconfig. Requests without a token use its credentials.
    pub async fn start(kubeconfig: &Path, plan: Plan) -> anyhow::Result<Self> {
        crate::init();
        let proxy = Arc::new(Proxy::new(Upstream::open(kubeconfig).await?, plan));
        let listener = Listener::open(Arc::clone(&proxy))?;
        Ok(Self { proxy, listener })
    }

    /// Writes a kubeconfig for the client. With a token the client authenticates with the token, else with the credentials
    /// of the proxy.
    pub fn kubeconfig(&self, path: &Path, token: Option<&str>) -> anyhow::Result<()> {
        let authority = ByteString(self.listener.authority.clone().into_bytes());
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "apifault", "cluster": {
                "server": format!("https://{}", self.listener.address),
                "certificate-authority-data": authority,
            }}],
            "users": [{"name": "client", "user": {"token": token.unwrap_or(upstream::NO_TOKEN)}}],
            "contexts": [{"name": "apifault", "context": {"cluster": "apifault", "user": "client"}}],
            "current-context": "apifault",
        });
        // JSON is YAML.
        std::fs::write(path, config.to_string()).with_context(|| format!("writing {}", path.display()))
    }

    /// Sets the client process that [`Action::Kill`] and [`Action::Stop`] signal.
    pub fn set_client(&self, pid: u32) -> anyhow::Result<()> {
        let process = Arc::new(Process::open(pid)?);
        self.proxy.state().client = Some(process);
        Ok(())
    }

    /// Resumes a stopped client.
    pub fn resume(&self) -> anyhow::Result<()> {
        let client = self.proxy.state().client.clone();
        client.context("the client process is not set")?.resume()
    }

    /// Adds a fault that counts requests from now on.
    pub fn add(&self, fault: Fault) {
        self.proxy.state().triggers.add(fault);
    }

    /// Releases everything that is held now. Later holds wait for the next release.
    pub fn release(&self) {
        self.proxy.release();
    }

    /// Simulates an unavailable API server: closes all connections and refuses new ones. Requests in flight still reach the
    /// API server; their responses are lost.
    pub async fn down(&self) -> anyhow::Result<()> {
        self.listener.close().await
    }

    /// Undoes [`Self::down`]. The address stays the same.
    pub async fn up(&self) -> anyhow::Result<()> {
        self.listener.reopen().await
    }

    /// Returns the number of fired faults.
    pub fn fired(&self) -> u64 {
        *self.proxy.fired().borrow()
    }

    /// Waits until `count` faults have fired since the start.
    pub async fn wait_fired(&self, count: u64, timeout: Duration) -> anyhow::Result<()> {
        let mut fired = self.proxy.fired();
        let finished = tokio::time::timeout(timeout, fired.wait_for(|fired| *fired >= count)).await;
        let seconds = timeout.as_secs();
        anyhow::ensure!(
            matches!(finished, Ok(Ok(_))),
            "{} of {count} faults have fired after {seconds}s",
            self.fired()
        );
        Ok(())
    }

    /// Returns all requests so far in the order of arrival.
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.proxy.state().trace.entries.clone()
    }

    /// Returns the stored writes without Leases and Events, in the order in which they were stored.
    pub fn writes(&self) -> Vec<TraceEntry> {
        self.proxy.state().trace.writes()
    }

    /// Returns all watch events so far.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.proxy.state().trace.events.clone()
    }

    /// Writes every request that finishes from now on to a file, one JSON object per line.
    pub fn trace_to(&self, path: &Path) -> anyhow::Result<()> {
        self.proxy.state().trace.write_to(path)
    }
}

impl Drop for Apifault {
    fn drop(&mut self) {
        self.proxy.shut_down();
    }
}
