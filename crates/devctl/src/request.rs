//! Creates servers: from flags and defaults to a `DevServer` object, and to the cluster.

pub mod args;
pub mod home;
mod name;
mod spec;

use std::path::Path;
use std::time::Duration;

use kube::ResourceExt as _;
use odc_api::name::ObjectName;
use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1::{DevServer, Disk};

pub use name::{generate, sanitize};
pub use spec::{GUEST_ACCESS_NOTICE, SpecPlan, build_spec, find_flavor, idle_action, port, priority};

use crate::cli::Format;
use crate::client::Target;
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result, format_chain};
use crate::model::server::ServerSummary;
use crate::signals::Signals;
use crate::ssh;
use crate::wait;
use args::RequestArgs;
use home::{Prepared, Purpose};

/// How long to wait for a previous server of the same name to stop. A pre-stop script may take minutes.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(600);

/// A server that can be created.
pub struct PlannedServer {
    pub server: DevServer,
    /// The disk of its home, if it must be created first.
    pub new_disk: Option<Box<Disk>>,
    /// The PVC of its home, if its disk has one.
    pub home_claim: Option<ObjectName>,
}

/// Builds the `DevServer` object and prints the notices about it. Prompts for another home if its disk is in use.
pub async fn build(
    ctx: &ClusterContext,
    name: Option<&str>,
    request: &RequestArgs,
    purpose: Purpose,
    keys: Vec<PublicKey>,
    command: &[String],
) -> Result<PlannedServer> {
    let flavors = ctx.client.flavors().await?;
    ctx.ui.trace_step("reading flavors");
    let name = match name {
        None => generate(),
        Some(typed) => {
            let name = sanitize(typed)?;
            if name.as_str() != typed {
                ctx.ui.info(format!("Using the name {name} (names may contain lowercase letters, digits and '-')"));
            }
            name
        }
    };
    let (mut request, defaults) = (request.clone(), ctx.settings.create()?);
    let (SpecPlan { spec, notices }, new_disk, home_claim) = loop {
        home::resolve_disk(ctx, &mut request.home).await?;
        let plan = build_spec(&request, &defaults, purpose, &flavors, keys.clone(), command)?;
        match home::prepare(ctx, name.as_str(), &plan.spec.home, &request.home, &defaults).await? {
            Prepared::Ready { new_disk, claim } => break (plan, new_disk, claim),
            Prepared::Other(home) => request.home = home,
        }
    };
    if request.image.is_none()
        && let Some((image, path)) = ctx.settings.project_image()
    {
        ctx.ui.info(format!("Using image {image} from {}", path.display()));
    }
    for notice in &notices {
        ctx.ui.info(notice);
    }
    let mut server = DevServer::new(name.as_str(), spec);
    let Target { namespace, .. } = ctx.target();
    server.metadata.namespace = Some(namespace.clone());
    Ok(PlannedServer { server, new_disk, home_claim })
}

/// Returns the public keys of a new server: those of the flags, or else the user's own. May prompt to create a key.
pub async fn public_keys(ctx: &ClusterContext, request: &RequestArgs) -> Result<Vec<PublicKey>> {
    if request.keys.is_empty() {
        return ssh::user_keys(ctx).await;
    }
    request.keys.iter().map(|path| read_public_key(path)).collect()
}

/// Reads the key of a `.pub` file.
pub fn read_public_key(path: &Path) -> Result<PublicKey> {
    let path = crate::config::expand_home(path);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Error::usage(format!("could not read {}: {error}", path.display())).with_hint("give the path of a .pub file")
    })?;
    text.trim().parse().map_err(|error| {
        Error::usage(format!("invalid public key {}: {error}", path.display()))
            .with_hint("give the .pub file of an ed25519 key")
    })
}

/// Creates a server and its disk. Replaces a finished server of the same name, and waits for one that is stopping.
pub async fn create(ctx: &ClusterContext, planned: &PlannedServer) -> Result<ServerSummary> {
    let PlannedServer { server, new_disk, .. } = planned;
    if let Some(disk) = new_disk {
        home::create_disk(ctx, disk).await?;
    }
    match submit(ctx, server).await {
        Err(error) if error.kind == Kind::Conflict => {}
        result => {
            ctx.ui.trace_step("creating the server");
            return result;
        }
    }
    // If the old server is gone by now, the name is free.
    if let Some(old) = ctx.client.get_summary(&server.name_any()).await? {
        replace_finished(ctx, old).await?;
    }
    let created = submit(ctx, server).await;
    ctx.ui.trace_step("replacing the finished server");
    created
}

/// Sends the create request. An interrupt may come after the server was created, and the error says so.
async fn submit(ctx: &ClusterContext, server: &DevServer) -> Result<ServerSummary> {
    let name = server.name_any();
    let mut signals = Signals::new()?;
    tokio::select! {
        created = ctx.client.create(server, false) => created,
        _ = signals.recv() => Err(
            Error::interrupted(format!("interrupted while creating {name}; it may have been created"))
                .with_hint(format!("check with `devctl show {name}`; delete it with `devctl delete {name}`")),
        ),
    }
}

/// Deletes a finished server, so that its name is free.
async fn replace_finished(ctx: &ClusterContext, mut old: ServerSummary) -> Result<()> {
    let name = old.name().to_owned();
    if !old.is_finished() {
        if !old.is_stopping() && !old.is_deleting() {
            return Err(already_exists(&old));
        }
        ctx.ui.info(format!("Waiting for the previous server {name} to finish stopping"));
    }
    if !old.is_finished() && !old.is_deleting() {
        old = wait::until_finished(ctx, &name, REPLACE_TIMEOUT).await?;
    }
    ctx.ui.verbose(|| format!("replacing the finished server {name}"));
    if let Err(error) = ssh::remove_host_keys(&old) {
        ctx.ui.warn(format_chain(&error));
    }
    ctx.client.delete(&name, old.metadata.uid.as_deref().unwrap_or_default(), false).await?;
    wait::until_deleted(ctx, &old, REPLACE_TIMEOUT).await
}

/// Validates a server and prints it.
pub async fn dry_run(ctx: &ClusterContext, planned: &PlannedServer) -> Result<()> {
    validate(ctx, planned).await?;
    print(ctx, &planned.server)
}

/// Validates a server and its disk with dry-run requests.
pub async fn validate(ctx: &ClusterContext, planned: &PlannedServer) -> Result<()> {
    let PlannedServer { server, new_disk, .. } = planned;
    if let Some(disk) = new_disk {
        ctx.client.create_disk(disk, true).await?;
        ctx.ui.note(format!("disk {} ({}) would be created", disk.name_any(), disk.spec.size));
    }
    match ctx.client.create(server, true).await {
        Err(error) if error.kind == Kind::Conflict => match ctx.client.get_summary(&server.name_any()).await? {
            Some(old) if !old.is_finished() && !old.is_deleting() && !old.is_stopping() => {
                return Err(already_exists(&old));
            }
            _ => ctx.ui.note(format!("the finished server {} would be replaced", server.name_any())),
        },
        result => result.map(drop)?,
    }
    ctx.ui.info(format!("Server {} would be created (dry run)", server.name_any()));
    Ok(())
}

/// Prints the object as Kubernetes accepts it.
pub fn print(ctx: &ClusterContext, server: &DevServer) -> Result<()> {
    match ctx.out.format {
        Format::Json => ctx.out.json(server),
        Format::Name => ctx.out.lines(vec![server.name_any()]),
        Format::Yaml | Format::Table | Format::Wide => ctx.out.yaml(server),
    }
}

fn already_exists(old: &ServerSummary) -> Error {
    let name = old.name();
    Error::conflict(format!("server {name} already exists (phase: {})", old.phase_str())).with_hint(format!(
        "connect with `devctl ssh {name}`, choose another name, or delete it first with `devctl delete {name}`"
    ))
}
