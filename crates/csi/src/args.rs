//! Command line arguments. [`Args::config`] validates them, so later code can use the values as they are.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::capacity::ByteSize;
use crate::name::{NodeId, PoolId};
use crate::pool::{MIN_POOL_SIZE, PoolConfig, PoolFileConfig};

/// `sun_path` has 108 bytes including the terminating NUL.
const MAX_SOCKET_PATH_LEN: usize = 107;
const REGISTRATION_SOCKET: &str = "csi.odc.dev-reg.sock";

/// CSI driver whose volumes are btrfs subvolumes in a pool.
#[derive(Debug, Parser)]
#[command(name = "odc-csi", version)]
pub struct Args {
    /// Unix socket to serve the CSI on
    #[arg(long, value_name = "PATH", default_value = "/var/lib/kubelet/plugins/csi.odc.dev/csi.sock")]
    endpoint: PathBuf,
    /// Name of this node
    #[arg(long, value_name = "NAME", env = "ODC_NODE")]
    node: NodeId,
    /// Directory of the pool, on a btrfs file system; with --pool-file the mount point
    #[arg(long, value_name = "DIR")]
    pool: PathBuf,
    /// ID of the pool; nodes that share a pool have the same [default: the name of the node]
    #[arg(long, value_name = "ID")]
    pool_id: Option<PoolId>,
    /// File with the file system of the pool; created and formatted if it does not exist
    #[arg(long, value_name = "FILE", requires = "pool_size")]
    pool_file: Option<PathBuf>,
    /// Size of a new pool file, for example 100Gi; the file is sparse
    #[arg(long, value_name = "SIZE", requires = "pool_file")]
    pool_size: Option<ByteSize>,
    /// Size up to which the pool file grows when space is short [default: the value of --pool-size]
    #[arg(long, value_name = "SIZE", requires = "pool_file")]
    pool_max_size: Option<ByteSize>,
    /// Directory that the kubelet watches for plugins; without it, another program registers the driver
    #[arg(long, value_name = "DIR")]
    registration_dir: Option<PathBuf>,
}

/// Validated arguments of [`crate::run`].
#[derive(Debug)]
pub struct Config {
    pub endpoint: PathBuf,
    pub node: NodeId,
    pub pool: PoolConfig,
    pub pool_id: PoolId,
    pub registration_socket: Option<PathBuf>,
}

impl Args {
    pub fn config(self) -> Result<Config, clap::Error> {
        let Self { endpoint, node, pool, pool_id, pool_file, pool_size, pool_max_size, registration_dir } = self;
        let invalid = |message: String| Self::command().error(ErrorKind::ValueValidation, message);
        let absolute = |flag: &str, path: &Path| {
            std::path::absolute(path).map_err(|_| invalid(format!("{flag} is empty; expected a path")))
        };
        let socket = |flag: &str, path: PathBuf| match path.as_os_str().len() {
            0..=MAX_SOCKET_PATH_LEN => Ok(path),
            _ => Err(invalid(format!("{flag}: {} is longer than {MAX_SOCKET_PATH_LEN} bytes", path.display()))),
        };
        let pool_id = match pool_id {
            Some(id) => id,
            None => node
                .as_str()
                .parse()
                .map_err(|_| invalid("the node name is not a label value; pass --pool-id".into()))?,
        };
        let file = match (pool_file, pool_size) {
            (Some(path), Some(ByteSize(size))) => {
                let ByteSize(max_size) = pool_max_size.unwrap_or(ByteSize(size));
                if size < MIN_POOL_SIZE {
                    return Err(invalid(format!("--pool-size is below the minimum, {}", ByteSize(MIN_POOL_SIZE))));
                }
                if max_size < size {
                    return Err(invalid("--pool-max-size is below --pool-size".into()));
                }
                Some(PoolFileConfig { path: absolute("--pool-file", &path)?, size, max_size })
            }
            _ => None,
        };
        let registration_socket = match registration_dir {
            Some(directory) => {
                let path = absolute("--registration-dir", &directory)?.join(REGISTRATION_SOCKET);
                Some(socket("--registration-dir", path)?)
            }
            None => None,
        };
        Ok(Config {
            endpoint: socket("--endpoint", absolute("--endpoint", &endpoint)?)?,
            node,
            pool: PoolConfig { directory: absolute("--pool", &pool)?, file },
            pool_id,
            registration_socket,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str]) -> Result<Config, String> {
        let arguments = ["odc-csi", "--node", "n1", "--pool", "/pool"].iter().chain(args);
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
    fn pool_is_the_node_by_default() {
        let default = config(&[]).unwrap();
        assert_eq!((default.pool_id.as_str(), default.pool.file, default.registration_socket), ("n1", None, None));
        assert_eq!(default.endpoint, Path::new("/var/lib/kubelet/plugins/csi.odc.dev/csi.sock"));
        assert_eq!(config(&["--pool-id=shared"]).unwrap().pool_id.as_str(), "shared");
        rejects(&["--pool-id=a/b"], "invalid name");
    }

    #[test]
    fn pool_file_needs_a_size_and_grows_to_the_maximum() {
        let file = config(&["--pool-file=/p.img", "--pool-size=1Gi", "--pool-max-size=2Gi"]).unwrap().pool.file;
        assert_eq!(file, Some(PoolFileConfig { path: "/p.img".into(), size: 1 << 30, max_size: 2 << 30 }));
        rejects(&["--pool-file=/p.img"], "--pool-size");
        rejects(&["--pool-size=1Gi"], "--pool-file");
        rejects(&["--pool-file=/p.img", "--pool-size=255Mi"], "below the minimum, 256Mi");
        rejects(&["--pool-file=/p.img", "--pool-size=2Gi", "--pool-max-size=1Gi"], "below --pool-size");
    }

    #[test]
    fn socket_paths_must_fit_sun_path() {
        rejects(&[&format!("--endpoint=/{}", "d".repeat(107))], "longer than 107 bytes");
        rejects(&[&format!("--registration-dir=/{}", "d".repeat(100))], "longer than 107 bytes");
        let registration = config(&["--registration-dir=/r"]).unwrap().registration_socket;
        assert_eq!(registration.as_deref(), Some(Path::new("/r/csi.odc.dev-reg.sock")));
    }
}
