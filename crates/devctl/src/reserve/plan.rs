//! From what was typed to a spec. No I/O but the scripts that flags name.

use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::quantity::Quantity;
use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1 as api;
use odc_api::v1alpha1::{DevServerFlavor, DevServerSpec};

use crate::args::{Request, Urgency, WhenIdle};
use crate::config::CreateDefaults;
use crate::failure::{Failure, Result};
use crate::find;
use crate::ssh::quote;

/// Shorter than this nobody gets anything done, and most of it would be starting.
const SHORTEST: Duration = Duration::minutes(5);
const DEFAULT_LIFETIME: Duration = Duration::hours(8);
/// Enough for code and packages, little enough for any node.
const DEFAULT_HOME: i64 = 10 << 30;

/// What whoever lets others in should know: their keys fit, but there is no way to the door.
pub const ABOUT_GUESTS: &str = "Only you reach your servers through the Kubernetes API, so others let in need another way \
                                to them: a network of yours, or ODC's gateway when it is there.";

pub struct Plan {
    pub spec: DevServerSpec,
    /// What the person should know before it starts.
    pub remarks: Vec<String>,
}

pub fn plan(
    request: &Request,
    defaults: &CreateDefaults,
    flavors: &[DevServerFlavor],
    keys: Vec<PublicKey>,
    command: &[String],
) -> Result<Plan> {
    let mut remarks = Vec::new();
    let asked = request.flavor.as_ref().or(defaults.flavor.as_ref());
    let flavor = asked.map(|asked| flavor_named(asked, flavors)).transpose()?;
    // What the cluster would take; it is left open, because the person's own default may be another.
    let likely = flavor.or_else(|| flavors.iter().find(|flavor| flavor.spec.default));
    let gpus = request.gpus.or(if request.flavor.is_some() { None } else { defaults.gpus });
    let (count, nodes) = size(request, gpus, likely)?;
    let lifetime = lifetime(request, defaults, flavor, &mut remarks)?;
    let home = home(request, defaults);
    let idle = idle(request, &home, &mut remarks);
    if let Some(flavor) = flavor {
        warn(flavor, &mut remarks);
    }
    if !request.users.is_empty() {
        remarks.push(ABOUT_GUESTS.to_owned());
    }
    let spec = DevServerSpec {
        team: request.team.clone().or_else(|| defaults.team.clone()),
        flavor: flavor.map(|flavor| named(&flavor.name_any())).transpose()?,
        count,
        nodes,
        desired: api::Desired::Running,
        wake: None,
        image: image(request, defaults).map(Box::new),
        lifetime,
        idle,
        home,
        volumes: request
            .volumes
            .iter()
            .map(|mount| api::Volume {
                claim: mount.claim.clone(),
                path: mount.path.clone(),
                read_only: mount.read_only,
            })
            .collect(),
        access: api::Access {
            keys,
            users: request.users.clone(),
            jupyter: !request.no_jupyter && (request.jupyter || defaults.jupyter.unwrap_or(false)),
            ports: request.ports.iter().map(port).collect(),
        },
        env: environment(request),
        setup: setup(request, command)?.map(Box::new),
        scheduling: api::Scheduling {
            priority: request.priority.map(priority),
            preemptible: request.preemptible,
            node_labels: request.node_labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect(),
            not_before: request.at.map(|moment| Time(moment.0)),
        },
    };
    Ok(Plan { spec, remarks })
}

/// A flavor by its name in any case, or what was probably meant.
pub fn flavor_named<'a>(typed: &str, flavors: &'a [DevServerFlavor]) -> Result<&'a DevServerFlavor> {
    if let Some(flavor) = flavors.iter().find(|flavor| flavor.name_any().eq_ignore_ascii_case(typed)) {
        return Ok(flavor);
    }
    let names: Vec<String> = flavors.iter().map(kube::ResourceExt::name_any).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all =
        if names.is_empty() { "There are none.".to_owned() } else { format!("There are {}.", find::listed(&names)) };
    let near = find::nearest(typed, names.iter().copied()).map(|near| format!("Did you mean {near}? "));
    Err(Failure::not_found(format!("there is no flavor {typed}")).advise(format!("{}{all}", near.unwrap_or_default())))
}

fn named(name: &str) -> Result<odc_api::name::FlavorName> {
    name.parse().map_err(|error| Failure::failed(format!("the flavor {name} has no proper name: {error}")))
}

/// Devices on each node, and nodes.
fn size(request: &Request, gpus: Option<u32>, flavor: Option<&DevServerFlavor>) -> Result<(Option<u32>, u32)> {
    let nodes = request.nodes.unwrap_or(1);
    let (Some(gpus), Some(flavor)) = (gpus, flavor) else { return Ok((gpus, nodes)) };
    let name = flavor.name_any();
    let Some(device) = &flavor.spec.device else {
        return if gpus == 0 {
            Ok((Some(0), nodes))
        } else {
            Err(Failure::usage(format!("{name} has no GPUs"))
                .advise("Leave --gpus out, or choose another of devctl flavors."))
        };
    };
    let per_node = device.per_node;
    if request.distributed {
        if gpus == 0 || gpus % per_node != 0 {
            return Err(Failure::usage(format!(
                "{gpus} GPUs are not whole nodes of {name}, which have {per_node} each"
            ))
            .advise(format!(
                "Ask for {} or {}.",
                (gpus / per_node).max(1) * per_node,
                (gpus / per_node + 1) * per_node
            )));
        }
        return Ok((Some(per_node), gpus / per_node));
    }
    if gpus > per_node {
        let whole = gpus.div_ceil(per_node);
        return Err(Failure::usage(format!("a node of {name} has only {per_node} GPUs"))
            .advise(format!("Say --gpus {} --distributed for {whole} nodes.", whole * per_node)));
    }
    if !device.counts.is_empty() && gpus > 0 && !device.counts.contains(&gpus) {
        let counts: Vec<String> = device.counts.iter().map(u32::to_string).collect();
        return Err(Failure::usage(format!("{name} does not come with {gpus} GPUs"))
            .advise(format!("Ask for one of {}.", counts.join(", "))));
    }
    Ok((Some(gpus), nodes))
}

fn lifetime(
    request: &Request,
    defaults: &CreateDefaults,
    flavor: Option<&DevServerFlavor>,
    remarks: &mut Vec<String>,
) -> Result<Duration> {
    let asked = request.hours.map(|hours| hours.0).or(request.time).or(defaults.lifetime).unwrap_or(DEFAULT_LIFETIME);
    if asked < SHORTEST {
        return Err(Failure::usage(format!("{asked} is too short")).advise("Ask for at least 5m."));
    }
    let limits = flavor.map(|flavor| &flavor.spec.limits);
    let limit = limits.and_then(|limits| [limits.lifetime, limits.total].into_iter().flatten().min());
    if let (Some(limit), Some(flavor)) = (limit.filter(|limit| *limit < asked), flavor) {
        remarks.push(format!(
            "{} runs at most {limit}, so that is what you get of the {asked} asked for.",
            flavor.name_any()
        ));
    }
    Ok(asked)
}

fn home(request: &Request, defaults: &CreateDefaults) -> api::Home {
    let flags = &request.home;
    let size = |size: Option<Quantity>| api::Home::Ephemeral(size.unwrap_or(Quantity::bytes(DEFAULT_HOME)));
    match (&flags.home_claim, flags.home_size, flags.no_persist) {
        (Some(claim), _, _) => api::Home::Claim(claim.clone()),
        (None, None, false) => match &defaults.home_claim {
            Some(claim) => api::Home::Claim(claim.clone()),
            None => size(defaults.home_size),
        },
        (None, given, _) => size(given.or(defaults.home_size)),
    }
}

fn idle(request: &Request, home: &api::Home, remarks: &mut Vec<String>) -> api::Idle {
    let ephemeral = matches!(home, api::Home::Ephemeral(_));
    let action = request.idle_action.map(idle_action);
    let mut idle = api::Idle::default();
    idle.timeout = request.idle.unwrap_or(idle.timeout);
    idle.action = action.unwrap_or(if ephemeral { api::IdleAction::End } else { api::IdleAction::Hibernate });
    if let (api::Home::Ephemeral(size), false, false) =
        (home, request.home.no_persist, request.home.home_size.is_some())
    {
        let end = match idle.action {
            api::IdleAction::End => format!(" After {} without use it ends.", idle.timeout),
            api::IdleAction::None | api::IdleAction::Hibernate => String::new(),
        };
        remarks.push(format!(
            "Its home is {size} on the node and is gone when the server ends.{end} --home-claim NAME keeps one."
        ));
    }
    idle
}

fn warn(flavor: &DevServerFlavor, remarks: &mut Vec<String>) {
    if let Some(maintenance) = &flavor.spec.maintenance {
        remarks.push(format!("{} is in maintenance: {}", flavor.name_any(), maintenance.message));
    }
    if flavor.spec.spot {
        remarks.push(format!("{} is a spot flavor: its nodes can be taken away at any time.", flavor.name_any()));
    }
}

fn image(request: &Request, defaults: &CreateDefaults) -> Option<api::Image> {
    let reference = request.image.clone().or_else(|| defaults.image.clone());
    let image = api::Image {
        reference,
        build: None,
        keep_entrypoint: request.preserve_entrypoint,
        pull_secret: request.pull_secret.clone(),
    };
    (image != api::Image::default()).then_some(image)
}

fn environment(request: &Request) -> Vec<api::EnvVar> {
    let plain = request.env.iter().map(|variable| api::EnvVar {
        name: variable.name.clone(),
        value: Some(variable.value.clone()),
        secret: None,
    });
    let secret = request.secret_env.iter().map(|variable| api::EnvVar {
        name: variable.name.clone(),
        value: None,
        secret: Some(api::SecretKey { name: variable.secret.clone(), key: variable.key.clone() }),
    });
    plain.chain(secret).collect()
}

fn setup(request: &Request, command: &[String]) -> Result<Option<api::Setup>> {
    let script = match (&request.setup, command) {
        (Some(path), []) => Some(read(path)?),
        (None, []) => None,
        (None, command) => Some(quote::words(command.iter().map(String::as_str)) + "\n"),
        (Some(_), _) => {
            return Err(Failure::usage("both --setup and a command are given")
                .advise("Put the command into the script, or leave one of them out."));
        }
    };
    let reference = request.r#ref.clone().filter(|reference| reference != "none");
    let setup = api::Setup {
        script,
        repository: request.repo.clone().map(|url| api::Repository { url, reference }),
        pre_stop: request.pre_stop.as_deref().map(read).transpose()?,
    };
    Ok((setup.script.is_some() || setup.repository.is_some() || setup.pre_stop.is_some()).then_some(setup))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(crate::config::expanded(path)).map_err(|error| {
        Failure::usage(format!("the script {} cannot be read: {error}", path.display())).advise("Name a file of yours.")
    })
}

pub fn port(door: &crate::args::value::Door) -> api::Port {
    api::Port { name: door.name.clone(), port: door.port, share: door.share }
}

pub fn priority(urgency: Urgency) -> api::Priority {
    match urgency {
        Urgency::Low => api::Priority::Low,
        Urgency::Normal => api::Priority::Normal,
        Urgency::High => api::Priority::High,
    }
}

pub fn idle_action(action: WhenIdle) -> api::IdleAction {
    match action {
        WhenIdle::Hibernate => api::IdleAction::Hibernate,
        WhenIdle::End => api::IdleAction::End,
        WhenIdle::None => api::IdleAction::None,
    }
}

#[cfg(test)]
mod tests;
