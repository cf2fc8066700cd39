//! `odc local`: what was typed, handed to `odc-local`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use odc_local::command;
use odc_local::network::Network;
use odc_local::settings::Ask;

#[derive(Args)]
pub(crate) struct Local {
    /// Where its state lies; two directories are two clouds [default: odc/local in your state directory]
    #[arg(long, global = true, env = "ODC_LOCAL_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start the cloud, or make a running one what you ask for; safe to repeat
    Up(Up),
    /// Build what `up` would build, without starting anything
    Build {
        /// Only what a control plane without nodes needs
        #[arg(long)]
        control_plane: bool,
    },
    /// Stop it and keep its state
    Down,
    /// Stop it and delete its state
    Reset,
    /// Show what runs
    Status {
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Print shell lines that make kubectl and psql use it: eval "$(odc local env)"
    Env,
    /// Show the log of a part
    Logs {
        /// As `odc local status` names it, such as apiserver or n1/kubelet; also supervisor
        name: Option<String>,
        /// Go on as it grows
        #[arg(short, long)]
        follow: bool,
    },
    /// Take a node away, as if its power failed, or bring it back
    Node {
        #[command(subcommand)]
        verb: NodeVerb,
    },
    /// Make a GPU ill or healthy again
    Gpu {
        #[command(subcommand)]
        verb: GpuVerb,
    },
    /// Put a static executable into the cloud as an image of its own
    Image {
        #[command(subcommand)]
        verb: ImageVerb,
    },
    #[command(hide = true)]
    Supervise,
    #[command(hide = true)]
    Job { job: Job },
}

#[derive(Args)]
struct Up {
    /// Real nodes, each with its own kubelet and containerd; 0 is a control plane alone [default: 1]
    #[arg(long, value_name = "N")]
    nodes: Option<u8>,
    /// GPUs each node pretends to have [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=64))]
    gpus: Option<u8>,
    /// Nodes that exist only as objects, tainted so that ordinary pods stay away [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=5000))]
    simulated_nodes: Option<u16>,
    /// Kubernetes alone, without ODC in it; chosen when a cloud is made
    #[arg(long)]
    bare: bool,
    /// A free 10.x.0.0/16 for nodes, pods and Services [default: a free one from 10.231.0.0/16 to 10.250.0.0/16]
    #[arg(long, value_name = "CIDR")]
    network: Option<Network>,
    /// Use the cluster of this kubeconfig instead of starting one
    #[arg(long, value_name = "PATH", conflicts_with_all = ["nodes", "gpus", "simulated_nodes", "network"])]
    kubeconfig: Option<PathBuf>,
    /// Use the cluster that KUBECONFIG names instead of starting one
    #[arg(long, conflicts_with_all = ["kubeconfig", "nodes", "gpus", "simulated_nodes", "network"])]
    existing: bool,
}

#[derive(Subcommand)]
enum NodeVerb {
    /// Pull its plug
    Stop { name: String },
    /// Switch it on again
    Start { name: String },
}

#[derive(Subcommand)]
enum GpuVerb {
    /// Make it ill: the kubelet no longer counts it
    Fail { node: String, gpu: String },
    /// Make it healthy
    Heal { node: String, gpu: String },
}

#[derive(Subcommand)]
enum ImageVerb {
    /// Pack it, push it, print the name pods use
    Load {
        executable: PathBuf,
        /// Where it is in the image, such as /bin/sh [default: at the root, by its name]
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
    SimulatedLeases,
}

impl Local {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let layout = command::layout(self.dir)?;
        match self.verb {
            Verb::Up(up) => command::up(layout, up.ask()?).await,
            Verb::Build { control_plane } => command::build(control_plane).await,
            Verb::Down => command::down(&layout).await,
            Verb::Reset => command::reset(&layout).await,
            Verb::Status { output } => command::status(layout, matches!(output, Output::Json)).await,
            Verb::Env => command::env(layout),
            Verb::Logs { name, follow } => command::logs(&layout, name.as_deref(), follow),
            Verb::Node { verb: NodeVerb::Stop { name } } => command::node_stop(layout, &name).await,
            Verb::Node { verb: NodeVerb::Start { name } } => command::node_start(layout, &name).await,
            Verb::Gpu { verb: GpuVerb::Fail { node, gpu } } => command::gpu_fail(layout, &node, &gpu).await,
            Verb::Gpu { verb: GpuVerb::Heal { node, gpu } } => command::gpu_heal(layout, &node, &gpu).await,
            Verb::Image { verb: ImageVerb::Load { executable, at } } => {
                use std::io::Write as _;
                let name = command::image_load(layout, &executable, at.as_deref()).await?;
                Ok(writeln!(std::io::stdout(), "{name}")?)
            }
            Verb::Supervise => {
                // What a probe's client thinks of a part that is not up yet is the probe's to judge.
                let filter = tracing_subscriber::EnvFilter::new("info,kube=off,kube_client=off,tower=off");
                tracing_subscriber::fmt()
                    .with_env_filter(filter)
                    .with_writer(std::io::stderr)
                    .with_ansi(false)
                    .with_target(false)
                    .init();
                command::supervise(layout).await
            }
            Verb::Job { job } => {
                let job = match job {
                    Job::Cluster => command::Job::Cluster,
                    Job::Images => command::Job::Images,
                    Job::Odc => command::Job::Odc,
                    Job::SimulatedLeases => command::Job::SimulatedLeases,
                };
                command::job(layout, job).await
            }
        }
    }
}

impl Up {
    fn ask(self) -> anyhow::Result<Ask> {
        let Self { nodes, gpus, simulated_nodes, bare, network, kubeconfig, existing } = self;
        let existing = match (kubeconfig, existing) {
            (Some(path), _) => Some(path),
            (None, false) => None,
            (None, true) => Some(from_environment()?),
        };
        Ok(Ask { nodes, gpus, simulated_nodes, bare, network, existing })
    }
}

fn from_environment() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let Some(named) = named else {
        anyhow::bail!(
            "--existing uses the cluster that KUBECONFIG names, and it is not set.\nSet it, or name the file: ./dev up --kubeconfig PATH"
        )
    };
    let mut paths = std::env::split_paths(&named);
    match (paths.next(), paths.next()) {
        (Some(path), None) => Ok(path),
        _ => {
            anyhow::bail!("KUBECONFIG names several files, and a cloud uses one.\nName it: ./dev up --kubeconfig PATH")
        }
    }
}
