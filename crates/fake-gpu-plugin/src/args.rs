//! Command line arguments. [`Args::config`] validates them, so later code can use the values as they are.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::device::{Count, Devices, Node};
use crate::registration::RetryPolicy;

/// `sun_path` has 108 bytes including the terminating NUL.
const MAX_SOCKET_PATH_LEN: usize = 107;
/// Kubernetes limits the domain to 253 characters including the prefix `requests.` of quota names.
const MAX_DOMAIN_LEN: usize = 253 - "requests.".len();

/// Kubelet device plugin that advertises simulated devices as an extended resource.
#[derive(Debug, Parser)]
#[command(name = "odc-fake-gpu-plugin", version)]
pub struct Args {
    /// Extended resource to advertise, DOMAIN/NAME
    #[arg(long, default_value = "nvidia.com/gpu")]
    resource: Resource,
    /// Number of devices, 1 to 100
    #[arg(long, default_value = "8")]
    count: Count,
    /// Node name; the device IDs are GPU-NODE-00, GPU-NODE-01 and so on
    #[arg(long)]
    node: Node,
    /// Directory of kubelet.sock; may not exist yet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
    kubelet_dir: String,
    /// Directory of health markers: a device is unhealthy while a file named after its ID exists in it; may not exist yet
    #[arg(long, value_name = "DIR")]
    unhealthy_dir: Option<PathBuf>,
}

/// Validated arguments of [`crate::run`].
#[derive(Debug)]
pub struct Config {
    pub resource: Resource,
    pub devices: Devices,
    pub sockets: Sockets,
    /// Without it all devices are healthy.
    pub unhealthy_dir: Option<PathBuf>,
    pub retry_policy: RetryPolicy,
}

impl Args {
    pub fn config(self) -> Result<Config, clap::Error> {
        let Self { resource, count, node, kubelet_dir, unhealthy_dir } = self;
        let invalid = |error: DirectoryError| Self::command().error(ErrorKind::ValueValidation, error);
        let kubelet_dir = absolute_directory("--kubelet-dir", Path::new(&kubelet_dir)).map_err(invalid)?;
        let sockets = Sockets::new(kubelet_dir, &resource).map_err(invalid)?;
        let unhealthy_dir =
            unhealthy_dir.map(|path| absolute_directory("--unhealthy-dir", &path)).transpose().map_err(invalid)?;
        Ok(Config {
            resource,
            devices: Devices::new(&node, count),
            sockets,
            unhealthy_dir,
            retry_policy: RetryPolicy::default(),
        })
    }
}

/// A valid extended resource name. The kubelet rejects registrations of other names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource(String);

impl Resource {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "not an extended resource; expected DOMAIN/NAME with a domain other than kubernetes.io, \
     for example nvidia.com/gpu"
)]
pub struct ParseResourceError;

impl FromStr for Resource {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Self, ParseResourceError> {
        let (domain, name) = text.split_once('/').ok_or(ParseResourceError)?;
        let native = domain.ends_with("kubernetes.io") || domain.starts_with("requests.");
        if native || domain.len() > MAX_DOMAIN_LEN || !is_subdomain(domain) || !is_qualified_name(name) {
            return Err(ParseResourceError);
        }
        Ok(Self(text.to_owned()))
    }
}

/// Sockets of the kubelet and the plugin.
#[derive(Debug, Clone)]
pub struct Sockets {
    pub directory: PathBuf,
    pub kubelet: PathBuf,
    pub own: PathBuf,
    /// File name of `own`, as sent to the kubelet.
    pub endpoint: String,
}

impl Sockets {
    fn new(directory: PathBuf, resource: &Resource) -> Result<Self, DirectoryError> {
        // A domain contains no underscore, so the file name is unique per resource.
        let endpoint = format!("odc-{}.sock", resource.as_str().replacen('/', "_", 1));
        let own = directory.join(&endpoint);
        if own.as_os_str().len() > MAX_SOCKET_PATH_LEN {
            return Err(DirectoryError::TooLong { path: own });
        }
        let kubelet = directory.join("kubelet.sock");
        Ok(Self { directory, kubelet, own, endpoint })
    }
}

/// Reason for which a directory argument is rejected.
#[derive(Debug, thiserror::Error)]
enum DirectoryError {
    #[error("{flag} is empty; expected the path of a directory")]
    Empty { flag: &'static str },
    #[error("{flag}: {} is not a directory", path.display())]
    NotADirectory { flag: &'static str, path: PathBuf },
    #[error(
        "--kubelet-dir: the socket path {} is longer than {MAX_SOCKET_PATH_LEN} bytes; \
         use a directory with a shorter path",
        path.display()
    )]
    TooLong { path: PathBuf },
}

/// Returns the absolute path of a directory that may not exist yet.
fn absolute_directory(flag: &'static str, path: &Path) -> Result<PathBuf, DirectoryError> {
    let path = std::path::absolute(path).map_err(|_| DirectoryError::Empty { flag })?;
    if path.exists() && !path.is_dir() {
        return Err(DirectoryError::NotADirectory { flag, path });
    }
    Ok(path)
}

/// Reports whether the text is a DNS subdomain by the rules of Kubernetes, except for its length.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
    })
}

/// Reports whether the text is a valid name after the slash: up to 63 letters, digits, `-`, `_` and
/// `.`, with a letter or digit at both ends.
fn is_qualified_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let valid_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    name.len() <= 63 && name.bytes().all(allowed) && valid_end(name.bytes().next()) && valid_end(name.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str]) -> Result<Config, String> {
        let arguments = ["odc-fake-gpu-plugin", "--node", "n1"].iter().chain(args);
        Args::try_parse_from(arguments).and_then(Args::config).map_err(|err| {
            assert_eq!(err.exit_code(), 2);
            err.to_string()
        })
    }

    fn rejects(args: &[&str], reason: &str) {
        let message = config(args).expect_err("the arguments are invalid");
        assert!(message.contains(reason), "{message}");
    }

    #[test]
    fn defaults_match_the_kubelet() {
        let config = config(&[]).unwrap();
        assert_eq!(config.resource.as_str(), "nvidia.com/gpu");
        assert_eq!(config.devices.ids().len(), 8);
        assert_eq!(config.sockets.kubelet, Path::new("/var/lib/kubelet/device-plugins/kubelet.sock"));
        assert_eq!(config.sockets.own, Path::new("/var/lib/kubelet/device-plugins/odc-nvidia.com_gpu.sock"));
        assert_eq!(config.unhealthy_dir, None);
    }

    #[test]
    fn resource_must_be_an_extended_resource() {
        let unqualified = ["", "gpu", "/gpu", "nvidia.com/", "nvidia.com/-gpu", "nvidia.com/a/b"];
        let bad_domains = ["Nvidia.com/gpu", "-nvidia.com/gpu", "nvidia..com/gpu"];
        let native = ["kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.nvidia.com/gpu"];
        for resource in unqualified.iter().chain(&bad_domains).chain(&native) {
            rejects(&[&format!("--resource={resource}")], "expected DOMAIN/NAME");
        }
        assert!(config(&["--resource=amd.com/gpu_v2.x"]).is_ok());
    }

    #[test]
    fn count_is_limited_to_one_hundred() {
        for count in ["0", "101", "-1", "many"] {
            rejects(&[&format!("--count={count}")], "1 to 100");
        }
        assert!(config(&["--count", "100"]).is_ok());
    }

    #[test]
    fn socket_path_must_fit_sun_path() {
        let longest = format!("--kubelet-dir=/{}", "d".repeat(82));
        assert!(config(&[&longest]).is_ok());
        rejects(&[&format!("{longest}d")], "use a directory with a shorter path");
    }

    #[test]
    fn directories_may_be_missing_but_not_other_files() {
        assert!(config(&["--kubelet-dir=/missing/a", "--unhealthy-dir=/missing/b"]).is_ok());
        for flag in ["--kubelet-dir", "--unhealthy-dir"] {
            rejects(&[&format!("{flag}=/dev/null")], "/dev/null is not a directory");
        }
        rejects(&["--kubelet-dir="], "expected the path of a directory");
    }

    #[test]
    fn node_is_required() {
        let err = Args::try_parse_from(["odc-fake-gpu-plugin"]).expect_err("no node");
        assert_eq!(err.exit_code(), 2);
    }
}
