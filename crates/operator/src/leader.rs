//! Leader election over one Lease, which is replaced only in the version that was read.
//!
//! Wall clocks are not compared. A holder is considered dead when the Lease's `resourceVersion` has not changed for
//! `leaseDurationSeconds` on our monotonic clock (as in client-go). `leaseTransitions` is used as a fencing epoch and
//! never decreases, even if the Lease is deleted: the leader recreates it with its epoch, and if it cannot, the next
//! leader derives the epoch from the admissions stored in servers.

mod observed;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use odc_api::v1alpha1::DevServerFlavor;
use odc_core::manifest::Kind;
use parking_lot::Mutex;

use crate::cache::MaybeInvalid;
use crate::dynamic_api::{REQUEST_TIMEOUT, api, with_timeout};
use crate::error::{Error, code};
use crate::watches::LIST_PAGE_SIZE;
use observed::Observed;

pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for this long stops. `LEASE_DURATION` exceeds it by more than [`REQUEST_TIMEOUT`], so
/// a request sent before the deadline has ended before another process can become leader.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The uid and version of a Lease. A PUT without a uid would create a Lease that was deleted.
#[derive(Clone, Debug, Default)]
pub struct LeaseVersion {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl LeaseVersion {
    fn from_lease(lease: &Lease) -> Self {
        Self { uid: lease.metadata.uid.clone(), resource_version: lease.metadata.resource_version.clone() }
    }
}

/// Proof of leadership. It expires unless it is renewed.
#[derive(Clone, Debug)]
pub struct Leadership {
    pub epoch: i64,
    acquired: LeaseVersion,
    term: Arc<Mutex<Term>>,
}

#[derive(Debug)]
struct Term {
    /// Writes are refused from this time on.
    deadline: Instant,
    /// When a write was last permitted.
    last_write: Option<Instant>,
}

impl Leadership {
    pub(crate) fn new(epoch: i64, acquired: LeaseVersion, since: Instant) -> Self {
        let term = Term { deadline: since + RENEW_DEADLINE, last_write: None };
        Self { epoch, acquired, term: Arc::new(Mutex::new(term)) }
    }

    /// Fails after the deadline, for example in a process that was suspended. Must be called before every write.
    pub fn ensure_leader(&self) -> Result<(), Error> {
        let (mut term, now) = (self.term.lock(), Instant::now());
        if now >= term.deadline {
            return Err(Error::NotLeader);
        }
        term.last_write = Some(now);
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.term.lock().deadline
    }

    /// Refuses all further writes and waits until earlier ones have ended. The next leader starts with a list of all
    /// objects; a write stored after that list would be missing from its decisions.
    async fn release(&self) {
        let last_write = {
            let mut term = self.term.lock();
            term.deadline = Instant::now();
            term.last_write
        };
        let remaining = last_write.map_or(Duration::ZERO, |sent| REQUEST_TIMEOUT.saturating_sub(sent.elapsed()));
        tokio::time::sleep(remaining).await;
    }

    fn extend(&self, renewed_at: Instant) {
        self.term.lock().deadline = renewed_at + RENEW_DEADLINE;
    }
}

#[derive(Clone)]
pub struct LeaderElector {
    api: Api<Lease>,
    servers: Api<DynamicObject>,
    flavors: Api<MaybeInvalid<DevServerFlavor>>,
    name: String,
    identity: String,
}

/// The result of an attempt to become leader.
#[derive(Debug)]
enum AcquireResult {
    Acquired(Leadership),
    /// Another process is leader, or may still be for this long.
    HeldByOther(Duration),
}

/// The result of a renewal.
enum Renewal {
    Renewed(LeaseVersion),
    /// Another process holds the Lease.
    Lost,
    /// The Lease was deleted.
    Deleted,
}

impl LeaderElector {
    pub fn new(client: &Client, namespace: &str, name: &str, identity: String) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            servers: api(client, Kind::DevServer, None),
            flavors: Api::all(client.clone()),
            name: name.to_owned(),
            identity,
        }
    }

    /// Waits until this process is leader.
    pub async fn acquire(&self) -> Leadership {
        let mut observed = Observed::default();
        loop {
            let delay = match self.try_acquire(&mut observed).await {
                Ok(AcquireResult::Acquired(leadership)) => return leadership,
                Ok(AcquireResult::HeldByOther(remaining)) => remaining.min(RETRY_PERIOD),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "failed to acquire the lease, retrying");
                    RETRY_PERIOD
                }
            };
            tokio::time::sleep(delay).await;
        }
    }

    async fn try_acquire(&self, observed: &mut Observed) -> kube::Result<AcquireResult> {
        let Some(lease) = with_timeout(self.api.get_opt(&self.name)).await? else {
            return self.create(observed).await;
        };
        let version = LeaseVersion::from_lease(&lease);
        let spec = lease.spec.unwrap_or_default();
        let epoch = spec.lease_transitions.map(i64::from).filter(|epoch| *epoch > 0);
        observed.observe_version(version.resource_version.as_deref(), Instant::now());
        observed.observe_epoch(epoch.unwrap_or(0));
        let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let remaining = observed.remaining(duration.map_or(LEASE_DURATION, Duration::from_secs), Instant::now());
        if held && !remaining.is_zero() {
            return Ok(AcquireResult::HeldByOther(remaining));
        }
        if epoch.is_none() {
            observed.observe_epoch(self.highest_stored_epoch().await?);
        }
        let (epoch, sent_at) = (observed.next_epoch(), Instant::now());
        attempt_result(epoch, sent_at, self.replace(version, epoch).await)
    }

    /// Creates the Lease. It is missing because the cluster is new or because it was deleted; the objects that
    /// leaders wrote distinguish the cases.
    async fn create(&self, observed: &mut Observed) -> kube::Result<AcquireResult> {
        observed.observe_version(None, Instant::now());
        let mut remaining = observed.remaining_after_deletion(Instant::now());
        if remaining.is_zero() {
            // Read after the wait, when no earlier leader can store a higher epoch.
            observed.observe_epoch(self.highest_stored_epoch().await?);
            remaining = observed.remaining_after_deletion(Instant::now());
        }
        if !remaining.is_zero() {
            return Ok(AcquireResult::HeldByOther(remaining));
        }
        let (epoch, sent_at) = (observed.next_epoch(), Instant::now());
        let lease = self.lease(LeaseVersion::default(), epoch, Some(&self.identity));
        attempt_result(epoch, sent_at, with_timeout(self.api.create(&PostParams::default(), &lease)).await)
    }

    /// Returns the highest epoch of all stored admissions, read from the API server. Servers that cannot be
    /// deserialized count too.
    async fn highest_stored_epoch(&self) -> kube::Result<i64> {
        let mut highest = 0;
        let mut page = ListParams::default().limit(LIST_PAGE_SIZE);
        loop {
            let listed = with_timeout(self.servers.list(&page)).await?;
            let epochs = listed.items.iter().filter_map(|server| server.data["status"]["admission"]["epoch"].as_i64());
            highest = epochs.fold(highest, i64::max);
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        // Without admissions, a flavor status shows that there was a leader.
        if highest == 0 && self.has_flavor_status().await? { Ok(1) } else { Ok(highest) }
    }

    async fn has_flavor_status(&self) -> kube::Result<bool> {
        let flavors = with_timeout(self.flavors.list(&ListParams::default())).await?;
        Ok(flavors.iter().any(|flavor| flavor.0.as_ref().is_ok_and(|flavor| flavor.status.is_some())))
    }

    async fn replace(&self, version: LeaseVersion, epoch: i64) -> kube::Result<Lease> {
        let lease = self.lease(version, epoch, Some(&self.identity));
        with_timeout(self.api.replace(&self.name, &PostParams::default(), &lease)).await
    }

    /// Renews the Lease until leadership is lost. The process must exit when this returns.
    pub async fn renew_until_lost(&self, leadership: &Leadership) {
        let mut version = leadership.acquired.clone();
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            let sent_at = Instant::now();
            match self.renew(leadership.epoch, version.clone()).await {
                Ok(Renewal::Renewed(renewed)) => {
                    version = renewed;
                    leadership.extend(sent_at);
                }
                Ok(Renewal::Lost) => return,
                Ok(Renewal::Deleted) => return self.release_deleted(leadership).await,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "failed to renew the lease, retrying");
                }
            }
            if leadership.is_over() {
                return;
            }
        }
    }

    async fn renew(&self, epoch: i64, version: LeaseVersion) -> kube::Result<Renewal> {
        match self.replace(version, epoch).await {
            Ok(lease) => return Ok(Renewal::Renewed(LeaseVersion::from_lease(&lease))),
            Err(error) if matches!(code(&error), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
        // The Lease was modified, or the response to an earlier renewal was lost.
        let Some(lease) = with_timeout(self.api.get_opt(&self.name)).await? else { return Ok(Renewal::Deleted) };
        let version = LeaseVersion::from_lease(&lease);
        let spec = lease.spec.unwrap_or_default();
        let is_holder = spec.holder_identity.as_deref() == Some(&self.identity)
            && spec.lease_transitions.map(i64::from) == Some(epoch);
        if !is_holder {
            return Ok(Renewal::Lost);
        }
        Ok(Renewal::Renewed(LeaseVersion::from_lease(&self.replace(version, epoch).await?)))
    }

    /// Ends leadership after the Lease was deleted, because another process may already be about to create it.
    /// Recreating it without a holder lets the next leader start without waiting or searching for the epoch.
    async fn release_deleted(&self, leadership: &Leadership) {
        // After the deadline another process may be leader already.
        if leadership.is_over() {
            return;
        }
        leadership.release().await;
        if let Err(error) = self.recreate(leadership.epoch).await {
            tracing::info!(error = &error as &dyn std::error::Error, "failed to recreate the lease");
        }
    }

    /// Creates a Lease without a holder, unless one exists.
    async fn recreate(&self, epoch: i64) -> kube::Result<()> {
        let lease = self.lease(LeaseVersion::default(), epoch, None);
        match with_timeout(self.api.create(&PostParams::default(), &lease)).await {
            Err(error) if code(&error) != Some(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Refuses all further writes, waits for those in progress and clears the holder. The Lease must not be renewed
    /// afterwards.
    pub async fn release(&self, leadership: &Leadership) -> kube::Result<()> {
        // After the deadline another process may be leader already.
        if leadership.is_over() {
            return Ok(());
        }
        leadership.release().await;
        let Some(mut lease) = with_timeout(self.api.get_opt(&self.name)).await? else {
            return self.recreate(leadership.epoch).await;
        };
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        spec.renew_time = None;
        lease.metadata.managed_fields = None;
        with_timeout(self.api.replace(&self.name, &PostParams::default(), &lease)).await.map(drop)
    }

    fn lease(&self, version: LeaseVersion, epoch: i64, holder: Option<&str>) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                uid: version.uid,
                resource_version: version.resource_version,
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                lease_transitions: i32::try_from(epoch).ok(),
                // Informational only.
                renew_time: holder.map(|_| MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// A conflict means that another process was faster.
fn attempt_result(epoch: i64, sent_at: Instant, written: kube::Result<Lease>) -> kube::Result<AcquireResult> {
    match written {
        Ok(lease) => Ok(AcquireResult::Acquired(Leadership::new(epoch, LeaseVersion::from_lease(&lease), sent_at))),
        Err(error) if code(&error) == Some(409) => Ok(AcquireResult::HeldByOther(RETRY_PERIOD)),
        Err(error) => Err(error),
    }
}
