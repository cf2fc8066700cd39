//! `queue.odc.dev`: an API of the cluster that the leader answers from memory, so that people see the queue as it is
//! this moment, and with only their own rights.
//!
//! The API server authenticates and authorises a person, then asks us over TLS as its front proxy and says who it is. We
//! take nobody else's word ([`front`]). It finds us by the objects that [`announce`] keeps right, and knows us by the
//! certificate in [`identity`].

mod announce;
mod door;
mod front;
mod identity;
mod live;
mod route;
mod serve;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use odc_api::queue::{Availability, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIfSpec, WhatIfStatus};
use tokio::sync::watch;

use crate::context::Context;
use front::Front;
use identity::Identity;
use live::Live;

/// The Service, and the name we are known by.
const SERVICE: &str = "odc-queue";

/// What the queue knows.
pub trait Answers: Send + Sync + 'static {
    /// Whether anything is known yet: a leader that has just begun has planned nothing.
    fn are_there(&self) -> bool;
    fn queues(&self) -> Vec<Queue>;
    /// In one namespace, or in all.
    fn entries(&self, namespace: Option<&str>) -> Vec<QueueEntry>;
    /// When servers of each size of all flavors, or of one, would start, asked for by the user of a namespace.
    fn availabilities(&self, namespace: &str, only: Option<&str>) -> Vec<Availability>;
    /// What would become of such a request, or in words why nobody can say.
    fn dry_run(&self, namespace: &str, asked: &DryRunSpec) -> Result<DryRunStatus, String>;
    /// What other quotas would change, or in words why nobody can say.
    fn what_if(&self, asked: WhatIfSpec) -> Result<WhatIfStatus, String>;
}

/// Whatever has to be known before anybody can be answered.
#[derive(Default)]
struct Known {
    front: Option<Arc<Front>>,
    identity: Option<Arc<Identity>>,
}

/// Everything it takes, for ever. Where no address is set it is not served: outside of a pod nobody could find us.
pub fn all(ctx: &Arc<Context>) -> Vec<BoxFuture<'static, ()>> {
    let answers: Arc<dyn Answers> = Arc::new(Live(ctx.clone()));
    let Some(at) = ctx.config.queue_api else { return vec![] };
    let (known, seen) = watch::channel(Known::default());
    let known = Arc::new(known);
    vec![
        front::follow(ctx.clone(), known.clone()).boxed(),
        identity::follow(ctx.clone(), known).boxed(),
        serve::run(at, seen.clone(), answers).boxed(),
        announce::run(ctx.clone(), at, seen).boxed(),
    ]
}
