//! What people are told of a server about which the API server stores nothing that the queue decides.

use std::collections::BTreeSet;

use kube::Resource as _;
use odc_api::v1alpha1::DevServer;
use odc_api::v1alpha1::condition::Reason;
use odc_core::plan::Event;

use crate::context::Context;
use crate::snapshot::Snapshot;

/// The servers that are told so, by uid.
#[derive(Default)]
pub struct Told(BTreeSet<String>);

impl Told {
    /// The driver says it in the status. What is news is an event too, which is stored even where the status is not.
    pub fn tell(&mut self, ctx: &Context, server: &DevServer, said: &str, news: bool) {
        let sentence = format!("The cluster refuses what the queue decides about it: {said}");
        self.0.insert(server.metadata.uid.clone().unwrap_or_default());
        set(ctx, server, Some(&sentence));
        if news {
            let event = Event { serious: true, reason: Reason::Incomplete, action: "Queue", note: sentence };
            ctx.reporter.tell(&server.object_ref(&()), &[event]);
        }
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.0.contains(uid)
    }

    /// Whoever is not refused any more waits like everybody else, also where nothing new is written about it: what refused
    /// it may be gone.
    pub fn retain(&mut self, ctx: &Context, snapshot: &Snapshot, is_refused: impl Fn(&str) -> bool) {
        self.0.retain(|uid| {
            let Some(server) = snapshot.read.get(uid) else { return false };
            let refused = is_refused(uid);
            if !refused {
                set(ctx, server, None);
            }
            refused
        });
    }
}

fn set(ctx: &Context, server: &DevServer, sentence: Option<&str>) {
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let before = ctx.hints.change(uid, |hint| std::mem::replace(&mut hint.refused, sentence.map(str::to_owned)));
    if before.as_deref() != sentence {
        let (namespace, name) = crate::follow::key(server);
        ctx.look_at_server(&namespace, &name);
    }
}
