//! Keeps the plugin served and registered while kubelets come and go.
//!
//! A kubelet that starts removes every socket in the directory, makes a new `kubelet.sock` and
//! remembers no plugin. It does not announce that, so each pass compares what is there with what we
//! hold and takes the one step that is missing: make the socket, register, or wait.

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
use crate::device::{Devices, Ill};
use crate::directory::{self, Directory};
use crate::file_id::FileId;
use crate::proto::RegisterRequest;
use crate::proto::registration_client::RegistrationClient;
use crate::registration::step::{Held, Registered, Seen, Setback, Step, decide};
use crate::server::{self, OPTIONS, Server};

const VERSION: &str = "v1beta1";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longer than the ten seconds a kubelet gives itself to dial back before it answers.
const REGISTER_LIMIT: Duration = Duration::from_secs(15);

/// How patient the plugin is. Tests are less so.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Wait after a first failure; it doubles with each further one.
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// How long a kubelet with which we are registered may go without following the device list.
    pub silence: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first_retry: Duration::from_millis(200),
            longest_retry: Duration::from_secs(30),
            silence: Duration::from_secs(5),
        }
    }
}

impl Pace {
    fn retry_after(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_retry.saturating_mul(factor).min(self.longest_retry)
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("serving the devices")]
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
    ill: watch::Receiver<Ill>,
    pace: Pace,
    directory: Directory,
    server: Option<Server>,
    registered: Option<Registered>,
    setback: Option<Setback>,
}

impl Registration {
    pub fn new(
        resource: Resource,
        sockets: Sockets,
        devices: Arc<Devices>,
        ill: watch::Receiver<Ill>,
        pace: Pace,
    ) -> Result<Self, directory::Error> {
        let directory = Directory::new(sockets.directory.clone())?;
        let (server, registered, setback) = (None, None, None);
        Ok(Self { resource, sockets, devices, ill, pace, directory, server, registered, setback })
    }

    /// Takes step after step; ends only with an error. May be dropped at any await and called
    /// again.
    pub async fn keep(&mut self) -> Result<Infallible, directory::Error> {
        loop {
            let seen = self.look()?;
            let outcome = match decide(&seen, &self.held(), self.pace.silence, Instant::now()) {
                Step::Serve => self.serve().await,
                Step::Register { kubelet } => self.register(kubelet).await,
                Step::Wait { until } => {
                    self.wait(until).await?;
                    continue;
                }
            };
            if let Err(error) = outcome {
                self.set_back(&seen, &error);
            }
        }
    }

    pub async fn close(self) {
        if let Some(server) = self.server {
            server.close().await;
        }
    }

    fn look(&mut self) -> Result<Seen, directory::Error> {
        let file =
            |path: &Path| FileId::of(path).map_err(|source| directory::Error::Look { path: path.to_owned(), source });
        let directory = self.directory.arm()?;
        let audience = self.server.as_mut().map(Server::audience);
        Ok(Seen {
            directory,
            own: file(&self.sockets.own)?,
            kubelet: file(&self.sockets.kubelet)?,
            unheard: audience.filter(|audience| audience.streams == 0).map(|audience| audience.since),
        })
    }

    fn held(&self) -> Held {
        Held { socket: self.server.as_ref().map(Server::file), registered: self.registered, setback: self.setback }
    }

    async fn serve(&mut self) -> Result<(), Error> {
        self.registered = None;
        if let Some(old) = self.server.take() {
            old.close().await;
        }
        let server = Server::open(&self.sockets.own, Arc::clone(&self.devices), self.ill.clone()).await?;
        self.server = Some(server);
        Ok(())
    }

    async fn register(&mut self, kubelet: FileId) -> Result<(), Error> {
        self.registered = None;
        let path = &self.sockets.kubelet;
        let failed = |source| Error::Connect { path: path.clone(), source };
        let channel = Endpoint::from_shared(format!("unix:{}", path.display()))
            .map_err(failed)?
            .connect_timeout(CONNECT_LIMIT)
            .timeout(REGISTER_LIMIT)
            .connect()
            .await
            .map_err(failed)?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.sockets.endpoint.clone(),
            resource_name: self.resource.as_str().to_owned(),
            options: Some(OPTIONS),
        };
        RegistrationClient::new(channel).register(request).await.map_err(|status| Error::Register {
            resource: self.resource.as_str().to_owned(),
            source: Box::new(status),
        })?;
        self.registered = Some(Registered { kubelet, at: Instant::now() });
        self.setback = None;
        let count = self.devices.ids().len();
        let resource = self.resource.as_str();
        let kubelet = path.display();
        tracing::info!(resource, count, "registered {count} {resource} with the kubelet at {kubelet}");
        Ok(())
    }

    fn set_back(&mut self, seen: &Seen, error: &Error) {
        let failures = self.setback.map_or(0, |setback| setback.failures).saturating_add(1);
        let pause = self.pace.retry_after(failures);
        let error = with_causes(error);
        let resource = self.resource.as_str();
        tracing::error!(resource, "{error}; next try in {pause:?} or when a socket changes");
        let Seen { own, kubelet, directory: _, unheard: _ } = *seen;
        self.setback = Some(Setback { own, kubelet, failures, until: Instant::now() + pause });
    }

    async fn wait(&mut self, until: Option<Instant>) -> Result<(), directory::Error> {
        let audience_changed = async {
            match &mut self.server {
                Some(server) => server.audience_changed().await,
                None => pending().await,
            }
        };
        let time_came = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = self.directory.changed() => changed,
            () = audience_changed => Ok(()),
            () = time_came => Ok(()),
        }
    }
}

/// An error and what caused it on one line of the log. Transport errors repeat their cause's words.
fn with_causes(error: &dyn StdError) -> String {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push(error.to_string());
        cause = error.source();
    }
    words.dedup();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_slow_down_to_a_limit() {
        let pace = Pace::default();
        let pauses: Vec<_> = [1, 2, 3, 20, u32::MAX].map(|failures| pace.retry_after(failures).as_millis()).into();
        assert_eq!(pauses, [200, 400, 800, 30_000, 30_000]);
    }
}
