//! A node's directories, and the plugin running on them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use odc_gpu_plugin::args::Args;
use odc_gpu_plugin::directory::{self, Directory};
use odc_gpu_plugin::registration::Pace;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::device_manager::Kubelet;
use crate::{strings, within};

pub(crate) const SOCKET: &str = "odc-nvidia.com_gpu.sock";

/// Directories of one node, gone with the test.
pub(crate) struct Node {
    pub(crate) root: TempDir,
}

impl Node {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { root: tempfile::tempdir()? })
    }

    pub(crate) fn kubelet_dir(&self) -> PathBuf {
        self.root.path().join("kubelet/device-plugins")
    }

    pub(crate) fn ill_dir(&self) -> PathBuf {
        self.root.path().join("ill")
    }

    pub(crate) fn own_socket(&self) -> PathBuf {
        self.kubelet_dir().join(SOCKET)
    }

    pub(crate) fn kubelet(&self) -> Result<Kubelet> {
        self.kubelet_that_refuses(0)
    }

    pub(crate) fn kubelet_that_refuses(&self, registrations: usize) -> Result<Kubelet> {
        Kubelet::start(&self.kubelet_dir(), registrations)
    }

    fn args(&self) -> Vec<String> {
        let (kubelet, ill) = (self.kubelet_dir(), self.ill_dir());
        let dirs =
            [("--kubelet-dir", kubelet), ("--ill-dir", ill)].map(|(flag, dir)| format!("{flag}={}", dir.display()));
        strings(&["--count=4", "--node=n1"]).into_iter().chain(dirs).collect()
    }

    /// The plugin within the test, quick to retry.
    pub(crate) fn plugin(&self) -> Result<Running> {
        self.plugin_that_bears(Pace::default().silence)
    }

    pub(crate) fn plugin_that_bears(&self, silence: Duration) -> Result<Running> {
        let typed = ["plugin".to_owned()].into_iter().chain(self.args());
        let mut config = Args::try_parse_from(typed)?.config()?;
        config.pace =
            Pace { first_retry: Duration::from_millis(10), longest_retry: Duration::from_millis(100), silence };
        let (stop, stopped) = oneshot::channel();
        // A test that ends drops the sender, which stops the plugin too.
        let task = tokio::spawn(odc_gpu_plugin::run(config, async {
            let _ = stopped.await;
        }));
        Ok(Running { stop, task })
    }

    /// The plugin as its own process.
    pub(crate) fn process(&self, more: &[&str]) -> Result<Child> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_odc-gpu-plugin"));
        command.args(self.args()).args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(command.spawn()?)
    }

    /// Waits until the plugin has made its socket.
    pub(crate) async fn served(&self) -> Result<()> {
        let mut directory = Directory::new(self.kubelet_dir())?;
        within(async {
            loop {
                directory.arm()?;
                if self.own_socket().exists() {
                    return Ok(());
                }
                directory.changed().await?;
            }
        })
        .await?
    }
}

pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), directory::Error>>,
}

impl Running {
    pub(crate) async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(within(self.task).await???)
    }
}
