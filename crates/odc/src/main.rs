//! `odc`: every role of the Open Developer Cloud in one executable.

mod generate;
mod local;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Unlike the allocator of the C library, jemalloc returns memory to the kernel after a burst, such as the lists of a large
/// cluster. It is configured in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(
    name = "odc",
    version,
    about = "The Open Developer Cloud: every server role in one executable",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Run a local cluster on this machine: Kubernetes, PostgreSQL, an image registry
    Local(local::Local),
    /// Run the operator: servers, users, teams, flavors and the queue
    Operator(Box<odc_operator::Options>),
    /// Replay a trace of requests through the scheduler in virtual time
    Sim(sim::Sim),
    /// Generate the files that are derived from the source and checked in
    Generate(generate::Generate),
}

fn main() -> ExitCode {
    // Dependencies enable two TLS back ends, so the default has to be chosen explicitly.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    let result = runtime(&cli.role).map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            match cli.role {
                Role::Local(local) => local.run().await,
                Role::Operator(options) => operator(*options).await,
                Role::Sim(sim) => sim.run(),
                Role::Generate(generate) => generate.run(),
            }
        })
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The operator is I/O-bound and uses one thread, which takes a third of the memory because allocator caches are per
/// thread.
fn runtime(role: &Role) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match role {
        Role::Operator(_) => tokio::runtime::Builder::new_current_thread(),
        Role::Local(_) | Role::Sim(_) | Role::Generate(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

async fn operator(options: odc_operator::Options) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ODC_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    odc_operator::run(options.into_config()?).await
}

/// Reports whether the reader of stdout has closed the pipe, which is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
