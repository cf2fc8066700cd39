//! Gathers from our copies of the cluster what a request is checked against.

use std::collections::BTreeMap;
use std::sync::Arc;

use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Team};
use odc_core::devserver::validate::{self, ClaimFact, Facts};
use odc_core::holder::{self, Holder};
use odc_core::seen;

use crate::context::Context;

/// Held while a decision looks at it.
pub struct Known {
    user: Option<Arc<DevServerUser>>,
    team: Option<Arc<Team>>,
    flavors: Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>>,
    runtimes: Vec<Arc<seen::Runtime>>,
    claims: Vec<KnownClaim>,
    guests: Vec<Arc<DevServerUser>>,
}

struct KnownClaim {
    name: String,
    claim: Option<Arc<seen::Claim>>,
    waits_for_consumer: bool,
    held_by: Option<Holder>,
    volume: Option<Arc<seen::VolumeSeen>>,
}

impl Known {
    pub fn of(ctx: &Context, server: &DevServer) -> Self {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        let claims = claims(ctx, server).into_iter().map(|name| KnownClaim::of(ctx, server, namespace, name));
        Self {
            user: ctx.owner(namespace),
            team: server.spec.team.as_ref().and_then(|team| ctx.cluster.teams.get("", team.as_str())),
            flavors: ctx.cluster.flavors.all(),
            runtimes: ctx.cluster.runtimes.all(),
            claims: claims.collect(),
            guests: ctx.guests(server),
        }
    }

    pub fn facts<'a>(&'a self, default_image: &'a str) -> Facts<'a> {
        let claims = self.claims.iter().map(|known| ClaimFact {
            name: &known.name,
            claim: known.claim.as_deref(),
            waits_for_consumer: known.waits_for_consumer,
            held_by: known.held_by.as_ref(),
        });
        Facts {
            user: self.user.as_deref(),
            team: self.team.as_deref(),
            flavors: &self.flavors,
            runtimes: &self.runtimes,
            claims: claims.collect(),
            guests: self.guests.iter().map(|guest| &**guest).collect(),
            default_image,
        }
    }

    pub fn user(&self) -> Option<&DevServerUser> {
        self.user.as_deref()
    }

    pub fn team(&self) -> Option<&Team> {
        self.team.as_deref()
    }

    /// From where the volumes can be reached.
    pub fn reach(&self) -> Vec<seen::Reach> {
        self.volumes().map(|volume| volume.reach.clone()).collect()
    }

    /// What has to be attached wherever the server starts. What several may mount is perhaps there already, which the
    /// kube-scheduler knows.
    pub fn attachments(&self) -> impl Iterator<Item = &seen::Attachment> {
        let own = self.claims.iter().filter(|claim| claim.claim.as_ref().is_some_and(|claim| !claim.shared));
        own.filter_map(|claim| claim.volume.as_ref()?.attachment.as_ref())
    }

    fn volumes(&self) -> impl Iterator<Item = &seen::VolumeSeen> {
        self.claims.iter().filter_map(|claim| claim.volume.as_deref())
    }
}

/// The claims a server mounts, by itself or by its flavor.
pub fn claims(ctx: &Context, server: &DevServer) -> Vec<String> {
    let flavors = ctx.cluster.flavors.all();
    let user = ctx.owner(server.metadata.namespace.as_deref().unwrap_or_default());
    let flavor = validate::flavor_name(server, user.as_deref(), &flavors).ok().and_then(|name| flavors.get(&name));
    let claims = validate::claims(server, flavor.map(|flavor| &flavor.spec));
    claims.into_iter().map(str::to_owned).collect()
}

impl KnownClaim {
    fn of(ctx: &Context, server: &DevServer, namespace: &str, name: String) -> Self {
        let cluster = &ctx.cluster;
        let claim = cluster.claims.get(namespace, &name);
        let class = claim.as_ref().and_then(|claim| match &claim.class {
            Some(class) => cluster.classes.get("", class),
            None => cluster.classes.all().into_iter().find(|class| class.is_default),
        });
        let volume = claim.as_ref().and_then(|claim| claim.volume.as_ref());
        let shared = claim.as_ref().is_some_and(|claim| claim.shared);
        Self {
            held_by: if shared { None } else { holder_of(ctx, server, namespace, &name) },
            waits_for_consumer: class.is_some_and(|class| class.waits_for_consumer),
            volume: volume.and_then(|volume| cluster.volumes.get("", volume)),
            name,
            claim,
        }
    }
}

fn holder_of(ctx: &Context, server: &DevServer, namespace: &str, claim: &str) -> Option<Holder> {
    let (others, pods) = (ctx.mounting(namespace, claim), ctx.cluster.pods.in_namespace(namespace));
    let others: Vec<&DevServer> = others.iter().map(|other| &**other).collect();
    let pods: Vec<&seen::Pod> = pods.iter().map(|pod| &**pod).collect();
    holder::holder(claim, server, &others, &pods)
}
