//! Volumes and mounts of a server.

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};
use odc_api::HOME;
use odc_api::v1alpha1::{Home, Privilege};

use super::{secret_name, size};
use crate::devserver::validate::Valid;

const BIN: &str = "odc-bin";
const ACCOUNTS: &str = "odc-accounts";
const KEYS: &str = "odc-keys";
const SHARED_MEMORY: &str = "shm";
const HOME_VOLUME: &str = "home";

/// A volume of the pod, so its content survives restarts of the container.
pub const SHARED_MEMORY_PATH: &str = "/dev/shm";

/// Returns the volumes of one pod of a server. A disk is mounted by the first pod; the others have an empty home.
pub fn volumes(valid: &Valid<'_>, ordinal: usize) -> Vec<Volume> {
    let empty = |name: &str, medium: Option<&str>, limit| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: medium.map(str::to_owned), size_limit: limit }),
        ..Volume::default()
    };
    let home = match &valid.server.spec.home {
        Home::Ephemeral(size) => empty(HOME_VOLUME, None, Some((*size).into())),
        Home::Disk(_) if ordinal > 0 => empty(HOME_VOLUME, None, None),
        Home::Claim(_) | Home::Disk(_) => {
            from_claim(HOME_VOLUME.to_owned(), valid.home_claim.unwrap_or_default(), false)
        }
    };
    let keys = Volume {
        name: KEYS.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret_name(valid.name.as_str(), valid.uid)),
            // Readable and executable by the server's group only; it contains scripts.
            default_mode: Some(0o550),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut all = vec![
        empty(BIN, None, None),
        keys,
        empty(SHARED_MEMORY, Some("Memory"), Some(size::shared_memory(valid).into())),
        home,
    ];
    if needs_accounts(valid) {
        all.push(empty(ACCOUNTS, None, None));
    }
    all.extend(
        valid.volumes.iter().enumerate().map(|(index, mount)| from_claim(extra(index), mount.claim, mount.read_only)),
    );
    all
}

/// Returns the mounts of the main container.
pub fn main(valid: &Valid<'_>) -> Vec<VolumeMount> {
    let mut all = vec![
        mount(BIN, "/odc/bin", true),
        mount(KEYS, "/odc/keys", true),
        mount(SHARED_MEMORY, SHARED_MEMORY_PATH, false),
        mount(HOME_VOLUME, HOME, false),
    ];
    if needs_accounts(valid) {
        let file = |name: &str| VolumeMount {
            sub_path: Some(name.to_owned()),
            ..mount(ACCOUNTS, &format!("/etc/{name}"), true)
        };
        all.extend([file("passwd"), file("group")]);
    }
    let extras = valid.volumes.iter().enumerate();
    all.extend(extras.map(|(index, volume)| mount(&extra(index), volume.path.as_str(), volume.read_only)));
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

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn from_claim(name: String, claim: &str, read_only: bool) -> Volume {
    Volume {
        name,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            read_only: read_only.then_some(true),
        }),
        ..Volume::default()
    }
}
