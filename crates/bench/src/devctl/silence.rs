//! An API server that takes connections and never answers: the moment the first bytes come is all there is to see. They
//! are those of TLS, so everything a client does before it speaks is done.

use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

pub(crate) struct Silence {
    listener: TcpListener,
    kubeconfig: PathBuf,
}

impl Silence {
    /// The same cluster as in this kubeconfig, authorities and all, at another address.
    pub(crate) fn new(kubeconfig: &Path, directory: &Path) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
        config["clusters"][0]["cluster"]["server"] = format!("https://{}", listener.local_addr()?).into();
        let path = directory.join("silent.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(Self { listener, kubeconfig: path })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn first_bytes(&self, mut command: Command) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let first = || -> anyhow::Result<Duration> {
            let (mut connection, _) = self.listener.accept()?;
            connection.set_read_timeout(Some(Duration::from_secs(30)))?;
            connection.read_exact(&mut [0]).context("waiting for the first byte")?;
            Ok(begun.elapsed())
        };
        let took = first();
        child.kill()?;
        child.wait()?;
        // It may have knocked more than once.
        self.listener.set_nonblocking(true)?;
        while self.listener.accept().is_ok() {}
        self.listener.set_nonblocking(false)?;
        took
    }
}
