//! Read-your-writes: the results of the operator's own writes are inserted into the caches before the watch delivers
//! them (as client-go's `MutationCache` and the kube-scheduler's assumed pods).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team};
use tokio::sync::mpsc;

use super::{key, version};
use crate::context::Context;

/// The version rule: decides whether the result of a write is newer than what the watch has delivered.
#[derive(Debug, Default)]
pub struct Watermark {
    /// The newest version delivered since the last list began.
    newest: u64,
    /// The number of completed lists.
    relists: Arc<AtomicU64>,
}

impl Watermark {
    pub fn with_counter(relists: Arc<AtomicU64>) -> Self {
        Self { newest: 0, relists }
    }

    /// Returns the number of completed lists. Read it before a write and pass it to [`accepts`](Self::accepts).
    pub fn relists(&self) -> u64 {
        self.relists.load(Ordering::Acquire)
    }

    pub fn observe(&mut self, version: u64) {
        self.newest = self.newest.max(version);
    }

    /// Resets the version: a list is authoritative even if it is older, as after a restore of etcd.
    pub fn begin_list(&mut self) {
        self.newest = 0;
    }

    pub fn end_list(&mut self) {
        self.relists.fetch_add(1, Ordering::AcqRel);
    }

    /// Reports whether the result of a write may be inserted. It is ignored if the watch already delivered this or a
    /// newer version, or if a list completed after the request was sent: that list is authoritative, including for
    /// deletions.
    pub fn accepts(&self, version: u64, relists: u64) -> bool {
        relists == self.relists() && version > self.newest
    }
}

/// Sends written objects to the task that owns the cache.
pub struct AssumedSender<K> {
    sender: mpsc::UnboundedSender<(K, u64)>,
    relists: Arc<AtomicU64>,
}

pub struct AssumedReceiver<K> {
    pub(super) receiver: mpsc::UnboundedReceiver<(K, u64)>,
    pub(super) relists: Arc<AtomicU64>,
}

pub fn assumed_channel<K>() -> (AssumedSender<K>, AssumedReceiver<K>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let relists = Arc::new(AtomicU64::new(0));
    (AssumedSender { sender, relists: relists.clone() }, AssumedReceiver { receiver, relists })
}

impl<K> AssumedSender<K> {
    pub fn relists(&self) -> u64 {
        self.relists.load(Ordering::Acquire)
    }

    pub fn send(&self, object: K, relists: u64) {
        // The receiver lives as long as the leader.
        let _ = self.sender.send((object, relists));
    }
}

/// Kinds whose status the operator writes.
pub trait AssumeInCache {
    /// Returns the number of completed lists of the kind, to be read before a write.
    fn relists(ctx: &Context) -> u64;

    /// Inserts the result of a write into the cache, subject to the version rule.
    fn assume(&self, ctx: &Context, relists: u64);
}

impl AssumeInCache for DevServer {
    fn relists(ctx: &Context) -> u64 {
        ctx.assumed_servers.relists()
    }

    fn assume(&self, ctx: &Context, relists: u64) {
        ctx.assumed_servers.send(self.clone(), relists);
    }
}

impl AssumeInCache for Disk {
    fn relists(ctx: &Context) -> u64 {
        ctx.assumed_disks.relists()
    }

    fn assume(&self, ctx: &Context, relists: u64) {
        ctx.assumed_disks.send(self.clone(), relists);
    }
}

impl AssumeInCache for DiskOperation {
    fn relists(ctx: &Context) -> u64 {
        ctx.cluster.disk_operations.relists()
    }

    fn assume(&self, ctx: &Context, relists: u64) {
        ctx.cluster.disk_operations.assume(key(self), self.clone(), version(self), relists);
    }
}

impl AssumeInCache for DevServerFlavor {
    fn relists(ctx: &Context) -> u64 {
        ctx.cluster.flavors.objects.relists()
    }

    fn assume(&self, ctx: &Context, relists: u64) {
        ctx.cluster.flavors.objects.assume(key(self), self.clone(), version(self), relists);
    }
}

impl AssumeInCache for Team {
    fn relists(ctx: &Context) -> u64 {
        ctx.cluster.teams.relists()
    }

    fn assume(&self, ctx: &Context, relists: u64) {
        ctx.cluster.teams.assume(key(self), self.clone(), version(self), relists);
    }
}

/// Users are rarely written. If the watch is late, the write conflicts and is repeated.
impl AssumeInCache for DevServerUser {
    fn relists(_: &Context) -> u64 {
        0
    }

    fn assume(&self, _: &Context, _: u64) {}
}
