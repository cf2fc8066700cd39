//! Failures that the user can act on, each with a hint.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "a local cluster with nodes needs root: it creates network namespaces, mounts and cgroups\nhint: run `sudo --preserve-env=HOME,PATH ./dev up`, or use an existing cluster with `./dev up --kubeconfig PATH`"
    )]
    NotRoot,

    #[error(
        "port {port} on {address}, which {component} needs, is in use by {owner}\nhint: stop that program, or choose another network with `./dev reset` and `./dev up --network 10.x.0.0/16`"
    )]
    PortInUse { component: String, address: String, port: u16, owner: String },

    #[error(
        "not enough disk space in {directory}: {free} free, {required} required\nhint: free some space, or choose other directories with ODC_LOCAL_DIR (state) and XDG_CACHE_HOME (built executables)"
    )]
    NoSpace { directory: PathBuf, free: String, required: String },

    #[error(
        "the state in {directory} was written by another version ({found}; this one is {expected})\nhint: delete it with `./dev reset`, or use another directory with `ODC_LOCAL_DIR=DIR ./dev up`"
    )]
    VersionMismatch { directory: PathBuf, found: String, expected: String },

    #[error(
        "the state directory belongs to a cluster of another kind ({existing})\nhint: delete it with `./dev reset`, or use another directory with `ODC_LOCAL_DIR=DIR ./dev up`"
    )]
    ModeConflict { existing: String },

    #[error(
        "too many nodes: {nodes} requested, the maximum is {max}\nhint: add simulated nodes with `./dev up --simulated-nodes {nodes}`"
    )]
    TooManyNodes { nodes: u8, max: u8 },

    #[error(
        "a control plane without nodes has no network and no simulated nodes\nhint: request at least one node, or omit `--network` and `--simulated-nodes`"
    )]
    NoNodes,

    #[error("node {name:?} not found; this cluster has {known}")]
    NoSuchNode { name: String, known: String },

    #[error("GPU {name:?} not found on this node; it has {known}")]
    NoSuchGpu { name: String, known: String },

    #[error("component {name:?} not found; available: {known}")]
    NoSuchComponent { name: String, known: String },

    #[error("no local cluster is running in {directory}\nhint: run `./dev up`")]
    NotRunning { directory: PathBuf },

    #[error(
        "no free network: every network from 10.231.0.0/16 to 10.250.0.0/16 overlaps with a route of this machine\nhint: choose one with `./dev up --network 10.x.0.0/16`"
    )]
    NoFreeNetwork,

    #[error(
        "network {network} overlaps with {route}, which this machine already uses\nhint: choose a free one with `./dev up --network 10.x.0.0/16` (run `./dev reset` first if the cluster already has a network)"
    )]
    NetworkInUse { network: String, route: String },

    #[error(
        "building {target} failed; last lines:\n{tail}\nThe full log is {log}\nhint: run the same command again; it continues from what is already built"
    )]
    Build { target: String, tail: String, log: PathBuf },

    #[error(
        "building {target} failed: a package registry is unreachable; last lines:\n{tail}\nhint: check the network and run the same command again; it continues from what is already downloaded"
    )]
    RegistryUnreachable { target: String, tail: String },

    #[error(
        "{component} is not ready ({reason}); last lines:\n{tail}\nhint: run `./dev logs {component}` for the full log"
    )]
    NotReady { component: String, reason: String, tail: String },

    #[error(
        "the command {command:?} is not installed\nhint: run `./dev up`, which installs missing packages on Debian; on other systems install it yourself"
    )]
    CommandNotFound { command: String },

    #[error(
        "the cluster of {kubeconfig} does not respond: {reason}\nhint: check that `kubectl --kubeconfig {kubeconfig} version` works"
    )]
    ClusterUnreachable { kubeconfig: String, reason: String },

    #[error(
        "another `odc local` command is changing the cluster in {directory}\nhint: wait for it or stop it, then run this command again"
    )]
    Busy { directory: PathBuf },
}
