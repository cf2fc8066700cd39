//! Command line of `odc local`; the commands are implemented in `odc-local`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use odc_local::command;
use odc_local::network::Network;
use odc_local::settings::UpOptions;

#[derive(Args)]
pub(crate) struct Local {
    /// State directory; each one is a separate cluster [default: odc/local in the XDG state directory]
    #[arg(long, global = true, env = "ODC_LOCAL_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the local cluster, or change a running one; idempotent
    Up(Up),
    /// Build the executables and images without starting the cluster
    Build {
        /// Build only what a control plane without nodes requires
        #[arg(long)]
        control_plane: bool,
        /// Build only the CSI sanity suite, and print its path
        #[arg(long, conflicts_with = "control_plane")]
        csi_sanity: bool,
    },
    /// Stop the cluster and keep its state
    Down,
    /// Stop the cluster and delete its state
    Reset,
    /// Show the state of every component
    Status {
        /// Output format
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Print shell assignments for kubectl and psql: eval "$(odc local env)"
    Env,
    /// Show the log of a component
    Logs {
        /// Component as in `odc local status`, for example apiserver or n1/kubelet; or supervisor
        name: Option<String>,
        /// Follow the log
        #[arg(short, long)]
        follow: bool,
    },
    /// Power a node off or on
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Simulate the failure and recovery of a GPU
    Gpu {
        #[command(subcommand)]
        command: GpuCommand,
    },
    /// Manage images in the registry of the cluster
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Run the supervisor (internal)
    #[command(hide = true)]
    Supervise,
    /// Run a bootstrap job (internal)
    #[command(hide = true)]
    Job { job: Job },
}

#[derive(Args)]
struct Up {
    /// Number of nodes, each with its own kubelet and containerd; 0 starts only a control plane [default: 1]
    #[arg(long, value_name = "N")]
    nodes: Option<u8>,
    /// Number of simulated GPUs per node [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=64))]
    gpus: Option<u8>,
    /// Number of simulated nodes, tainted so that ordinary pods are not scheduled on them [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=5000))]
    simulated_nodes: Option<u16>,
    /// Do not install ODC; only for a new cluster
    #[arg(long)]
    bare: bool,
    /// Do not install the HTTP API and the worker; only for a new cluster
    #[arg(long)]
    no_service: bool,
    /// Network for nodes, pods and Services, 10.x.0.0/16 [default: a free one from 10.231.0.0/16 to 10.250.0.0/16]
    #[arg(long, value_name = "CIDR")]
    network: Option<Network>,
    /// Use the cluster of this kubeconfig instead of starting one
    #[arg(long, value_name = "PATH", conflicts_with_all = ["nodes", "gpus", "simulated_nodes", "network"])]
    kubeconfig: Option<PathBuf>,
    /// Use the cluster of $KUBECONFIG instead of starting one
    #[arg(long, conflicts_with_all = ["kubeconfig", "nodes", "gpus", "simulated_nodes", "network"])]
    existing: bool,
}

#[derive(Subcommand)]
enum NodeCommand {
    /// Power a node off without a graceful shutdown
    Stop {
        /// Node, for example n1
        name: String,
    },
    /// Power a node on
    Start {
        /// Node, for example n1
        name: String,
    },
}

#[derive(Subcommand)]
enum GpuCommand {
    /// Make a GPU unhealthy, so that it is no longer allocatable
    Fail {
        /// Node, for example n1
        node: String,
        /// Index or ID, for example 3 or GPU-n1-03
        gpu: String,
    },
    /// Make a GPU healthy again
    #[command(alias = "heal")]
    Recover {
        /// Node, for example n1
        node: String,
        /// Index or ID, for example 3 or GPU-n1-03
        gpu: String,
    },
}

#[derive(Subcommand)]
enum ImageCommand {
    /// Pack a static executable as an image, push it and print its reference
    Load {
        /// Executable to pack
        executable: PathBuf,
        /// Path of the executable in the image, for example /bin/sh [default: its file name in /]
        #[arg(long, value_name = "PATH")]
        at: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[derive(Clone, Copy, ValueEnum)]
enum Job {
    Cluster,
    Images,
    Odc,
    Service,
    SimulatedLeases,
    Storage,
}

impl Local {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let layout = command::layout(self.dir)?;
        match self.command {
            Command::Up(up) => command::up(layout, up.options()?).await,
            Command::Build { csi_sanity: true, .. } => command::build_csi_sanity().await,
            Command::Build { control_plane, .. } => command::build(control_plane).await,
            Command::Down => command::down(&layout).await,
            Command::Reset => command::reset(&layout).await,
            Command::Status { output } => command::status(layout, matches!(output, Output::Json)).await,
            Command::Env => command::env(layout),
            Command::Logs { name, follow } => command::logs(&layout, name.as_deref(), follow),
            Command::Node { command: NodeCommand::Stop { name } } => command::node_stop(layout, &name).await,
            Command::Node { command: NodeCommand::Start { name } } => command::node_start(layout, &name).await,
            Command::Gpu { command: GpuCommand::Fail { node, gpu } } => command::gpu_fail(layout, &node, &gpu).await,
            Command::Gpu { command: GpuCommand::Recover { node, gpu } } => {
                command::gpu_recover(layout, &node, &gpu).await
            }
            Command::Image { command: ImageCommand::Load { executable, at } } => {
                use std::io::Write as _;
                let name = command::image_load(layout, &executable, at.as_deref()).await?;
                Ok(writeln!(std::io::stdout(), "{name}")?)
            }
            Command::Supervise => {
                // The client of a readiness probe would log every failed attempt.
                let filter = tracing_subscriber::EnvFilter::new("info,kube=off,kube_client=off,tower=off");
                tracing_subscriber::fmt()
                    .with_env_filter(filter)
                    .with_writer(std::io::stderr)
                    .with_ansi(false)
                    .with_target(false)
                    .init();
                command::supervise(layout).await
            }
            Command::Job { job } => {
                let job = match job {
                    Job::Cluster => command::Job::Cluster,
                    Job::Images => command::Job::Images,
                    Job::Odc => command::Job::Odc,
                    Job::Service => command::Job::Service,
                    Job::SimulatedLeases => command::Job::SimulatedLeases,
                    Job::Storage => command::Job::Storage,
                };
                command::job(layout, job).await
            }
        }
    }
}

impl Up {
    fn options(self) -> anyhow::Result<UpOptions> {
        let Self { nodes, gpus, simulated_nodes, bare, no_service, network, kubeconfig, existing } = self;
        let external_kubeconfig = match (kubeconfig, existing) {
            (Some(path), _) => Some(path),
            (None, false) => None,
            (None, true) => Some(kubeconfig_from_environment()?),
        };
        Ok(UpOptions { nodes, gpus, simulated_nodes, bare, no_service, network, external_kubeconfig })
    }
}

fn kubeconfig_from_environment() -> anyhow::Result<PathBuf> {
    let paths = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let Some(paths) = paths else {
        anyhow::bail!(
            "--existing requires KUBECONFIG, which is not set\nhint: set it, or run `./dev up --kubeconfig PATH`"
        )
    };
    let mut paths = std::env::split_paths(&paths);
    match (paths.next(), paths.next()) {
        (Some(path), None) => Ok(path),
        _ => {
            anyhow::bail!("KUBECONFIG lists several files, expected one\nhint: run `./dev up --kubeconfig PATH`")
        }
    }
}
