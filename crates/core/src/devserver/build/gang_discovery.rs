//! Service discovery between the nodes of a gang.

use k8s_openapi::api::core::v1::EnvVar;
use odc_api::port;

use super::env::plain;
use crate::devserver::pods;
use crate::devserver::validate::Valid;

/// Returns the DNS name of a node, which the headless Service resolves.
fn host(valid: &Valid<'_>, ordinal: usize) -> String {
    let server = valid.name.as_str();
    format!("{}.{server}.{}.svc", pods::pod_name(server, ordinal), valid.namespace)
}

fn hosts(valid: &Valid<'_>) -> Vec<String> {
    (0..valid.nodes as usize).map(|ordinal| host(valid, ordinal)).collect()
}

/// Returns the variables that torchrun and similar launchers read; none for a single node.
pub fn env(valid: &Valid<'_>, ordinal: usize) -> Vec<EnvVar> {
    if valid.nodes == 1 {
        return Vec::new();
    }
    let (rank, nodes) = (ordinal.to_string(), valid.nodes.to_string());
    vec![
        plain("MASTER_ADDR", &host(valid, 0)),
        plain("MASTER_PORT", &port::MASTER.to_string()),
        plain("RANK", &rank),
        plain("NODE_RANK", &rank),
        plain("WORLD_SIZE", &nodes),
        plain("ODC_NODE_COUNT", &nodes),
        plain("ODC_HOSTS", &hosts(valid).join(",")),
        plain("ODC_HOSTFILE", HOSTFILE),
    ]
}

pub const HOSTFILE: &str = "/odc/keys/hostfile";

/// Returns an MPI hostfile: one line per node, with its devices as slots.
pub fn hostfile(valid: &Valid<'_>) -> String {
    let slots = valid.count.max(1);
    hosts(valid).iter().map(|host| format!("{host} slots={slots}\n")).collect()
}
