//! `odc`: every role of the Open Developer Cloud in one executable.

mod generate;
mod local;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Gives memory back when a burst is over, which the C library's does not: lists of a large cluster are big and soon gone.
/// Its settings are in `.cargo/config.toml`.
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
    /// A whole cloud on this machine: real Kubernetes, PostgreSQL, a registry
    Local(local::Local),
    /// Keep what people asked for true: servers, users, teams, flavors and the queue
    Operator(Box<odc_operator::Options>),
    /// Play a trace of requests through the queue, in virtual time: what would start when, and what if
    Sim(sim::Sim),
    /// Write the files that are made from the source and checked in
    Generate(generate::Generate),
}

fn main() -> ExitCode {
    // Two TLS back ends in one process would leave the choice to chance.
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
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The operator waits for others nearly all the time. One thread serves it as well as many, and takes a third of the
/// memory, because memory is kept for every thread.
fn runtime(role: &Role) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match role {
        Role::Operator(_) => tokio::runtime::Builder::new_current_thread(),
        Role::Local(_) | Role::Sim(_) | Role::Generate(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

async fn operator(options: odc_operator::Options) -> anyhow::Result<()> {
    let chosen = tracing_subscriber::EnvFilter::try_from_env("ODC_LOG");
    let filter = chosen.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    odc_operator::run(options.settle()?).await
}

/// Whoever read our output has seen enough.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
