//! Conversion of Kubernetes errors.

use ::kube::runtime::watcher;

use crate::client::Target;
use crate::client::status::{from_status, root_cause};
use crate::error::{Error, Kind, format_chain};

/// Converts the error of a request.
pub fn from_kube(target: &Target, error: ::kube::Error) -> Error {
    use ::kube::Error as KubeError;
    match error {
        KubeError::Api(status) => from_status(target, &status),
        KubeError::Auth(error) => {
            Error::denied(format!("authentication to context {} failed: {}", target.context, format_chain(&error)))
                .with_hint("renew your credentials with the program that the kubeconfig names")
        }
        KubeError::SerdeError(error) => Error::failed(format!("unexpected response from the cluster: {error}"))
            .with_hint("devctl may be older than the cluster; compare with `devctl version`"),
        KubeError::UpgradeConnection(error) => {
            Error::failed(format!("could not open a port-forward through {}: {}", target.address, format_chain(&error)))
                .with_hint("check whether a proxy blocks WebSockets (proxy-url in the kubeconfig)")
        }
        error @ (KubeError::HyperError(_) | KubeError::Service(_) | KubeError::ReadEvents(_)) => {
            Error::failed(format!("could not reach {}: {}", target.address, root_cause(&error)))
                .with_hint(format!("check the network and the context ({})", target.context))
        }
        error => Error::failed(format_chain(&error)).with_hint("check the kubeconfig and try again"),
    }
}

/// Converts the error of a watch: an error if it is permanent, else the message for the interruption.
pub fn watch_error(target: &Target, error: watcher::Error) -> Result<String, Error> {
    use watcher::Error as WatchError;
    let text = root_cause(&error);
    match error {
        WatchError::InitialListFailed(error) | WatchError::WatchStartFailed(error) => match from_kube(target, error) {
            error if matches!(error.kind, Kind::Denied | Kind::NotFound | Kind::Usage) => Err(error),
            error => Ok(error.message),
        },
        WatchError::WatchError(_) | WatchError::WatchFailed(_) | WatchError::NoResourceVersion => Ok(text),
    }
}
