//! The backend that uses the HTTP API of ODC with an API key, without a kubeconfig.
//!
//! The API serves no connections to pods. [`Pods::connect`](super::Pods::connect) uses the kubeconfig of the context, if it
//! has one.

mod admin;
mod change;
mod credentials;
mod disks;
mod event_stream;
mod events;
mod http;
mod pods;
mod problem;
mod queue;
mod resource;
mod servers;
#[cfg(test)]
mod tests;

use odc_api::http::Me;

use self::http::{Http, Request};
use super::kube::KubeClient;
use super::{Client, Scope, Target};
use crate::config::{ApiEndpoint, ContextSelection};
use crate::error::{Error, Result};

pub use self::http::check_url;

/// The context name if variables select the API.
pub const VARIABLES: &str = "DEVCTL_API_URL";

#[derive(Clone)]
pub struct ApiClient {
    http: Http,
    target: Target,
    /// The user who owns the namespace.
    user: String,
    /// The context, whose kubeconfig serves connections to pods.
    selection: ContextSelection,
}

impl ApiClient {
    /// Creates a client. Sends a request only if no namespace is selected, to learn that of the caller.
    pub async fn connect(endpoint: &ApiEndpoint, selection: &ContextSelection) -> Result<Self> {
        let key = credentials::read(endpoint).await?;
        let http = Http::new(endpoint, &key).await?;
        let namespace = match selection.namespace.clone() {
            Some(namespace) => namespace,
            None => http.get::<Me>(&Request::get("/me")).await?.namespace,
        };
        let user = odc_api::namespace::owner(&namespace).map(String::from).ok_or_else(|| {
            Error::usage(format!("{namespace} is not a user namespace"))
                .with_hint("choose one such as dev-ada with `--namespace`")
        })?;
        let target = Target {
            context: selection.name.clone().unwrap_or_else(|| VARIABLES.to_owned()),
            is_named: selection.name.is_some(),
            address: http.url().to_owned(),
            namespace,
            owner: Some(user.clone()),
        };
        Ok(Self { http, target, user, selection: selection.clone() })
    }

    /// Returns the parameter that selects the objects of a scope.
    fn scope_parameter(&self, scope: &Scope) -> Result<(&'static str, String)> {
        match scope {
            Scope::Own => Ok(("user", self.user.clone())),
            Scope::Namespace(namespace) => {
                let owner = odc_api::namespace::owner(namespace).map(String::from);
                owner
                    .map(|user| ("user", user))
                    .ok_or_else(|| Error::not_found(format!("namespace {namespace} not found")))
            }
            Scope::All => Ok(("all", "true".to_owned())),
        }
    }

    /// Returns a request about an object of the user.
    fn own(&self, request: Request) -> Request {
        request.parameter("user", self.user.clone())
    }

    /// Connects to the Kubernetes API, for what the HTTP API does not serve. `purpose` names it in the error.
    async fn kubernetes(&self, purpose: &str) -> Result<KubeClient> {
        let selection =
            ContextSelection { namespace: Some(self.target.namespace.clone()), api: None, ..self.selection.clone() };
        KubeClient::connect(&selection).await.map_err(|error| {
            Error::failed(format!("{purpose} needs a kubeconfig: {}", error.message)).with_hint(
                "the HTTP API does not serve it; ask your administrator for a kubeconfig and save it as ~/.kube/config, \
                 or pass it with `--kubeconfig`",
            )
        })
    }
}

impl Client for ApiClient {
    fn target(&self) -> &Target {
        &self.target
    }
}
