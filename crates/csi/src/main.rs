//! Entry point: arguments, logging and signals.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use odc_csi::args::{Args, Config};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Args::parse().config().unwrap_or_else(|invalid| invalid.exit());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")))
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();

    match serve(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = error.downcast_ref::<odc_csi::Error>().map(odc_csi::Error::hint);
            let hint = hint.map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
            // If standard error is closed, the exit status remains.
            let _: std::io::Result<()> = write!(stderr(), "error: {error:#}\n{hint}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("installing the SIGTERM handler")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("installing the SIGINT handler")?;
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(odc_csi::run(config, shutdown).await?)
}
