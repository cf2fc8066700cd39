//! The home of a new server: the default disk of the user, another disk, a PVC, or an ephemeral home.

use kube::ResourceExt as _;
use odc_api::name::{DiskName, ObjectName};
use odc_api::quantity::Quantity;
use odc_api::v1alpha1 as api;
use odc_api::v1alpha1::Disk;

use super::args::{HomeArgs, RequestArgs};
use crate::config::CreateDefaults;
use crate::context::ClusterContext;
use crate::error::{Error, Kind, Result};
use crate::model::disk::{self, DiskSummary};
use crate::model::server::ServerSummary;
use crate::output::duration::format_duration;
use crate::prompt;
use crate::resolve::list_own;
use crate::ui::warning;

/// In bytes. Enough for code and packages, and small enough for any node.
const DEFAULT_EPHEMERAL_SIZE: i64 = 10 << 30;

/// What a server is for, which decides its default home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Interactive work, in a home that is kept.
    Development,
    /// One command, whose results are copied back.
    Job,
}

/// Returns the home that flags and settings select.
pub fn select(request: &RequestArgs, defaults: &CreateDefaults, purpose: Purpose, nodes: u32) -> Result<api::Home> {
    let HomeArgs { disk, new_disk, ephemeral, ephemeral_if_in_use: _, home_size, home_claim } = &request.home;
    let sized = |size: Option<Quantity>| {
        api::Home::Ephemeral(size.or(defaults.home_size).unwrap_or(Quantity::bytes(DEFAULT_EPHEMERAL_SIZE)))
    };
    if let Some(claim) = home_claim {
        return Ok(api::Home::Claim(claim.clone()));
    }
    if *ephemeral || home_size.is_some() {
        return Ok(sized(*home_size));
    }
    let chosen = match (new_disk, disk) {
        (Some(new), _) => Some(new.clone()),
        (None, Some(name)) => Some(disk::parse_name(name)?),
        (None, None) => None,
    };
    match (chosen, &defaults.home_claim, defaults.home_size) {
        (Some(name), _, _) => disk_home(&name),
        (None, Some(claim), _) => Ok(api::Home::Claim(claim.clone())),
        (None, None, Some(size)) => Ok(sized(Some(size))),
        (None, None, None) if purpose == Purpose::Job || nodes > 1 => Ok(sized(None)),
        (None, None, None) if defaults.disk.as_ref().is_some_and(|disk| disk.as_str() == disk::NO_DISK) => {
            Ok(sized(None))
        }
        (None, None, None) => disk_home(&default_name(defaults)?),
    }
}

fn disk_home(name: &DiskName) -> Result<api::Home> {
    let name: ObjectName =
        name.as_str().parse().map_err(|error| Error::failed(format!("invalid disk name: {error}")))?;
    Ok(api::Home::Disk(name))
}

/// Returns the name of the disk that is used by default.
pub fn default_name(defaults: &CreateDefaults) -> Result<DiskName> {
    defaults.disk.clone().map_or_else(|| disk::parse_name(disk::DEFAULT_NAME), Ok)
}

/// Returns the size of a disk that is created for a server.
pub fn default_size(defaults: &CreateDefaults) -> Quantity {
    defaults.disk_size.unwrap_or(Quantity::bytes(disk::DEFAULT_SIZE))
}

/// Returns the warning about an ephemeral home that was not requested by a flag.
pub fn ephemeral_notice(request: &RequestArgs, purpose: Purpose, home: &api::Home, idle: &api::Idle) -> Option<String> {
    let api::Home::Ephemeral(size) = home else { return None };
    if request.home.is_set() || purpose == Purpose::Job {
        return None;
    }
    let idle_stop = match idle.action {
        api::IdleAction::End => format!(" The server is deleted after {} idle.", format_duration(idle.timeout)),
        api::IdleAction::None | api::IdleAction::Hibernate => String::new(),
    };
    Some(warning(format!(
        "the home directory ({size}) is ephemeral and is deleted with the server.{idle_stop} Use `--disk NAME` for a \
         persistent home."
    )))
}

/// The home of a server, after its disk was looked up.
#[derive(Debug)]
pub enum Prepared {
    /// The home can be used after `new_disk` is created. `claim` has the data of an existing disk.
    Ready { new_disk: Option<Box<Disk>>, claim: Option<ObjectName> },
    /// The user chose another home.
    Other(HomeArgs),
}

/// Replaces the display name of `--disk` by the name, and `none` by an ephemeral home.
pub async fn resolve_disk(ctx: &ClusterContext, home: &mut HomeArgs) -> Result<()> {
    if home.disk.take_if(|typed| typed == disk::NO_DISK).is_some() {
        home.ephemeral = true;
    }
    if let Some(typed) = &mut home.disk {
        *typed = disk::find(typed, &ctx.client.disks().await?)?.name_any();
    }
    Ok(())
}

/// Checks that the disk of a home can be used by a server of this name. If another server uses it, prompts for another
/// home, or fails without a terminal.
pub async fn prepare(
    ctx: &ClusterContext,
    server: &str,
    home: &api::Home,
    args: &HomeArgs,
    defaults: &CreateDefaults,
) -> Result<Prepared> {
    let api::Home::Disk(name) = home else { return Ok(Prepared::Ready { new_disk: None, claim: None }) };
    let disks = ctx.client.disks().await?;
    let servers = if disks.is_empty() { Vec::new() } else { list_own(ctx).await? };
    ctx.ui.trace_step("listing disks");
    match check(name.as_str(), server, args, &disks, &servers)? {
        DiskCheck::Missing => {
            let name = disk::parse_new_name(name.as_str())?;
            Ok(Prepared::Ready { new_disk: Some(Box::new(disk::empty(&name, default_size(defaults)))), claim: None })
        }
        DiskCheck::Usable(disk) => {
            let claim = disk.status.claim.as_deref().and_then(|claim| claim.parse().ok());
            Ok(Prepared::Ready { new_disk: None, claim })
        }
        DiskCheck::InUse(user) if args.ephemeral_if_in_use => {
            ctx.ui.info(warning(format!(
                "disk {name} is used by server {user}; the home directory of the new server is ephemeral and is deleted \
                 with it"
            )));
            Ok(Prepared::Other(HomeArgs { ephemeral: true, ..HomeArgs::default() }))
        }
        DiskCheck::InUse(user) if ctx.ui.is_interactive() && !ctx.ui.yes() => {
            let question = format!("Disk {name} is used by server {user}. Which home should the new server have?");
            prompt::home::ask(&question, prompt::home::alternatives(name.as_str(), &disks, &servers), &disks)
                .map(Prepared::Other)
        }
        DiskCheck::InUse(user) => Err(in_use(name.as_str(), &user)),
    }
}

#[derive(Debug)]
enum DiskCheck<'a> {
    Usable(&'a DiskSummary),
    /// It does not exist and is created.
    Missing,
    /// This server uses it.
    InUse(String),
}

fn check<'a>(
    name: &str,
    server: &str,
    args: &HomeArgs,
    disks: &'a [DiskSummary],
    servers: &[ServerSummary],
) -> Result<DiskCheck<'a>> {
    match disks.iter().find(|disk| disk.name_any() == name) {
        None if args.disk.is_some() => Err(disk::not_found(name, None)),
        None => Ok(DiskCheck::Missing),
        Some(_) if args.new_disk.is_some() => {
            Err(Error::conflict(format!("disk {name} already exists")).with_hint("choose another name"))
        }
        Some(disk) => match (disk::unusable(disk), disk::find_user(disk, servers, Some(server))) {
            (Some(error), _) => Err(error),
            (None, Some(user)) => Ok(DiskCheck::InUse(user)),
            (None, None) => Ok(DiskCheck::Usable(disk)),
        },
    }
}

fn in_use(disk: &str, server: &str) -> Error {
    Error::conflict(format!("disk {disk} is used by server {server}")).with_hint(
        "choose another disk with `--disk NAME`, create one with `devctl disk create NAME`, or pass `--ephemeral`",
    )
}

/// Creates a disk for a server, unless another client has created it meanwhile.
pub async fn create_disk(ctx: &ClusterContext, disk: &Disk) -> Result<()> {
    match ctx.client.create_disk(disk, false).await {
        Ok(created) => {
            ctx.ui.info(format!("Created disk {} ({})", created.name_any(), created.spec.size));
            Ok(())
        }
        Err(error) if error.kind == Kind::Conflict => Ok(()),
        Err(error) => Err(Error {
            message: format!("could not create disk {}: {}", disk.name_any(), error.message),
            hint: Some("choose an existing disk with `--disk NAME`, or pass `--ephemeral`".to_owned()),
            ..error
        }),
    }
}

#[cfg(test)]
mod tests;
