//! Objects whose statuses we write, put into our copies before the watch tells of them.

use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Team};

use crate::context::Context;
use crate::follow::{key, version};

pub trait Copied {
    /// How often the kind was listed: asked before a write.
    fn lists(ctx: &Context) -> u64;

    /// Taken over, if nothing was listed since.
    fn remember(&self, ctx: &Context, lists: u64);
}

impl Copied for DevServer {
    fn lists(ctx: &Context) -> u64 {
        ctx.triggers.own.lists()
    }

    fn remember(&self, ctx: &Context, lists: u64) {
        ctx.triggers.own.send(self.clone(), lists);
    }
}

impl Copied for DevServerFlavor {
    fn lists(ctx: &Context) -> u64 {
        ctx.cluster.flavors.kept.lists()
    }

    fn remember(&self, ctx: &Context, lists: u64) {
        ctx.cluster.flavors.kept.insert_own(key(self), self.clone(), version(self), lists);
    }
}

impl Copied for Team {
    fn lists(ctx: &Context) -> u64 {
        ctx.cluster.teams.lists()
    }

    fn remember(&self, ctx: &Context, lists: u64) {
        ctx.cluster.teams.insert_own(key(self), self.clone(), version(self), lists);
    }
}

/// Rarely written: the watch is soon enough, and where it is not the write is done again.
impl Copied for DevServerUser {
    fn lists(_: &Context) -> u64 {
        0
    }

    fn remember(&self, _: &Context, _: u64) {}
}
