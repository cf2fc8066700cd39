//! Which of several operators leads. One Lease, replaced only in the version that was read.
//!
//! Nobody's wall clock counts: a holder is taken for dead when its Lease has not changed for its whole duration on our
//! own monotonic clock, however often we looked. Every change of holder raises the epoch, also when somebody deleted the
//! Lease: the leader that finds it gone leaves its number for the next one, and where it cannot, the numbers in what was
//! granted tell.

mod observed;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use odc_api::v1alpha1::DevServerFlavor;
use odc_core::object::Kind;

use crate::error::{Error, code};
use crate::follow::Guarded;
use crate::request::{api, in_time};
use observed::Observed;

pub const DURATION: Duration = Duration::from_secs(15);
/// A leader that could not renew for so long stops, well before anybody else may begin.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// No request may be on its way for longer than this: sent before the deadline, it is answered or given up before the
/// next leader begins.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(4);
/// Servers read at once while looking for the highest epoch, as few as the watches read.
const PAGE: u32 = 100;

/// Which Lease, in which version. Kubernetes makes a Lease that is replaced and not there, unless the one that was meant is
/// named.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    uid: Option<String>,
    version: Option<String>,
}

impl Stored {
    fn of(lease: &Lease) -> Self {
        Self { uid: lease.metadata.uid.clone(), version: lease.metadata.resource_version.clone() }
    }
}

/// Proof of leading, for as long as it is renewed.
#[derive(Clone, Debug)]
pub struct Lead {
    pub epoch: i64,
    stored: Stored,
    times: Arc<Mutex<Times>>,
}

#[derive(Debug)]
struct Times {
    /// Nothing is written from here on.
    until: Instant,
    /// When something was last about to be written.
    wrote: Option<Instant>,
}

impl Lead {
    pub(crate) fn new(epoch: i64, stored: Stored, since: Instant) -> Self {
        let times = Times { until: since + RENEW_DEADLINE, wrote: None };
        Self { epoch, stored, times: Arc::new(Mutex::new(times)) }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asked before every write. A process that was stopped and goes on finds its time over.
    pub fn may_write(&self) -> Result<(), Error> {
        let (mut times, now) = (self.times(), Instant::now());
        if now >= times.until {
            return Err(Error::NotLeading);
        }
        times.wrote = Some(now);
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.times().until
    }

    /// From now on nothing is written, whoever is in the middle of something. Waits for what was sent before: the next
    /// leader begins with one list of everything, and what is stored after that list was decided without it.
    async fn end(&self) {
        let wrote = {
            let mut times = self.times();
            times.until = Instant::now();
            times.wrote
        };
        let left = wrote.map_or(Duration::ZERO, |wrote| REQUEST_LIMIT.saturating_sub(wrote.elapsed()));
        tokio::time::sleep(left).await;
    }

    fn renewed(&self, since: Instant) {
        self.times().until = since + RENEW_DEADLINE;
    }
}

#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    servers: Api<DynamicObject>,
    flavors: Api<Guarded<DevServerFlavor>>,
    name: String,
    identity: String,
}

/// What came of trying to lead.
#[derive(Debug)]
enum Attempt {
    Leads(Lead),
    /// Somebody else does, or may for so long.
    Waits(Duration),
}

/// What came of a renewal.
enum Renewal {
    Kept(Stored),
    /// Somebody else holds it.
    Lost,
    /// Nobody does: it is not there.
    Gone,
}

impl Candidate {
    pub fn new(client: &Client, namespace: &str, name: &str, identity: String) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            servers: api(client, Kind::DevServer, None),
            flavors: Api::all(client.clone()),
            name: name.to_owned(),
            identity,
        }
    }

    /// Waits until this process leads.
    pub async fn acquire(&self) -> Lead {
        let mut observed = Observed::default();
        loop {
            let pause = match self.try_acquire(&mut observed).await {
                Ok(Attempt::Leads(lead)) => return lead,
                Ok(Attempt::Waits(left)) => left.min(RETRY),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the lease cannot be had");
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn try_acquire(&self, observed: &mut Observed) -> kube::Result<Attempt> {
        let Some(lease) = in_time(self.api.get_opt(&self.name)).await? else { return self.make(observed).await };
        let stored = Stored::of(&lease);
        let spec = lease.spec.unwrap_or_default();
        let epoch = spec.lease_transitions.map(i64::from).filter(|epoch| *epoch > 0);
        observed.note(stored.version.as_deref(), Instant::now());
        observed.led(epoch.unwrap_or(0));
        let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let left = observed.left(duration.map_or(DURATION, Duration::from_secs), Instant::now());
        if held && !left.is_zero() {
            return Ok(Attempt::Waits(left));
        }
        if epoch.is_none() {
            observed.led(self.highest_stored().await?);
        }
        let (epoch, asked) = (observed.next(), Instant::now());
        or_somebody_else(epoch, asked, self.replace(stored, epoch).await)
    }

    /// There is no Lease: this is a new cluster, or somebody deleted it. What leaders wrote tells which.
    async fn make(&self, observed: &mut Observed) -> kube::Result<Attempt> {
        observed.note(None, Instant::now());
        let mut left = observed.left_without(Instant::now());
        if left.is_zero() {
            // Asked last, when nobody stores a higher one any more.
            observed.led(self.highest_stored().await?);
            left = observed.left_without(Instant::now());
        }
        if !left.is_zero() {
            return Ok(Attempt::Waits(left));
        }
        let (epoch, asked) = (observed.next(), Instant::now());
        let fresh = self.lease(Stored::default(), epoch, Some(&self.identity));
        or_somebody_else(epoch, asked, in_time(self.api.create(&PostParams::default(), &fresh)).await)
    }

    /// The highest epoch of everything that was granted and is still there, asked of the API server itself. Objects that
    /// cannot be read count too.
    async fn highest_stored(&self) -> kube::Result<i64> {
        let mut highest = 0;
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = in_time(self.servers.list(&page)).await?;
            let epochs = listed.items.iter().filter_map(|server| server.data["status"]["admission"]["epoch"].as_i64());
            highest = epochs.fold(highest, i64::max);
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        // Nothing was granted, but the flavors were told how much of them there is: somebody led.
        if highest == 0 && self.was_anything_told().await? { Ok(1) } else { Ok(highest) }
    }

    async fn was_anything_told(&self) -> kube::Result<bool> {
        let flavors = in_time(self.flavors.list(&ListParams::default())).await?;
        Ok(flavors.iter().any(|flavor| flavor.0.as_ref().is_ok_and(|flavor| flavor.status.is_some())))
    }

    async fn replace(&self, stored: Stored, epoch: i64) -> kube::Result<Lease> {
        let lease = self.lease(stored, epoch, Some(&self.identity));
        in_time(self.api.replace(&self.name, &PostParams::default(), &lease)).await
    }

    /// Renews until that is no longer possible. When it returns, this process must stop.
    pub async fn keep(&self, lead: &Lead) {
        let mut stored = lead.stored.clone();
        loop {
            tokio::time::sleep(RETRY).await;
            let asked = Instant::now();
            match self.renew(lead.epoch, stored.clone()).await {
                Ok(Renewal::Kept(renewed)) => {
                    stored = renewed;
                    lead.renewed(asked);
                }
                Ok(Renewal::Lost) => return,
                Ok(Renewal::Gone) => return self.leave_number(lead).await,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "renewing the lease"),
            }
            if lead.is_over() {
                return;
            }
        }
    }

    async fn renew(&self, epoch: i64, stored: Stored) -> kube::Result<Renewal> {
        match self.replace(stored, epoch).await {
            Ok(lease) => return Ok(Renewal::Kept(Stored::of(&lease))),
            Err(error) if matches!(code(&error), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
        // Somebody touched it, or the answer to an earlier renewal was lost.
        let Some(lease) = in_time(self.api.get_opt(&self.name)).await? else { return Ok(Renewal::Gone) };
        let stored = Stored::of(&lease);
        let spec = lease.spec.unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity)
            && spec.lease_transitions.map(i64::from) == Some(epoch);
        if !ours {
            return Ok(Renewal::Lost);
        }
        Ok(Renewal::Kept(Stored::of(&self.replace(stored, epoch).await?)))
    }

    /// Somebody deleted the Lease, and another may already have looked for it in vain, so this process stops. When it has
    /// nothing under way any more, the next one need not wait for it, nor search for its number.
    async fn leave_number(&self, lead: &Lead) {
        // Past our time it is no longer ours to say who comes next.
        if lead.is_over() {
            return;
        }
        lead.end().await;
        if let Err(error) = self.put_back(lead.epoch).await {
            tracing::info!(error = &error as &dyn std::error::Error, "the lease was not made anew");
        }
    }

    /// Makes a Lease that nobody holds, unless there is one.
    async fn put_back(&self, epoch: i64) -> kube::Result<()> {
        let free = self.lease(Stored::default(), epoch, None);
        match in_time(self.api.create(&PostParams::default(), &free)).await {
            Err(error) if code(&error) != Some(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Stops all writes, and lets the next one begin as soon as none is under way. Nobody may renew any more.
    pub async fn release(&self, lead: &Lead) -> kube::Result<()> {
        // Past its time it may be somebody else's already.
        if lead.is_over() {
            return Ok(());
        }
        lead.end().await;
        let Some(mut lease) = in_time(self.api.get_opt(&self.name)).await? else {
            return self.put_back(lead.epoch).await;
        };
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        spec.renew_time = None;
        lease.metadata.managed_fields = None;
        in_time(self.api.replace(&self.name, &PostParams::default(), &lease)).await.map(drop)
    }

    fn lease(&self, stored: Stored, epoch: i64, holder: Option<&str>) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                uid: stored.uid,
                resource_version: stored.version,
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                lease_transitions: i32::try_from(epoch).ok(),
                // For people; nobody decides by it.
                renew_time: holder.map(|_| MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Whoever was faster has it.
fn or_somebody_else(epoch: i64, asked: Instant, written: kube::Result<Lease>) -> kube::Result<Attempt> {
    match written {
        Ok(lease) => Ok(Attempt::Leads(Lead::new(epoch, Stored::of(&lease), asked))),
        Err(error) if code(&error) == Some(409) => Ok(Attempt::Waits(RETRY)),
        Err(error) => Err(error),
    }
}
