//! The environment of every session.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use odc_api::HOME;

use super::{gang, literal, size};
use crate::devserver::validate::Valid;

/// Libraries that start a thread per core would count the node's cores.
const THREADS: &[&str] = &[
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "MAX_JOBS",
    "GOMAXPROCS",
    "CARGO_BUILD_JOBS",
];

/// Which devices a server sees, and what the operator says about it, are not its owner's to say. The rules of the kind
/// refuse such names; an object that was stored before there were rules gets no further than here.
fn is_reserved(name: &str) -> bool {
    name == VISIBLE_DEVICES || name.starts_with("ODC_")
}

const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// What is not reserved, the owner may change.
pub fn env(valid: &Valid<'_>, ordinal: usize) -> Vec<EnvVar> {
    let spec = &valid.server.spec;
    let threads = size::threads(valid).to_string();
    let mut all = vec![
        plain("HOME", HOME),
        plain("ODC_SERVER", valid.name.as_str()),
        plain("ODC_OWNER", valid.owner.as_str()),
        plain("ODC_FLAVOR", valid.flavor_name.as_str()),
    ];
    all.extend(THREADS.iter().map(|name| plain(name, &threads)));
    if valid.count == 0 {
        // Images made for GPUs ask for all of them where nobody says otherwise.
        all.push(plain(VISIBLE_DEVICES, "void"));
    }
    if let Some(repository) = spec.setup.as_ref().and_then(|setup| setup.repository.as_ref()) {
        all.push(plain("ODC_REPOSITORY_URL", &repository.url));
        all.push(plain("ODC_REPOSITORY_REF", repository.reference.as_deref().unwrap_or_default()));
    }
    all.extend(gang::env(valid, ordinal));
    let own = spec.env.iter().filter(|variable| !is_reserved(&variable.name));
    all.retain(|ours| own.clone().all(|variable| variable.name != ours.name));
    let theirs = own.map(|variable| match &variable.secret {
        None => plain(&variable.name, variable.value.as_deref().unwrap_or_default()),
        Some(secret) => EnvVar {
            name: variable.name.clone(),
            value: None,
            value_from: Some(EnvVarSource {
                secret_key_ref: Some(SecretKeySelector {
                    name: secret.name.as_str().to_owned(),
                    key: secret.key.clone(),
                    optional: None,
                }),
                ..EnvVarSource::default()
            }),
        },
    });
    all.extend(theirs);
    all
}

pub(super) fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(literal(value)), value_from: None }
}
