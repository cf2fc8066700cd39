//! A proxy between a PostgreSQL client and a real server that injects planned faults and counts statements and commits.
//!
//! The client connects to [`Dbfault::url`] without TLS. The trace of a run without faults gives the crash points, as with
//! [`apifault`](crate::apifault); a test then repeats the run once for each:
//!
//! ```text
//! for k in 1..=reference.statements().len() as u64 {
//!     let dbfault = Dbfault::start(url, [Fault::statement(k).after(Action::Cut)])?;
//!     ...
//! }
//! ```
//!
//! A statement outside a transaction is committed when the client ends the exchange (`Sync`), and the server reports it
//! with `ReadyForQuery`. A fault after a statement or commit fires when that message has arrived, and withholds all of the
//! answer: the change is durable, and the client does not know it. Prepared statements count when they are executed, not
//! when they are parsed.

mod listener;
mod message;
pub mod plan;
mod session;
pub mod trace;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use plan::{Action, Fault, Moment};
pub use trace::{Outcome, Statement};

use listener::Listener;
use plan::Triggers;

/// A running proxy. Stops when dropped.
pub struct Dbfault {
    proxy: Arc<Proxy>,
    listener: Listener,
    url: String,
}

/// What all sessions share.
struct Proxy {
    upstream: SocketAddr,
    state: Mutex<State>,
    gate: watch::Sender<Gate>,
    fired: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    triggers: Triggers,
    trace: Vec<Statement>,
    sessions: u64,
}

/// Wakes sessions that wait.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    stalls: u64,
    releases: u64,
    resets: u64,
}

impl Dbfault {
    /// Starts a proxy for the server of this URL, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. Requires a runtime.
    pub fn start(url: &str, faults: impl IntoIterator<Item = Fault>) -> anyhow::Result<Self> {
        let upstream = upstream(url)?;
        let proxy = Arc::new(Proxy {
            upstream,
            state: Mutex::new(State { triggers: Triggers::new(faults), ..State::default() }),
            gate: watch::Sender::default(),
            fired: watch::Sender::default(),
        });
        let listener = Listener::open(Arc::clone(&proxy))?;
        let url = url.replace(&upstream.to_string(), &listener.address.to_string());
        Ok(Self { proxy, listener, url })
    }

    /// Returns the URL for the client.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Adds a fault that counts from now on.
    pub fn add(&self, fault: Fault) {
        self.proxy.state.lock().triggers.add(fault);
    }

    /// Stalls all connections, without closing them. New ones are served.
    pub fn stall(&self) {
        self.proxy.gate.send_modify(|gate| gate.stalls += 1);
    }

    /// Continues everything that is stalled now.
    pub fn release(&self) {
        self.proxy.gate.send_modify(|gate| gate.releases += 1);
    }

    /// Resets all connections. New ones are accepted.
    pub fn reset(&self) {
        self.proxy.gate.send_modify(|gate| gate.resets += 1);
    }

    /// Closes all connections and refuses new ones.
    pub async fn down(&self) -> anyhow::Result<()> {
        self.listener.close().await
    }

    /// Undoes [`Self::down`]. The address stays the same.
    pub async fn up(&self) -> anyhow::Result<()> {
        self.listener.reopen().await
    }

    /// Returns the number of fired faults.
    pub fn fired(&self) -> u64 {
        *self.proxy.fired.borrow()
    }

    /// Waits until `count` faults have fired since the start.
    pub async fn wait_fired(&self, count: u64, timeout: Duration) -> anyhow::Result<()> {
        let mut fired = self.proxy.fired.subscribe();
        let finished = tokio::time::timeout(timeout, fired.wait_for(|fired| *fired >= count)).await;
        let (fired, seconds) = (self.fired(), timeout.as_secs());
        anyhow::ensure!(matches!(finished, Ok(Ok(_))), "{fired} of {count} faults have fired after {seconds}s");
        Ok(())
    }

    /// Returns all statements so far in the order in which they were sent.
    pub fn statements(&self) -> Vec<Statement> {
        self.proxy.state.lock().trace.clone()
    }

    /// Returns the number of transactions that the server has reported as committed, including those that only read.
    pub fn commits(&self) -> usize {
        let committed = |statement: &&Statement| statement.commits && statement.outcome == Outcome::Succeeded;
        self.proxy.state.lock().trace.iter().filter(committed).count()
    }
}

/// Returns the address of the server in a URL.
fn upstream(url: &str) -> anyhow::Result<SocketAddr> {
    let address = url.rsplit('@').next().and_then(|rest| rest.split(&['/', '?']).next()).unwrap_or_default();
    address.parse().with_context(|| format!("{address} is not an address with a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_is_the_address_of_the_url() {
        assert_eq!(upstream("postgres://a:b@127.0.0.1:5432/odc?x=1").unwrap().to_string(), "127.0.0.1:5432");
        assert!(upstream("postgres:///odc?host=/run").is_err());
    }
}
