//! Servers whose status updates by the scheduler the API server rejects, for example in a webhook. Reports the rejection
//! to the owner.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Resource as _;
use odc_api::v1alpha1::DevServer;
use odc_api::v1alpha1::condition::Reason;
use odc_core::plan::Event;

use crate::cache::key;
use crate::context::Context;

/// The uids of rejected servers.
#[derive(Default)]
pub struct RejectedServers(BTreeSet<String>);

impl RejectedServers {
    /// Records a rejection. The controller shows it in the status. A new rejection is also published as an event, which
    /// is stored even if status writes are rejected.
    pub fn insert(&mut self, ctx: &Context, server: &DevServer, error: &str, is_new: bool) {
        let message = format!(
            "The API server rejected a status update of the scheduler: {}. Ask an administrator to check admission \
             webhooks and policies.",
            error.trim_end_matches('.')
        );
        self.0.insert(server.metadata.uid.clone().unwrap_or_default());
        set_rejection(ctx, server, Some(&message));
        if is_new {
            let event = Event { warning: true, reason: Reason::WriteFailed, action: "Admit", note: message };
            ctx.events.publish(&server.object_ref(&()), &[event]);
        }
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.0.contains(uid)
    }

    /// Clears the rejections that no longer apply, also of servers about which nothing new is written: the admission
    /// rule may be gone.
    pub fn retain(
        &mut self,
        ctx: &Context,
        objects: &HashMap<String, Arc<DevServer>>,
        is_rejected: impl Fn(&str) -> bool,
    ) {
        self.0.retain(|uid| {
            let Some(server) = objects.get(uid) else { return false };
            let rejected = is_rejected(uid);
            if !rejected {
                set_rejection(ctx, server, None);
            }
            rejected
        });
    }
}

fn set_rejection(ctx: &Context, server: &DevServer, message: Option<&str>) {
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let previous =
        ctx.soft_states.update(uid, |entry| std::mem::replace(&mut entry.rejection, message.map(str::to_owned)));
    if previous.as_deref() != message {
        let (namespace, name) = key(server);
        ctx.work_queues.enqueue_server(&namespace, &name);
    }
}
