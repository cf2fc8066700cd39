//! The environment of every session.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use odc_api::HOME;

use super::{gang_discovery, literal, size};
use crate::devserver::validate::Valid;

/// Variables that bound the number of threads of libraries, which would otherwise use the node's core count.
const THREAD_VARIABLES: &[&str] = &[
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "MAX_JOBS",
    "GOMAXPROCS",
    "CARGO_BUILD_JOBS",
];

/// Reports whether only the operator may set the variable: the visible devices and its own variables. The rules of the CRD
/// reject such names; this covers objects stored before those rules existed.
fn is_reserved(name: &str) -> bool {
    name == VISIBLE_DEVICES || name.starts_with("ODC_")
}

const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// Variables of the owner override those that are not reserved.
pub fn env(valid: &Valid<'_>, ordinal: usize) -> Vec<EnvVar> {
    let spec = &valid.server.spec;
    let threads = size::threads(valid).to_string();
    let mut all = vec![
        plain("HOME", HOME),
        plain("ODC_SERVER", valid.name.as_str()),
        plain("ODC_OWNER", valid.owner.as_str()),
        plain("ODC_FLAVOR", valid.flavor_name.as_str()),
    ];
    all.extend(THREAD_VARIABLES.iter().map(|name| plain(name, &threads)));
    if valid.count == 0 {
        // Images for GPUs request all devices by default.
        all.push(plain(VISIBLE_DEVICES, "void"));
    }
    if let Some(repository) = spec.setup.as_ref().and_then(|setup| setup.repository.as_ref()) {
        all.push(plain("ODC_REPOSITORY_URL", &repository.url));
        all.push(plain("ODC_REPOSITORY_REF", repository.reference.as_deref().unwrap_or_default()));
    }
    all.extend(gang_discovery::env(valid, ordinal));
    let own = spec.env.iter().filter(|variable| !is_reserved(&variable.name));
    all.retain(|ours| own.clone().all(|variable| variable.name != ours.name));
    let own = own.map(|variable| match &variable.secret {
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
    all.extend(own);
    all
}

pub(crate) fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(literal(value)), value_from: None }
}
