//! The bad situations we know, each with one clear sentence and the way out.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(
        "a local cloud with nodes needs root: network namespaces, mounts and cgroups are the kernel's to give.\nRun it again as root (sudo --preserve-env=HOME,PATH ./dev up), or use an existing cluster: ./dev up --kubeconfig PATH"
    )]
    NotRoot,

    #[error(
        "port {port} on {address} is taken by {by}, and {part} needs it.\nStop that program, or give the cloud another network: ./dev reset, then ./dev up --network 10.x.0.0/16"
    )]
    PortTaken { part: String, address: String, port: u16, by: String },

    #[error(
        "only {free} free in {directory}, and a local cloud needs {needed}.\nMake room there, or put it elsewhere: ODC_LOCAL_DIR (state), XDG_CACHE_HOME (built pieces)"
    )]
    NoSpace { directory: PathBuf, free: String, needed: String },

    #[error(
        "{directory} holds the state of another version ({made}; this one is {ours}).\nStart afresh with ./dev reset, or keep it and use another directory: ODC_LOCAL_DIR=… ./dev up"
    )]
    OtherVersion { directory: PathBuf, made: String, ours: String },

    #[error(
        "this directory already holds a cloud of another kind ({was}).\nStart afresh with ./dev reset, or use another directory: ODC_LOCAL_DIR=… ./dev up …"
    )]
    OtherCloud { was: String },

    #[error(
        "{nodes} nodes are more than one machine holds; the most is {most}.\nFor a large cluster add simulated ones: ./dev up --simulated-nodes {nodes}"
    )]
    TooManyNodes { nodes: u8, most: u8 },

    #[error(
        "a control plane without nodes has neither a network nor simulated nodes of its own.\nAsk for at least one node, or leave --network and --simulated-nodes away"
    )]
    NoNodes,

    #[error("there is no node {name:?}; this cloud has {known}")]
    NoSuchNode { name: String, known: String },

    #[error("there is no GPU {name:?} on that node; it has {known}")]
    NoSuchGpu { name: String, known: String },

    #[error("there is no part {name:?}; there are {known}")]
    NoSuchPart { name: String, known: String },

    #[error("no local cloud is running in {directory}.\nStart it: ./dev up")]
    NotRunning { directory: PathBuf },

    #[error(
        "every network from 10.231.0.0/16 to 10.250.0.0/16 overlaps with a route of this machine.\nName a free one: ./dev up --network 10.x.0.0/16"
    )]
    NoFreeNetwork,

    #[error(
        "network {network} overlaps with {with}, which this machine already uses.\nEnd what uses it, or name a free one (a cloud that has one needs ./dev reset first): ./dev up --network 10.x.0.0/16"
    )]
    NetworkTaken { network: String, with: String },

    #[error(
        "building {what} failed; its last lines:\n{tail}\nThe whole log is {log}. Running the same command again is safe and goes on from what is built."
    )]
    Build { what: String, tail: String, log: PathBuf },

    #[error(
        "building {what} could not reach a package registry; its last lines:\n{tail}\nCheck the network and run the same command again: it goes on from what is downloaded."
    )]
    Unreachable { what: String, tail: String },

    #[error(
        "{part} is not ready ({reason}); its last lines:
{tail}
The whole log: ./dev logs {part}"
    )]
    NotReady { part: String, reason: String, tail: String },

    #[error(
        "the command {command:?} is not installed.\nRun ./dev up, which installs what is missing; on other systems than Debian install it yourself"
    )]
    NoCommand { command: String },

    #[error(
        "the cluster of {kubeconfig} does not answer: {reason}.\nCheck that `kubectl --kubeconfig {kubeconfig} version` works"
    )]
    NoCluster { kubeconfig: String, reason: String },

    #[error(
        "another `odc local` is already changing the cloud in {directory}.\nWait for it, or end it, and run this again"
    )]
    Busy { directory: PathBuf },
}
