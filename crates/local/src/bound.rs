//! Single pieces of a cloud that live no longer than the process that asked for them: for tests.
//!
//! They are the same parts under the same supervisor, on loopback with free ports, and need no root. Whatever happens to
//! their owner, the kernel ends them with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::artifact::Executables;
use crate::layout::Layout;
use crate::network::Network;
use crate::part::Part;
use crate::parts::{Blueprint, ensure_password};
use crate::pki::Pki;
use crate::settings::{Ask, Settings};
use crate::supervisor::{Lifetime, State, Supervisor};

/// A busy machine is no fault.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct Bound {
    blueprint: Blueprint,
    supervisor: Supervisor,
}

impl Bound {
    /// etcd, API server, controller manager and scheduler.
    pub async fn control_plane(directory: &Path) -> anyhow::Result<Self> {
        let blueprint = blueprint(directory)?;
        anyhow::ensure!(
            blueprint.executables.kube.exists(),
            "Kubernetes has not been built yet; run `./dev test`, which builds it"
        );
        Pki::of(&blueprint.layout).ensure(&blueprint.settings)?;
        Self::start(blueprint, Blueprint::control_plane).await
    }

    /// PostgreSQL with one empty database.
    pub async fn database(directory: &Path) -> anyhow::Result<Self> {
        let blueprint = blueprint(directory)?;
        ensure_password(&blueprint.layout.database_password())?;
        Self::start(blueprint, Blueprint::database).await
    }

    async fn start(blueprint: Blueprint, parts: impl FnOnce(&Blueprint) -> Vec<Part>) -> anyhow::Result<Self> {
        let mut supervisor = Supervisor::new(blueprint.layout.clone(), Lifetime::Bound)?;
        supervisor.apply(parts(&blueprint)).await?;
        let mut board = supervisor.watch();
        let ready = board.wait_for(|snapshot| snapshot.values().all(|status| status.state == State::Ready));
        let answer = tokio::time::timeout(LIMIT, ready).await.map(|answer| answer.map(drop));
        if answer.is_err() {
            anyhow::bail!("not ready after {} s: {:#?}", LIMIT.as_secs(), *supervisor.watch().borrow());
        }
        answer?.context("watching the parts")?;
        Ok(Self { blueprint, supervisor })
    }

    /// The administrator's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.blueprint.layout.kubeconfig()
    }

    /// What the API server notes of every request, one JSON object per line.
    pub fn audit_log(&self) -> PathBuf {
        self.blueprint.layout.audit_log()
    }

    pub fn database_url(&self) -> anyhow::Result<String> {
        self.blueprint.database_url()
    }

    /// Ends them in order and waits until they are gone.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.supervisor.end_all().await
    }
}

fn blueprint(directory: &Path) -> anyhow::Result<Blueprint> {
    let layout = Layout::new(std::path::absolute(directory)?);
    let settings = Settings::merge(None, &Ask { nodes: Some(0), ..Ask::default() }, || Ok(Network::Loopback))?;
    Blueprint::new(settings, layout, Executables::find()?)
}
