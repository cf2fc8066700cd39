//! Volumes and mounts of a server.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use odc_api::HOME;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Home, Privilege};

use super::{secret_name, size};
use crate::devserver::validate::Valid;

const BIN: &str = "odc-bin";
const ACCOUNTS: &str = "odc-accounts";
const KEYS: &str = "odc-keys";
const SHARED_MEMORY: &str = "shm";
pub(crate) const HOME_VOLUME: &str = "home";

/// A volume of the pod, so its content survives restarts of the container.
pub const SHARED_MEMORY_PATH: &str = "/dev/shm";

/// Returns the volumes of one pod of a server. A disk is mounted by the first pod; the others have an empty home.
pub fn volumes(valid: &Valid<'_>, ordinal: usize) -> Vec<Volume> {
    let home = match &valid.server.spec.home {
        Home::Ephemeral(size) => empty(HOME_VOLUME, None, Some((*size).into())),
        Home::Disk(_) if ordinal > 0 => empty(HOME_VOLUME, None, None),
        Home::Claim(_) | Home::Disk(_) => {
            from_claim(HOME_VOLUME.to_owned(), valid.home_claim.unwrap_or_default(), false)
        }
    };
    let secret = secret_name(valid.name.as_str(), valid.uid);
    let mut all = base_volumes(&secret, size::shared_memory(valid), home, needs_accounts(valid));
    all.extend(
        valid.volumes.iter().enumerate().map(|(index, mount)| from_claim(extra(index), mount.claim, mount.read_only)),
    );
    all
}

/// Returns the volumes that the agent needs, and the home.
pub(crate) fn base_volumes(secret: &str, shared_memory: Quantity, home: Volume, accounts: bool) -> Vec<Volume> {
    let keys = Volume {
        name: KEYS.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            // Readable and executable by the server's group only; it contains scripts.
            default_mode: Some(0o550),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut all =
        vec![empty(BIN, None, None), keys, empty(SHARED_MEMORY, Some("Memory"), Some(shared_memory.into())), home];
    if accounts {
        all.push(empty(ACCOUNTS, None, None));
    }
    all
}

fn empty(name: &str, medium: Option<&str>, limit: Option<ApiQuantity>) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: medium.map(str::to_owned), size_limit: limit }),
        ..Volume::default()
    }
}

/// Returns the mounts of the main container.
pub fn main(valid: &Valid<'_>) -> Vec<VolumeMount> {
    let mut all = base_mounts(false, needs_accounts(valid));
    let extras = valid.volumes.iter().enumerate();
    all.extend(extras.map(|(index, volume)| mount(&extra(index), volume.path.as_str(), volume.read_only)));
    all
}

/// Returns the mounts of [`base_volumes`] in the main container.
pub(crate) fn base_mounts(is_home_read_only: bool, accounts: bool) -> Vec<VolumeMount> {
    let mut all = vec![
        mount(BIN, "/odc/bin", true),
        mount(KEYS, "/odc/keys", true),
        mount(SHARED_MEMORY, SHARED_MEMORY_PATH, false),
        mount(HOME_VOLUME, HOME, is_home_read_only),
    ];
    if accounts {
        let file = |name: &str| VolumeMount {
            sub_path: Some(name.to_owned()),
            ..mount(ACCOUNTS, &format!("/etc/{name}"), true)
        };
        all.extend([file("passwd"), file("group")]);
    }
    all
}

pub fn install() -> Vec<VolumeMount> {
    vec![mount(BIN, "/odc/bin", false)]
}

pub fn prepare() -> Vec<VolumeMount> {
    vec![mount(BIN, "/odc/bin", true), mount(ACCOUNTS, "/odc/accounts", false)]
}

/// Reports whether copies of passwd and group are mounted. If the root file system is writable for the owner, the agent
/// edits them in place instead.
pub fn needs_accounts(valid: &Valid<'_>) -> bool {
    valid.flavor.privilege == Privilege::Restricted
}

fn extra(index: usize) -> String {
    format!("volume-{index}")
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

pub(crate) fn from_claim(name: String, claim: &str, read_only: bool) -> Volume {
    Volume {
        name,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            read_only: read_only.then_some(true),
        }),
        ..Volume::default()
    }
}
