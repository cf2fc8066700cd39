//! An API server that accepts connections and never responds, to measure when the first bytes of a client arrive. These start
//! the TLS handshake, so the start-up of the client is complete.

use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

pub(crate) struct BlackholeServer {
    listener: TcpListener,
    kubeconfig: PathBuf,
}

impl BlackholeServer {
    /// Writes a copy of the kubeconfig that points to this server.
    pub(crate) fn new(kubeconfig: &Path, directory: &Path) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
        config["clusters"][0]["cluster"]["server"] = format!("https://{}", listener.local_addr()?).into();
        let path = directory.join("blackhole.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(Self { listener, kubeconfig: path })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn time_to_first_byte(&self, mut command: Command) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let receive = || -> anyhow::Result<Duration> {
            let (mut connection, _) = self.listener.accept()?;
            connection.set_read_timeout(Some(Duration::from_secs(30)))?;
            connection.read_exact(&mut [0]).context("waiting for the first byte")?;
            Ok(started.elapsed())
        };
        let elapsed = receive();
        child.kill()?;
        child.wait()?;
        // The client may have opened more connections.
        self.listener.set_nonblocking(true)?;
        while self.listener.accept().is_ok() {}
        self.listener.set_nonblocking(false)?;
        elapsed
    }
}
