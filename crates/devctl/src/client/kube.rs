//! The backend that uses the Kubernetes API with the credentials of the kubeconfig. Without API discovery, so that a
//! command sends only the requests it needs.

mod admin;
mod disks;
mod error;
mod events;
mod pods;
mod queue;
mod servers;

use std::path::Path;
use std::time::Duration;

use ::kube::config::{KubeConfigOptions, Kubeconfig};
use ::kube::core::NamespaceResourceScope;
use ::kube::{Api, Config, Resource};

use super::{Client, Scope, Target};
use crate::config::ContextSelection;
use crate::error::{Error, Result, format_chain};

/// The context name inside a pod, where there is no kubeconfig.
const IN_CLUSTER: &str = "in-cluster";

/// The user agent and the field manager of changes to single fields.
const FIELD_MANAGER: &str = "devctl";

/// The field manager of complete manifests. Server-side apply removes fields that its manager no longer sets, so it must
/// not share a manager with changes to single fields.
const APPLY_FIELD_MANAGER: &str = "devctl-apply";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct KubeClient {
    client: ::kube::Client,
    target: Target,
    /// The kubeconfig and the context used, from which kubeconfigs for other users are derived.
    kubeconfig: Kubeconfig,
    context: Option<String>,
}

impl KubeClient {
    pub async fn connect(selection: &ContextSelection) -> Result<Self> {
        let kubeconfig = read_kubeconfig(selection.kubeconfig.as_deref())?;
        let context = selection.kube_context.clone().or_else(|| kubeconfig.current_context.clone());
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let mut config = if kubeconfig.contexts.is_empty() && context.is_none() {
            Config::incluster_env().map_err(|_| no_cluster(selection.kubeconfig.as_deref()))?
        } else {
            check_context(&kubeconfig, context.as_deref())?;
            Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.map_err(|error| unusable(&error))?
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let agent = concat!("devctl/", env!("CARGO_PKG_VERSION"));
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
        let namespace = selection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let owner = odc_api::namespace::owner(&namespace).map(String::from);
        let target = Target {
            is_named: selection.name.is_some() || context.is_some(),
            context: selection.name.clone().or_else(|| context.clone()).unwrap_or_else(|| IN_CLUSTER.to_owned()),
            address: config.cluster_url.to_string(),
            namespace,
            owner,
        };
        let client = ::kube::Client::try_from(config).map_err(|error| unusable(&error))?;
        Ok(Self { client, target, kubeconfig, context })
    }

    fn api<K>(&self, scope: &Scope) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match scope {
            Scope::Own => Api::namespaced(self.client.clone(), &self.target.namespace),
            Scope::Namespace(namespace) => Api::namespaced(self.client.clone(), namespace),
            Scope::All => Api::all(self.client.clone()),
        }
    }

    fn own_api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.api(&Scope::Own)
    }

    fn error(&self, error: ::kube::Error) -> Error {
        error::from_kube(&self.target, error)
    }
}

impl Client for KubeClient {
    fn target(&self) -> &Target {
        &self.target
    }
}

/// Returns the context names of a kubeconfig and its current context.
pub fn contexts(file: Option<&Path>) -> Result<(Vec<String>, Option<String>)> {
    let kubeconfig = read_kubeconfig(file)?;
    Ok((kubeconfig.contexts.into_iter().map(|context| context.name).collect(), kubeconfig.current_context))
}

/// Reads a kubeconfig. The default file may be missing, because devctl may run inside a cluster.
fn read_kubeconfig(file: Option<&Path>) -> Result<Kubeconfig> {
    use ::kube::config::KubeconfigError;
    match file.map_or_else(Kubeconfig::read, Kubeconfig::read_from) {
        Ok(kubeconfig) => Ok(kubeconfig),
        Err(KubeconfigError::ReadConfig(error, _))
            if file.is_none() && error.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(Kubeconfig::default())
        }
        Err(KubeconfigError::ReadConfig(error, path)) => {
            Err(Error::failed(format!("could not read kubeconfig {}: {error}", path.display()))
                .with_hint("choose another file with `--kubeconfig`, or ask your administrator for one"))
        }
        Err(error) => Err(Error::failed(format!("could not parse the kubeconfig: {}", format_chain(&error)))
            .with_hint("fix the file, or choose another with `--kubeconfig`")),
    }
}

fn unusable(error: &dyn std::error::Error) -> Error {
    Error::failed(format!("invalid kubeconfig: {}", format_chain(error)))
        .with_hint("fix the file, or choose another with `--kubeconfig` or `--context`")
}

fn no_cluster(file: Option<&Path>) -> Error {
    let message = file.map_or_else(
        || "no kubeconfig found".to_owned(),
        |file| format!("kubeconfig {} has no contexts", file.display()),
    );
    Error::usage(message).with_hint(
        "save the kubeconfig from your administrator as ~/.kube/config, or pass it with `--kubeconfig`; \
         for a local cluster run `./dev up`, then `eval \"$(./dev env)\"`",
    )
}

fn check_context(kubeconfig: &Kubeconfig, name: Option<&str>) -> Result<()> {
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    match name {
        Some(name) if known.contains(&name) => Ok(()),
        Some(name) => {
            let nearest = crate::resolve::nearest(name, known.iter().copied());
            let all = format!("the kubeconfig has {}", known.join(", "));
            Err(Error::not_found(format!("context {name} not found"))
                .with_hint(nearest.map_or(all, |nearest| format!("did you mean {nearest}?"))))
        }
        None => Err(Error::usage("the kubeconfig has no current context")
            .with_hint(format!("choose one with `--context`: {}", known.join(", ")))),
    }
}
