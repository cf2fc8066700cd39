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
    /// Run the HTTP API
    Api(Box<odc_service::api::Options>),
    /// Run the worker: execute accepted requests and copy the custom resources to the database
    Worker(Box<odc_service::worker::Options>),
    /// Create or upgrade the schema of the database
    Migrate(Box<odc_service::migrate::Options>),
    /// Create API keys with access to the database
    Key(Box<odc_service::key::Options>),
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
                Role::Api(options) => api(*options).await,
                Role::Worker(options) => worker(*options).await,
                Role::Migrate(options) => migrate(*options).await,
                Role::Key(options) => key(*options).await,
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
        Role::Local(_)
        | Role::Sim(_)
        | Role::Generate(_)
        | Role::Api(_)
        | Role::Worker(_)
        | Role::Migrate(_)
        | Role::Key(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

async fn operator(options: odc_operator::Options) -> anyhow::Result<()> {
    log_to_stderr();
    odc_operator::run(options.into_config()?).await
}

async fn api(options: odc_service::api::Options) -> anyhow::Result<()> {
    log_to_stderr();
    odc_service::api::run(options).await
}

async fn worker(options: odc_service::worker::Options) -> anyhow::Result<()> {
    log_to_stderr();
    odc_service::worker::run(options).await
}

async fn migrate(options: odc_service::migrate::Options) -> anyhow::Result<()> {
    use std::io::Write as _;
    log_to_stderr();
    let text = odc_service::migrate::run(options).await?;
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

async fn key(options: odc_service::key::Options) -> anyhow::Result<()> {
    use std::io::Write as _;
    let text = odc_service::key::run(options).await?;
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ODC_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// Reports whether the reader of stdout has closed the pipe, which is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
