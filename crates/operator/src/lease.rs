//! Which of several operators leads. One Lease, replaced only in the version that was read.
//!
//! Nobody's wall clock counts: a holder is taken for dead when its Lease has not changed for its whole duration on our
//! own monotonic clock, however often we looked. Every change of holder raises the epoch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::error::{Error, code};
use crate::request::in_time;

pub const DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for so long stops, well before anybody else may begin.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// No request may be on its way for longer than this: sent before the deadline, it is answered or given up before the
/// next leader begins.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(4);

/// Proof of leading, for as long as it is renewed.
#[derive(Clone, Debug)]
pub struct Lead {
    pub epoch: i64,
    version: Option<String>,
    until: Arc<Mutex<Instant>>,
}

impl Lead {
    fn new(epoch: i64, version: Option<String>, since: Instant) -> Self {
        Self { epoch, version, until: Arc::new(Mutex::new(since + RENEW_DEADLINE)) }
    }

    /// Asked before every write. A process that was stopped and goes on finds its time over.
    pub fn check(&self) -> Result<(), Error> {
        if Instant::now() < *self.until.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(())
        } else {
            Err(Error::NotLeading)
        }
    }

    /// From now on nothing is written, whoever is in the middle of something.
    fn end(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn renewed(&self, since: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = since + RENEW_DEADLINE;
    }
}

#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
}

/// What we saw, and since when it has not changed.
struct Observed {
    version: Option<String>,
    since: Instant,
}

impl Candidate {
    pub fn new(client: &Client, namespace: &str, name: &str, identity: String) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace), name: name.to_owned(), identity }
    }

    /// Waits until this process leads.
    pub async fn acquire(&self) -> Lead {
        let mut observed: Option<Observed> = None;
        loop {
            let asked = Instant::now();
            match self.try_acquire(&mut observed).await {
                Ok(Some((epoch, version))) => return Lead::new(epoch, version, asked),
                Ok(None) => {}
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the lease cannot be had"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// The epoch, and the version the Lease was stored in.
    async fn try_acquire(&self, observed: &mut Option<Observed>) -> kube::Result<Option<(i64, Option<String>)>> {
        let Some(lease) = in_time(self.api.get_opt(&self.name)).await? else {
            let fresh = self.lease(None, 1, Timestamp::now());
            return or_somebody_else(1, in_time(self.api.create(&PostParams::default(), &fresh)).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        let version = lease.metadata.resource_version.clone();
        let since = match observed {
            Some(before) if before.version == version => before.since,
            _ => observed.insert(Observed { version: version.clone(), since: Instant::now() }).since,
        };
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        if held && since.elapsed() < duration.map_or(DURATION, Duration::from_secs) {
            return Ok(None);
        }
        let epoch = i64::from(spec.lease_transitions.unwrap_or(0)) + 1;
        or_somebody_else(epoch, self.replace(version, epoch).await)
    }

    async fn replace(&self, version: Option<String>, epoch: i64) -> kube::Result<Lease> {
        let lease = self.lease(version, epoch, Timestamp::now());
        in_time(self.api.replace(&self.name, &PostParams::default(), &lease)).await
    }

    /// Renews until that is no longer possible. When it returns, this process must stop.
    pub async fn keep(&self, lead: &Lead) {
        let mut version = lead.version.clone();
        loop {
            tokio::time::sleep(RETRY).await;
            let asked = Instant::now();
            match self.renew(lead.epoch, version.clone()).await {
                Ok(Some(renewed)) => {
                    version = renewed;
                    lead.renewed(asked);
                }
                Ok(None) => return,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "renewing the lease"),
            }
            if lead.check().is_err() {
                return;
            }
        }
    }

    /// The version it is stored in now; nothing if somebody else holds it.
    async fn renew(&self, epoch: i64, version: Option<String>) -> kube::Result<Option<Option<String>>> {
        match self.replace(version, epoch).await {
            Ok(stored) => return Ok(Some(stored.metadata.resource_version)),
            Err(error) if matches!(code(&error), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
        // Somebody touched it, or the answer to an earlier renewal was lost.
        let Some(lease) = in_time(self.api.get_opt(&self.name)).await? else {
            // Deleted by hand: whoever comes first has it, and we are there.
            let fresh = self.lease(None, epoch, Timestamp::now());
            let stored = in_time(self.api.create(&PostParams::default(), &fresh)).await?;
            return Ok(Some(stored.metadata.resource_version));
        };
        let spec = lease.spec.unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity)
            && spec.lease_transitions.map(i64::from) == Some(epoch);
        if !ours {
            return Ok(None);
        }
        let stored = self.replace(lease.metadata.resource_version, epoch).await?;
        Ok(Some(stored.metadata.resource_version))
    }

    /// Stops all writes, and lets the next one begin at once. Nobody may renew any more.
    pub async fn release(&self, lead: &Lead) -> kube::Result<()> {
        // Past its time it may be somebody else's already.
        if lead.check().is_err() {
            return Ok(());
        }
        lead.end();
        let Some(mut lease) = in_time(self.api.get_opt(&self.name)).await? else { return Ok(()) };
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        spec.renew_time = None;
        lease.metadata.managed_fields = None;
        in_time(self.api.replace(&self.name, &PostParams::default(), &lease)).await.map(drop)
    }

    fn lease(&self, version: Option<String>, epoch: i64, now: Timestamp) -> Lease {
        Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), resource_version: version, ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                lease_transitions: i32::try_from(epoch).ok(),
                // For people; nobody decides by it.
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Whoever was faster has it.
fn or_somebody_else(epoch: i64, written: kube::Result<Lease>) -> kube::Result<Option<(i64, Option<String>)>> {
    match written {
        Ok(stored) => Ok(Some((epoch, stored.metadata.resource_version))),
        Err(error) if code(&error) == Some(409) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_ends_by_itself() {
        let now = Instant::now();
        assert!(Lead::new(1, None, now).check().is_ok());
        let old = Lead::new(1, None, now.checked_sub(RENEW_DEADLINE).unwrap());
        assert!(old.check().is_err());
        old.renewed(now);
        assert!(old.check().is_ok());
        old.end();
        assert!(old.check().is_err());
    }

    #[test]
    fn a_request_ends_before_the_next_leader_begins() {
        assert!(REQUEST_LIMIT < DURATION.checked_sub(RENEW_DEADLINE).unwrap());
    }
}
