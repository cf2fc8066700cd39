//! Keeps the plugin served and registered across restarts of the kubelet.
//!
//! A starting kubelet removes every socket in the directory, creates a new `kubelet.sock` and knows no
//! plugins. It does not notify them, so the plugin reconciles: it compares the observed files with its
//! current state and takes the next step, which is to create its socket, to register or to wait.

mod step;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::transport::Endpoint;

use crate::args::{Resource, Sockets};
use crate::device::{Devices, UnhealthyDevices};
use crate::dir_watcher::{self, DirWatcher};
use crate::file_id::FileId;
use crate::proto::RegisterRequest;
use crate::proto::registration_client::RegistrationClient;
use crate::registration::step::{Backoff, Current, Observed, Registered, Step, decide};
use crate::server::{self, OPTIONS, Server};

const API_VERSION: &str = "v1beta1";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the ten seconds in which the kubelet connects to the plugin before it responds.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);

/// Intervals of retries; shorter in tests.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Delay after the first failure. It doubles with each further one.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// Time without a `ListAndWatch` stream after which the plugin registers again.
    pub list_watch_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(30),
            list_watch_timeout: Duration::from_secs(5),
        }
    }
}

impl RetryPolicy {
    fn backoff(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.initial_backoff.saturating_mul(factor).min(self.max_backoff)
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("serving the device plugin API")]
    Serve(#[from] server::Error),
    #[error("connecting to the kubelet at {}", path.display())]
    Connect { path: PathBuf, source: tonic::transport::Error },
    #[error("registering {resource} with the kubelet")]
    Register { resource: String, source: Box<tonic::Status> },
}

#[derive(Debug)]
pub struct Registration {
    resource: Resource,
    sockets: Sockets,
    devices: Arc<Devices>,
    unhealthy: watch::Receiver<UnhealthyDevices>,
    retry_policy: RetryPolicy,
    directory: DirWatcher,
    server: Option<Server>,
    registered: Option<Registered>,
    backoff: Option<Backoff>,
}

impl Registration {
    pub fn new(
        resource: Resource,
        sockets: Sockets,
        devices: Arc<Devices>,
        unhealthy: watch::Receiver<UnhealthyDevices>,
        retry_policy: RetryPolicy,
    ) -> Result<Self, dir_watcher::Error> {
        let directory = DirWatcher::new(sockets.directory.clone())?;
        let (server, registered, backoff) = (None, None, None);
        Ok(Self { resource, sockets, devices, unhealthy, retry_policy, directory, server, registered, backoff })
    }

    /// Reconciles in a loop. Returns only on errors. Cancel safe.
    pub async fn run(&mut self) -> Result<Infallible, dir_watcher::Error> {
        loop {
            let observed = self.observe()?;
            let result = match decide(&observed, &self.current(), self.retry_policy.list_watch_timeout, Instant::now())
            {
                Step::Serve => self.serve().await,
                Step::Register { kubelet } => self.register(kubelet).await,
                Step::Wait { until } => {
                    self.wait(until).await?;
                    continue;
                }
            };
            if let Err(error) = result {
                self.back_off(&observed, &error);
            }
        }
    }

    pub async fn close(self) {
        if let Some(server) = self.server {
            server.close().await;
        }
    }

    fn observe(&mut self) -> Result<Observed, dir_watcher::Error> {
        let file = |path: &Path| {
            FileId::from_path(path).map_err(|source| dir_watcher::Error::Metadata { path: path.to_owned(), source })
        };
        let directory = self.directory.arm()?;
        let watchers = self.server.as_mut().map(Server::watchers);
        Ok(Observed {
            directory,
            own: file(&self.sockets.own)?,
            kubelet: file(&self.sockets.kubelet)?,
            unwatched_since: watchers.filter(|watchers| watchers.streams == 0).map(|watchers| watchers.since),
        })
    }

    fn current(&self) -> Current {
        Current { socket: self.server.as_ref().map(Server::file), registered: self.registered, backoff: self.backoff }
    }

    async fn serve(&mut self) -> Result<(), Error> {
        self.registered = None;
        if let Some(old) = self.server.take() {
            old.close().await;
        }
        let server = Server::open(&self.sockets.own, Arc::clone(&self.devices), self.unhealthy.clone()).await?;
        self.server = Some(server);
        Ok(())
    }

    async fn register(&mut self, kubelet: FileId) -> Result<(), Error> {
        self.registered = None;
        let path = &self.sockets.kubelet;
        let connect_error = |source| Error::Connect { path: path.clone(), source };
        let channel = Endpoint::from_shared(format!("unix:{}", path.display()))
            .map_err(connect_error)?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REGISTER_TIMEOUT)
            .connect()
            .await
            .map_err(connect_error)?;
        let request = RegisterRequest {
            version: API_VERSION.to_owned(),
            endpoint: self.sockets.endpoint.clone(),
            resource_name: self.resource.as_str().to_owned(),
            options: Some(OPTIONS),
        };
        RegistrationClient::new(channel).register(request).await.map_err(|status| Error::Register {
            resource: self.resource.as_str().to_owned(),
            source: Box::new(status),
        })?;
        self.registered = Some(Registered { kubelet, at: Instant::now() });
        self.backoff = None;
        let count = self.devices.ids().len();
        let resource = self.resource.as_str();
        let kubelet = path.display();
        tracing::info!(resource, count, "registered {count} {resource} with the kubelet at {kubelet}");
        Ok(())
    }

    fn back_off(&mut self, observed: &Observed, error: &Error) {
        let failures = self.backoff.map_or(0, |backoff| backoff.failures).saturating_add(1);
        let delay = self.retry_policy.backoff(failures);
        let error = format_chain(error);
        let resource = self.resource.as_str();
        tracing::error!(resource, "{error}; retrying in {delay:?} or when a socket changes");
        let Observed { own, kubelet, directory: _, unwatched_since: _ } = *observed;
        self.backoff = Some(Backoff { own, kubelet, failures, until: Instant::now() + delay });
    }

    async fn wait(&mut self, until: Option<Instant>) -> Result<(), dir_watcher::Error> {
        let watchers_changed = async {
            match &mut self.server {
                Some(server) => server.watchers_changed().await,
                None => pending().await,
            }
        };
        let deadline = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = self.directory.changed() => changed,
            () = watchers_changed => Ok(()),
            () = deadline => Ok(()),
        }
    }
}

/// Joins an error and its causes into one line. Transport errors repeat the message of their cause.
fn format_chain(error: &dyn StdError) -> String {
    let mut messages = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        messages.push(error.to_string());
        cause = error.source();
    }
    messages.dedup();
    messages.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let retry_policy = RetryPolicy::default();
        let delays: Vec<_> = [1, 2, 3, 20, u32::MAX].map(|failures| retry_policy.backoff(failures).as_millis()).into();
        assert_eq!(delays, [200, 400, 800, 30_000, 30_000]);
    }
}
