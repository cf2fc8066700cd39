//! The directories of a node, with the plugin and the fake kubelet on them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use odc_fake_gpu_plugin::args::Args;
use odc_fake_gpu_plugin::dir_watcher::{self, DirWatcher};
use odc_fake_gpu_plugin::registration::RetryPolicy;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::device_manager::Kubelet;
use crate::{strings, within};

pub(crate) const SOCKET: &str = "odc-nvidia.com_gpu.sock";

/// Temporary directories of a node.
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

    pub(crate) fn unhealthy_dir(&self) -> PathBuf {
        self.root.path().join("unhealthy")
    }

    pub(crate) fn own_socket(&self) -> PathBuf {
        self.kubelet_dir().join(SOCKET)
    }

    pub(crate) fn kubelet(&self) -> Result<Kubelet> {
        self.kubelet_rejecting(0)
    }

    pub(crate) fn kubelet_rejecting(&self, registrations: usize) -> Result<Kubelet> {
        Kubelet::start(&self.kubelet_dir(), registrations)
    }

    fn args(&self) -> Vec<String> {
        let (kubelet, unhealthy) = (self.kubelet_dir(), self.unhealthy_dir());
        let dirs = [("--kubelet-dir", kubelet), ("--unhealthy-dir", unhealthy)]
            .map(|(flag, dir)| format!("{flag}={}", dir.display()));
        strings(&["--count=4", "--node=n1"]).into_iter().chain(dirs).collect()
    }

    /// Runs the plugin in the test process, with short retry intervals.
    pub(crate) fn plugin(&self) -> Result<RunningPlugin> {
        self.plugin_with_list_watch_timeout(RetryPolicy::default().list_watch_timeout)
    }

    pub(crate) fn plugin_with_list_watch_timeout(&self, list_watch_timeout: Duration) -> Result<RunningPlugin> {
        let arguments = ["plugin".to_owned()].into_iter().chain(self.args());
        let mut config = Args::try_parse_from(arguments)?.config()?;
        config.retry_policy = RetryPolicy {
            initial_backoff: Duration::from_millis(10),
            max_backoff: Duration::from_millis(100),
            list_watch_timeout,
        };
        let (stop, stopped) = oneshot::channel();
        // The end of the test drops the sender, which also stops the plugin.
        let task = tokio::spawn(odc_fake_gpu_plugin::run(config, async {
            let _ = stopped.await;
        }));
        Ok(RunningPlugin { stop, task })
    }

    /// Runs the plugin as a process.
    pub(crate) fn process(&self, more: &[&str]) -> Result<Child> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_odc-fake-gpu-plugin"));
        command.args(self.args()).args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(command.spawn()?)
    }

    /// Waits until the plugin has created its socket.
    pub(crate) async fn wait_for_socket(&self) -> Result<()> {
        let mut watcher = DirWatcher::new(self.kubelet_dir())?;
        within(async {
            loop {
                watcher.arm()?;
                if self.own_socket().exists() {
                    return Ok(());
                }
                watcher.changed().await?;
            }
        })
        .await?
    }
}

pub(crate) struct RunningPlugin {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), dir_watcher::Error>>,
}

impl RunningPlugin {
    pub(crate) async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(within(self.task).await???)
    }
}
