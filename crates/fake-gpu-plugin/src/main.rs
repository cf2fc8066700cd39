//! Entry point: arguments, logging and signals.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use odc_fake_gpu_plugin::args::{Args, Config};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main(flavor = "current_thread")]
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
            tracing::error!("{error:#}");
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
    Ok(odc_fake_gpu_plugin::run(config, shutdown).await?)
}
