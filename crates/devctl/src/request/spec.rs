//! From flags and defaults to a spec. The only I/O is reading scripts.

use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use odc_api::duration::Duration;
use odc_api::ssh_key::PublicKey;
use odc_api::v1alpha1 as api;
use odc_api::v1alpha1::{DevServerFlavor, DevServerSpec};

use super::args::{IdleActionArg, PriorityArg, RequestArgs};
use super::home::{self, Purpose};
use crate::cli::value::PortArg;
use crate::config::{CreateDefaults, expand_home};
use crate::error::{Error, Result};
use crate::output::duration::format_duration;
use crate::resolve;
use crate::shell;
use crate::ui::{note, warning};

/// Starting would take most of a shorter lifetime.
const MIN_LIFETIME: Duration = Duration::minutes(5);
const DEFAULT_LIFETIME: Duration = Duration::hours(8);

/// Printed when other users are granted access.
pub const GUEST_ACCESS_NOTICE: &str =
    "other users cannot reach this server through the Kubernetes API. They need direct network access to the pod.";

/// A spec and what the user should know about it.
pub struct SpecPlan {
    pub spec: DevServerSpec,
    pub notices: Vec<String>,
}

pub fn build_spec(
    request: &RequestArgs,
    defaults: &CreateDefaults,
    purpose: Purpose,
    flavors: &[DevServerFlavor],
    keys: Vec<PublicKey>,
    command: &[String],
) -> Result<SpecPlan> {
    let mut notices = Vec::new();
    let name = request.flavor.as_ref().or(defaults.flavor.as_ref());
    let flavor = name.map(|name| find_flavor(name, flavors)).transpose()?;
    // The default of the cluster is only assumed, not set: the user may have another one.
    let assumed = flavor.or_else(|| flavors.iter().find(|flavor| flavor.spec.default));
    let gpus = request.gpus.or(if request.flavor.is_some() { None } else { defaults.gpus });
    let (count, nodes) = size(request, gpus, assumed)?;
    let lifetime = lifetime(request, defaults, flavor, &mut notices)?;
    let home = home::select(request, defaults, purpose, nodes)?;
    let idle = idle(request, &home);
    notices.extend(home::ephemeral_notice(request, purpose, &home, &idle));
    if let Some(flavor) = flavor {
        flavor_notices(flavor, &mut notices);
    }
    if !request.users.is_empty() {
        notices.push(note(GUEST_ACCESS_NOTICE));
    }
    let spec = DevServerSpec {
        team: request.team.clone().or_else(|| defaults.team.clone()),
        flavor: flavor.map(|flavor| parse_flavor_name(&flavor.name_any())).transpose()?,
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
            not_before: request.at.map(|start| Time(start.0)),
        },
    };
    Ok(SpecPlan { spec, notices })
}

/// Returns the flavor of this name, ignoring case.
pub fn find_flavor<'a>(typed: &str, flavors: &'a [DevServerFlavor]) -> Result<&'a DevServerFlavor> {
    if let Some(flavor) = flavors.iter().find(|flavor| flavor.name_any().eq_ignore_ascii_case(typed)) {
        return Ok(flavor);
    }
    let names: Vec<String> = flavors.iter().map(kube::ResourceExt::name_any).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let hint = match (resolve::nearest(typed, names.iter().copied()), names.as_slice()) {
        (_, []) => "this cluster has no flavors; ask your administrator".to_owned(),
        (Some(nearest), _) => format!("did you mean {nearest}? Available: {}", resolve::join_names(&names)),
        (None, _) => format!("choose one of {}", resolve::join_names(&names)),
    };
    Err(Error::not_found(format!("flavor {typed} not found")).with_hint(hint))
}

fn parse_flavor_name(name: &str) -> Result<odc_api::name::FlavorName> {
    name.parse().map_err(|error| Error::failed(format!("invalid flavor name {name}: {error}")))
}

/// Returns the devices per node and the number of nodes.
fn size(request: &RequestArgs, gpus: Option<u32>, flavor: Option<&DevServerFlavor>) -> Result<(Option<u32>, u32)> {
    let nodes = request.nodes.unwrap_or(1);
    let (Some(gpus), Some(flavor)) = (gpus, flavor) else { return Ok((gpus, nodes)) };
    let name = flavor.name_any();
    let Some(device) = &flavor.spec.device else {
        return if gpus == 0 {
            Ok((Some(0), nodes))
        } else {
            Err(Error::usage(format!("flavor {name} has no GPUs"))
                .with_hint("omit `--gpus`, or choose another flavor (`devctl flavors`)"))
        };
    };
    let per_node = device.per_node;
    if request.distributed {
        if gpus == 0 || gpus % per_node != 0 {
            return Err(Error::usage(format!(
                "{gpus} GPUs are not a multiple of a whole node of {name} ({per_node} GPUs)"
            ))
            .with_hint(format!(
                "use `--gpus {}` or `--gpus {}`",
                (gpus / per_node).max(1) * per_node,
                (gpus / per_node + 1) * per_node
            )));
        }
        return Ok((Some(per_node), gpus / per_node));
    }
    if gpus > per_node {
        let nodes = gpus.div_ceil(per_node);
        return Err(Error::usage(format!("a node of flavor {name} has only {per_node} GPUs"))
            .with_hint(format!("use `--gpus {} --distributed` for {nodes} nodes", nodes * per_node)));
    }
    if !device.counts.is_empty() && gpus > 0 && !device.counts.contains(&gpus) {
        let counts: Vec<String> = device.counts.iter().map(u32::to_string).collect();
        return Err(Error::usage(format!("flavor {name} does not offer {gpus} GPUs"))
            .with_hint(format!("choose one of {}", counts.join(", "))));
    }
    Ok((Some(gpus), nodes))
}

fn lifetime(
    request: &RequestArgs,
    defaults: &CreateDefaults,
    flavor: Option<&DevServerFlavor>,
    notices: &mut Vec<String>,
) -> Result<Duration> {
    let requested = request.requested_lifetime().or(defaults.lifetime).unwrap_or(DEFAULT_LIFETIME);
    if requested < MIN_LIFETIME {
        return Err(Error::usage(format!("a lifetime of {} is too short", format_duration(requested)))
            .with_hint(format!("request at least {}", format_duration(MIN_LIFETIME))));
    }
    let limits = flavor.map(|flavor| &flavor.spec.limits);
    let limit = limits.and_then(|limits| [limits.lifetime, limits.total].into_iter().flatten().min());
    if let (Some(limit), Some(flavor)) = (limit.filter(|limit| *limit < requested), flavor) {
        notices.push(warning(format!(
            "flavor {} limits the lifetime to {} (requested {})",
            flavor.name_any(),
            format_duration(limit),
            format_duration(requested)
        )));
    }
    Ok(requested)
}

fn idle(request: &RequestArgs, home: &api::Home) -> api::Idle {
    let ephemeral = matches!(home, api::Home::Ephemeral(_));
    let action = request.idle_action.map(idle_action);
    let mut idle = api::Idle::default();
    idle.timeout = request.idle.unwrap_or(idle.timeout);
    idle.action = action.unwrap_or(if ephemeral { api::IdleAction::End } else { api::IdleAction::Hibernate });
    idle
}

fn flavor_notices(flavor: &DevServerFlavor, notices: &mut Vec<String>) {
    if let Some(maintenance) = &flavor.spec.maintenance {
        notices.push(warning(format!("flavor {} is in maintenance: {}", flavor.name_any(), maintenance.message)));
    }
    if flavor.spec.spot {
        notices
            .push(warning(format!("{} is a spot flavor: its nodes can be reclaimed at any time", flavor.name_any())));
    }
}

fn image(request: &RequestArgs, defaults: &CreateDefaults) -> Option<api::Image> {
    let reference = request.image.clone().or_else(|| defaults.image.clone());
    let image = api::Image {
        reference,
        build: None,
        keep_entrypoint: request.preserve_entrypoint,
        pull_secret: request.pull_secret.clone(),
    };
    (image != api::Image::default()).then_some(image)
}

fn environment(request: &RequestArgs) -> Vec<api::EnvVar> {
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

fn setup(request: &RequestArgs, command: &[String]) -> Result<Option<api::Setup>> {
    let script = match (&request.setup, command) {
        (Some(path), []) => Some(read_script(path)?),
        (None, []) => None,
        (None, command) => Some(shell::join(command.iter().map(String::as_str)) + "\n"),
        (Some(_), _) => {
            return Err(
                Error::usage("--setup and a command are mutually exclusive").with_hint("add the command to the script")
            );
        }
    };
    let reference = request.r#ref.clone().filter(|reference| reference != "none");
    let setup = api::Setup {
        script,
        repository: request.repo.clone().map(|url| api::Repository { url, reference }),
        pre_stop: request.pre_stop.as_deref().map(read_script).transpose()?,
        recreate_env: request.recreate_env,
    };
    Ok((setup != api::Setup::default()).then_some(setup))
}

fn read_script(path: &Path) -> Result<String> {
    std::fs::read_to_string(expand_home(path)).map_err(|error| {
        Error::usage(format!("could not read script {}: {error}", path.display())).with_hint("check the path")
    })
}

pub fn port(port: &PortArg) -> api::Port {
    api::Port { name: port.name.clone(), port: port.port, share: port.share }
}

pub fn priority(priority: PriorityArg) -> api::Priority {
    match priority {
        PriorityArg::Low => api::Priority::Low,
        PriorityArg::Normal => api::Priority::Normal,
        PriorityArg::High => api::Priority::High,
    }
}

pub fn idle_action(action: IdleActionArg) -> api::IdleAction {
    match action {
        IdleActionArg::Hibernate => api::IdleAction::Hibernate,
        IdleActionArg::Delete => api::IdleAction::End,
        IdleActionArg::None => api::IdleAction::None,
    }
}

#[cfg(test)]
mod tests;
