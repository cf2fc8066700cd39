//! Control planes and databases for tests, which exit with the process that started them.
//!
//! They are the components of a local cluster under the same supervisor, on loopback with free ports, and need no root.
//! The kernel kills them when their parent dies, however it dies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use odc_api::duration::format_seconds;

use crate::artifact::Executables;
use crate::component::Component;
use crate::components::{Blueprint, ensure_passwords};
use crate::layout::Layout;
use crate::network::Network;
use crate::pki::Pki;
use crate::settings::{Settings, UpOptions};
use crate::supervisor::{Lifetime, State, Supervisor};

pub use crate::components::DatabaseRole;

/// Generous, because test machines are busy.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// etcd, API server, controller manager and scheduler.
#[derive(Debug)]
pub struct EphemeralControlPlane {
    blueprint: Blueprint,
    supervisor: Supervisor,
}

impl EphemeralControlPlane {
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        let blueprint = loopback_blueprint(directory)?;
        anyhow::ensure!(
            blueprint.executables.kube.exists(),
            "Kubernetes has not been built yet\nhint: run `./dev test`, which builds it"
        );
        Pki::new(&blueprint.layout).ensure_all(&blueprint.settings)?;
        let supervisor = start(&blueprint, blueprint.control_plane()).await?;
        Ok(Self { blueprint, supervisor })
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.blueprint.layout.kubeconfig()
    }

    /// Returns the path of the API server's audit log, one JSON object per line.
    pub fn audit_log(&self) -> PathBuf {
        self.blueprint.layout.audit_log()
    }

    /// Stops all components and waits until they have exited.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.supervisor.stop_all().await
    }
}

/// PostgreSQL with one database, which is empty unless the directory contains an earlier one.
#[derive(Debug)]
pub struct EphemeralDatabase {
    blueprint: Blueprint,
    supervisor: Supervisor,
}

impl EphemeralDatabase {
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        let blueprint = loopback_blueprint(directory)?;
        ensure_passwords(&blueprint.layout)?;
        let supervisor = start(&blueprint, blueprint.database()).await?;
        Ok(Self { blueprint, supervisor })
    }

    pub fn database_url(&self, role: DatabaseRole) -> anyhow::Result<String> {
        self.blueprint.database_url(role)
    }

    /// Returns the URL of the administrator of the server, for this database. It uses the socket in the data directory.
    pub fn administrator_url(&self) -> String {
        let directory = self.blueprint.layout.postgres();
        let port = self.blueprint.settings.ports.postgres;
        format!("postgres:///odc?host={}&port={port}&user=postgres", directory.display())
    }

    /// Returns the file that contains the process id of the server in its first line.
    pub fn pid_file(&self) -> PathBuf {
        self.blueprint.layout.postgres().join("postmaster.pid")
    }

    /// Stops PostgreSQL and waits until it has exited.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.supervisor.stop_all().await
    }
}

async fn start(blueprint: &Blueprint, components: Vec<Component>) -> anyhow::Result<Supervisor> {
    let mut supervisor = Supervisor::new(blueprint.layout.clone(), Lifetime::DiesWithParent)?;
    supervisor.apply(components).await?;
    let mut statuses = supervisor.watch();
    let ready = statuses.wait_for(|statuses| statuses.values().all(|status| status.state == State::Ready));
    let result = tokio::time::timeout(READY_TIMEOUT, ready).await.map(|result| result.map(drop));
    if result.is_err() {
        anyhow::bail!(
            "not ready after {}: {:#?}",
            format_seconds(READY_TIMEOUT.as_secs()),
            *supervisor.watch().borrow()
        );
    }
    result?.context("watching the components")?;
    Ok(supervisor)
}

fn loopback_blueprint(directory: &Path) -> anyhow::Result<Blueprint> {
    let layout = Layout::new(std::path::absolute(directory)?);
    let options = UpOptions { nodes: Some(0), ..UpOptions::default() };
    let settings = Settings::merge(None, &options, || Ok(Network::Loopback))?;
    Blueprint::new(settings, layout, Executables::find()?)
}
