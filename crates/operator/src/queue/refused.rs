//! What people are told of a server about which the API server stores nothing that the queue decides.

use kube::Resource as _;
use odc_api::v1alpha1::DevServer;
use odc_api::v1alpha1::condition::Reason;
use odc_core::plan::Event;

use crate::context::Context;

/// Once as an event, which is stored even where the server's own status is not; the driver says it in the status.
pub fn tell(ctx: &Context, server: &DevServer, said: &str) {
    let sentence = format!("The cluster refuses what the queue decides about it: {said}");
    if set(ctx, server, Some(&sentence)).is_none() {
        let event = Event { serious: true, reason: Reason::Incomplete, action: "Queue", note: sentence };
        ctx.reporter.tell(&server.object_ref(&()), &[event]);
    }
}

pub fn no_more(ctx: &Context, server: &DevServer) {
    set(ctx, server, None);
}

/// Gives what was known before.
fn set(ctx: &Context, server: &DevServer, sentence: Option<&str>) -> Option<String> {
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let before = ctx.hints.change(uid, |hint| std::mem::replace(&mut hint.refused, sentence.map(str::to_owned)));
    if before.as_deref() != sentence {
        let (namespace, name) = crate::follow::key(server);
        ctx.look_at_server(&namespace, &name);
    }
    before
}
