//! Access to the etcd of a local cluster.

use std::path::Path;

use anyhow::Context as _;

use crate::layout::Layout;
use crate::pki::{self, Ca, Pki};
use crate::settings::Settings;

/// Returns a kubeconfig with the address of etcd and its client certificate, for any HTTPS client that reads kubeconfigs.
pub fn kubeconfig(directory: &Path) -> anyhow::Result<String> {
    let layout = Layout::new(std::path::absolute(directory)?);
    let settings = Settings::load(&layout)?.with_context(|| format!("no cluster in {}", directory.display()))?;
    let url = format!("https://{}:{}", settings.network.host_ip(), settings.ports.etcd);
    let pki = Pki::new(&layout);
    Ok(pki::kubeconfig(&url, &pki.ca(Ca::Etcd).certificate, &pki.cert("etcd-client")))
}
