//! What was typed, checked once: after [`Args::config`] every value is usable as it stands.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::device::{Count, Devices, Node};
use crate::registration::Pace;

/// A Unix socket address holds 108 bytes, one of which ends the string.
const LONGEST_SOCKET_PATH: usize = 107;
/// The kubelet's quota name for a resource is `requests.` and its name, and the domain limit of 253
/// is for both.
const LONGEST_DOMAIN: usize = 253 - "requests.".len();

/// Advertise devices that do not exist to a kubelet, under an extended resource name.
#[derive(Debug, Parser)]
#[command(name = "odc-gpu-plugin", version)]
pub struct Args {
    /// Extended resource to advertise, DOMAIN/NAME
    #[arg(long, default_value = "nvidia.com/gpu")]
    resource: Resource,
    /// How many devices the node has, 1 to 100
    #[arg(long, default_value = "8")]
    count: Count,
    /// Node name; the ids of its devices are GPU-NODE-00, GPU-NODE-01 and so on
    #[arg(long)]
    node: Node,
    /// Directory in which the kubelet makes kubelet.sock; it may not exist yet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
    kubelet_dir: String,
    /// A device is ill while a file named by its id exists here; the directory may not exist yet
    #[arg(long, value_name = "DIR")]
    ill_dir: Option<PathBuf>,
}

/// Everything [`crate::run`] needs.
#[derive(Debug)]
pub struct Config {
    pub resource: Resource,
    pub devices: Devices,
    pub sockets: Sockets,
    /// Without it no device ever falls ill.
    pub ill_dir: Option<PathBuf>,
    pub pace: Pace,
}

impl Args {
    pub fn config(self) -> Result<Config, clap::Error> {
        let Self { resource, count, node, kubelet_dir, ill_dir } = self;
        let invalid = |why: Invalid| Self::command().error(ErrorKind::ValueValidation, why);
        let kubelet_dir = directory("--kubelet-dir", Path::new(&kubelet_dir)).map_err(invalid)?;
        let sockets = Sockets::new(kubelet_dir, &resource).map_err(invalid)?;
        let ill_dir = ill_dir.map(|path| directory("--ill-dir", &path)).transpose().map_err(invalid)?;
        Ok(Config { resource, devices: Devices::new(&node, count), sockets, ill_dir, pace: Pace::default() })
    }
}

/// An extended resource name by the kubelet's rules, which refuses a registration under any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource(String);

impl Resource {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "not an extended resource; write DOMAIN/NAME with a domain other than kubernetes.io, \
     such as nvidia.com/gpu"
)]
pub struct NotAResource;

impl FromStr for Resource {
    type Err = NotAResource;

    fn from_str(text: &str) -> Result<Self, NotAResource> {
        let (domain, name) = text.split_once('/').ok_or(NotAResource)?;
        let native = domain.ends_with("kubernetes.io") || domain.starts_with("requests.");
        if native || domain.len() > LONGEST_DOMAIN || !is_subdomain(domain) || !is_qualified(name) {
            return Err(NotAResource);
        }
        Ok(Self(text.to_owned()))
    }
}

/// Where the kubelet and the plugin meet.
#[derive(Debug, Clone)]
pub struct Sockets {
    pub directory: PathBuf,
    pub kubelet: PathBuf,
    pub own: PathBuf,
    /// File name of `own`, which is all that the kubelet is told.
    pub endpoint: String,
}

impl Sockets {
    fn new(directory: PathBuf, resource: &Resource) -> Result<Self, Invalid> {
        // A domain has no underscore, so two resources never share a file name.
        let endpoint = format!("odc-{}.sock", resource.as_str().replacen('/', "_", 1));
        let own = directory.join(&endpoint);
        if own.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(Invalid::TooLong { path: own });
        }
        let kubelet = directory.join("kubelet.sock");
        Ok(Self { directory, kubelet, own, endpoint })
    }
}

/// What is wrong with a directory that was typed.
#[derive(Debug, thiserror::Error)]
enum Invalid {
    #[error("{flag} is empty; give the path of a directory")]
    Empty { flag: &'static str },
    #[error("{flag}: {} is not a directory; give the path of one", path.display())]
    NotADirectory { flag: &'static str, path: PathBuf },
    #[error(
        "--kubelet-dir: a socket cannot have a path of more than {LONGEST_SOCKET_PATH} bytes, \
         such as {}; use a directory with a shorter one",
        path.display()
    )]
    TooLong { path: PathBuf },
}

/// The absolute path of a directory that may not exist yet.
fn directory(flag: &'static str, path: &Path) -> Result<PathBuf, Invalid> {
    let path = std::path::absolute(path).map_err(|_| Invalid::Empty { flag })?;
    if path.exists() && !path.is_dir() {
        return Err(Invalid::NotADirectory { flag, path });
    }
    Ok(path)
}

/// A DNS subdomain as Kubernetes means it, without the limit on its length.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
    })
}

/// The part after the slash: up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at
/// both ends.
fn is_qualified(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    name.len() <= 63 && name.bytes().all(allowed) && ends(name.bytes().next()) && ends(name.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str]) -> Result<Config, String> {
        let typed = ["odc-gpu-plugin", "--node", "n1"].iter().chain(args);
        Args::try_parse_from(typed).and_then(Args::config).map_err(|err| {
            assert_eq!(err.exit_code(), 2);
            err.to_string()
        })
    }

    fn rejects(args: &[&str], reason: &str) {
        let message = config(args).expect_err("the arguments are invalid");
        assert!(message.contains(reason), "{message}");
    }

    #[test]
    fn defaults_are_the_kubelets_own() {
        let config = config(&[]).unwrap();
        assert_eq!(config.resource.as_str(), "nvidia.com/gpu");
        assert_eq!(config.devices.ids().len(), 8);
        assert_eq!(config.sockets.kubelet, Path::new("/var/lib/kubelet/device-plugins/kubelet.sock"));
        assert_eq!(config.sockets.own, Path::new("/var/lib/kubelet/device-plugins/odc-nvidia.com_gpu.sock"));
        assert_eq!(config.ill_dir, None);
    }

    #[test]
    fn resource_must_be_an_extended_one() {
        let unqualified = ["", "gpu", "/gpu", "nvidia.com/", "nvidia.com/-gpu", "nvidia.com/a/b"];
        let bad_domains = ["Nvidia.com/gpu", "-nvidia.com/gpu", "nvidia..com/gpu"];
        let native = ["kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.nvidia.com/gpu"];
        for resource in unqualified.iter().chain(&bad_domains).chain(&native) {
            rejects(&[&format!("--resource={resource}")], "write DOMAIN/NAME");
        }
        assert!(config(&["--resource=amd.com/gpu_v2.x"]).is_ok());
    }

    #[test]
    fn count_is_one_to_a_hundred() {
        for count in ["0", "101", "-1", "many"] {
            rejects(&[&format!("--count={count}")], "1 to 100");
        }
        assert!(config(&["--count", "100"]).is_ok());
    }

    #[test]
    fn socket_path_must_fit_an_address() {
        let longest = format!("--kubelet-dir=/{}", "d".repeat(82));
        assert!(config(&[&longest]).is_ok());
        rejects(&[&format!("{longest}d")], "use a directory with a shorter one");
    }

    #[test]
    fn directories_may_be_missing_but_not_something_else() {
        assert!(config(&["--kubelet-dir=/missing/a", "--ill-dir=/missing/b"]).is_ok());
        for flag in ["--kubelet-dir", "--ill-dir"] {
            rejects(&[&format!("{flag}=/dev/null")], "/dev/null is not a directory");
        }
        rejects(&["--kubelet-dir="], "give the path of a directory");
    }

    #[test]
    fn node_is_required() {
        let err = Args::try_parse_from(["odc-gpu-plugin"]).expect_err("no node");
        assert_eq!(err.exit_code(), 2);
    }
}
