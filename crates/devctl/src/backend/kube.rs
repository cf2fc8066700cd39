//! The Kubernetes API itself, with the rights of whoever the kubeconfig names. No discovery: the first request is the
//! one that was asked for.

mod admin;
mod error;
mod happening;
mod queue;
mod reach;
mod servers;

use std::path::Path;
use std::time::Duration;

use ::kube::config::{KubeConfigOptions, Kubeconfig};
use ::kube::{Client, Config};
use futures_util::stream::BoxStream;
use odc_api::queue::{Availability, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIfSpec, WhatIfStatus};
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use serde_json::Value;

use super::{Answer, Backend, Change, Happening, Kind, Lines, Live, LogRequest, Login, Pipe, Place, Scope};
use crate::config::Target;
use crate::failure::{Failure, Result, chain};
use crate::glance::Glance;

pub(super) use error::{failure, said_about};

/// The name of a context that nobody named, because devctl runs in a pod.
pub const IN_CLUSTER: &str = "in-cluster";

/// Who we are to the API server, as an agent and as a manager of fields.
const MANAGER: &str = "devctl";

/// Who we are where a manifest says all there is: what an earlier one of ours said and this one does not is taken away
/// again, and must not be mixed up with single changes.
const DECLARER: &str = "devctl-apply";

/// A cluster that cannot be reached is said to be so while people still look at the terminal.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Kube {
    client: Client,
    place: Place,
    /// As it was read, and which part of it is used: to make another user's from it.
    kubeconfig: Kubeconfig,
    context: Option<String>,
}

impl Kube {
    pub async fn connect(target: &Target) -> Result<Self> {
        let kubeconfig = read(target.kubeconfig.as_deref())?;
        let context = target.kube_context.clone().or_else(|| kubeconfig.current_context.clone());
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let mut config = if kubeconfig.contexts.is_empty() && context.is_none() {
            Config::incluster_env().map_err(|_| nothing_known(target.kubeconfig.as_deref()))?
        } else {
            known_context(&kubeconfig, context.as_deref())?;
            Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.map_err(|error| {
                Failure::failed(format!("the kubeconfig cannot be used: {}", chain(&error)))
                    .advise("Correct it, or name another with --kubeconfig or --context.")
            })?
        };
        config.connect_timeout = Some(CONNECT_LIMIT);
        let agent = concat!("devctl/", env!("CARGO_PKG_VERSION"));
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
        let namespace = target.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let owner = odc_api::namespace::owner(&namespace).map(String::from);
        let place = Place {
            context: target.name.clone().or_else(|| context.clone()).unwrap_or_else(|| IN_CLUSTER.to_owned()),
            address: config.cluster_url.to_string(),
            namespace,
            owner,
        };
        let client = Client::try_from(config).map_err(|error| {
            Failure::failed(format!("the kubeconfig cannot be used: {}", chain(&error)))
                .advise("Correct it, or name another with --kubeconfig or --context.")
        })?;
        Ok(Self { client, place, kubeconfig, context })
    }

    fn failure(&self, error: ::kube::Error) -> Failure {
        failure(&self.place, error)
    }
}

/// The contexts of a kubeconfig and the one in use.
pub fn contexts(file: Option<&Path>) -> Result<(Vec<String>, Option<String>)> {
    let kubeconfig = read(file)?;
    Ok((kubeconfig.contexts.into_iter().map(|context| context.name).collect(), kubeconfig.current_context))
}

/// A default file that is not there is an empty one: devctl may run inside a cluster.
fn read(file: Option<&Path>) -> Result<Kubeconfig> {
    use ::kube::config::KubeconfigError;
    match file.map_or_else(Kubeconfig::read, Kubeconfig::read_from) {
        Ok(kubeconfig) => Ok(kubeconfig),
        Err(KubeconfigError::ReadConfig(error, _))
            if file.is_none() && error.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(Kubeconfig::default())
        }
        Err(KubeconfigError::ReadConfig(error, path)) => {
            Err(Failure::failed(format!("the kubeconfig {} cannot be read: {error}", path.display()))
                .advise("Name another with --kubeconfig, or ask your administrator for one."))
        }
        Err(error) => Err(Failure::failed(format!("the kubeconfig cannot be understood: {}", chain(&error)))
            .advise("Correct it, or name another with --kubeconfig.")),
    }
}

fn nothing_known(file: Option<&Path>) -> Failure {
    let what = file.map_or_else(
        || "there is no kubeconfig, so devctl knows no cluster".to_owned(),
        |file| format!("{} names no cluster", file.display()),
    );
    Failure::usage(what).advise(
        "Put the one your administrator gave you at ~/.kube/config, or name it with --kubeconfig. \
         For a cluster on this machine: ./dev up, then eval \"$(./dev env)\".",
    )
}

fn known_context(kubeconfig: &Kubeconfig, wanted: Option<&str>) -> Result<()> {
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    match wanted {
        Some(wanted) if known.contains(&wanted) => Ok(()),
        Some(wanted) => {
            let near = crate::find::nearest(wanted, known.iter().copied());
            let all = format!("The kubeconfig knows {}.", known.join(", "));
            Err(Failure::not_found(format!("there is no context {wanted}"))
                .advise(near.map_or(all, |near| format!("Did you mean {near}?"))))
        }
        None => Err(Failure::usage("the kubeconfig says no context to use")
            .advise(format!("Name one with --context: {}.", known.join(", ")))),
    }
}

impl Backend for Kube {
    fn place(&self) -> &Place {
        &self.place
    }

    fn glance<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Glance>> {
        Box::pin(self.one(name))
    }

    fn get<'a>(&'a self, name: &'a str) -> Answer<'a, Option<DevServer>> {
        Box::pin(self.one(name))
    }

    fn list(&self, scope: Scope) -> BoxStream<'_, Result<Vec<Glance>>> {
        self.pages(&scope)
    }

    fn watch(&self, scope: Scope, name: Option<&str>) -> BoxStream<'static, Result<Change>> {
        self.changes(&scope, name)
    }

    fn create<'a>(&'a self, server: &'a DevServer, dry_run: bool) -> Answer<'a, Glance> {
        Box::pin(self.create_server(server, dry_run))
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        patch: Value,
        version: Option<&'a str>,
        dry_run: bool,
    ) -> Answer<'a, Glance> {
        Box::pin(self.patch_server(name, patch, version, dry_run))
    }

    fn delete<'a>(&'a self, name: &'a str, uid: &'a str, dry_run: bool) -> Answer<'a, ()> {
        Box::pin(self.delete_server(name, uid, dry_run))
    }

    fn flavors(&self) -> Answer<'_, Vec<DevServerFlavor>> {
        Box::pin(self.list_flavors())
    }

    fn watch_flavors(&self) -> BoxStream<'static, Result<Vec<DevServerFlavor>>> {
        self.flavor_changes()
    }

    fn queues(&self) -> Answer<'_, Live<Vec<Queue>>> {
        Box::pin(self.queues_now())
    }

    fn entries(&self, scope: Scope) -> Answer<'_, Live<Vec<QueueEntry>>> {
        Box::pin(self.entries_now(scope))
    }

    fn availabilities(&self) -> Answer<'_, Live<Vec<Availability>>> {
        Box::pin(self.availabilities_now())
    }

    fn dry_run(&self, asked: DryRunSpec) -> Answer<'_, Live<DryRunStatus>> {
        Box::pin(self.dry_run_now(asked))
    }

    fn what_if(&self, asked: WhatIfSpec) -> Answer<'_, Live<WhatIfStatus>> {
        Box::pin(self.what_if_now(asked))
    }

    fn happenings<'a>(&'a self, server: &'a str) -> Answer<'a, Vec<Happening>> {
        Box::pin(self.list_happenings(server))
    }

    fn watch_happenings(&self, server: &str) -> BoxStream<'static, Result<Happening>> {
        self.follow_happenings(server)
    }

    fn logs(&self, request: LogRequest) -> Answer<'_, Lines> {
        Box::pin(self.log_lines(request))
    }

    fn connect<'a>(&'a self, pod: &'a str, port: u16) -> Answer<'a, Box<dyn Pipe>> {
        Box::pin(self.pipe(pod, port))
    }

    fn claims(&self) -> Answer<'_, Vec<(String, String)>> {
        Box::pin(self.list_claims())
    }

    fn objects(&self, kind: Kind) -> Answer<'_, Vec<Value>> {
        Box::pin(self.list_objects(kind))
    }

    fn object<'a>(&'a self, kind: Kind, name: &'a str) -> Answer<'a, Option<Value>> {
        Box::pin(self.get_object(kind, name))
    }

    fn apply(&self, kind: Kind, object: Value, dry_run: bool) -> Answer<'_, Value> {
        Box::pin(self.apply_object(kind, object, dry_run))
    }

    fn declare(&self, kind: Kind, manifest: Value, take_over: bool, dry_run: bool) -> Answer<'_, Value> {
        Box::pin(self.declare_object(kind, manifest, take_over, dry_run))
    }

    fn remove<'a>(&'a self, kind: Kind, name: &'a str, dry_run: bool) -> Answer<'a, ()> {
        Box::pin(self.delete_object(kind, name, dry_run))
    }

    fn kubeconfig<'a>(&'a self, user: &'a str, good_for: Duration) -> Answer<'a, Login> {
        Box::pin(self.kubeconfig_for(user, good_for))
    }
}
