//! The control CA: the SSH CA whose user certificates agents accept from the operator. It is stored in a Secret of the
//! operator's namespace that the first leader generates.
//!
//! `ca` is the signing key, `ca.pub` lists the CA keys that agents trust. To rotate the CA, add the new public key to
//! `ca.pub`, then replace `ca`, then remove the old key from `ca.pub`. Running agents are updated after each step; new
//! pods start with the current list.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::label;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{PrivateKey, PublicKey};

use super::ssh_keygen::generate_key;
use crate::cache::key;
use crate::context::Context;
use crate::managed_secret::{self, SecretCheck};

pub const SECRET_NAME: &str = "odc-control-ca";
const CA_KEY: &str = "ca";
const CA_BUNDLE: &str = "ca.pub";

#[derive(Clone, Debug)]
pub struct ControlCa {
    pub signing_key: PrivateKey,
    /// Lines of an `authorized_keys` file, without comments.
    pub trusted_keys: Vec<String>,
}

/// The state of the Secret. Servers are reconciled without a CA too, but requests to their agents are not possible.
#[derive(Clone, Debug, Default)]
pub enum CaState {
    /// The Secret was not read yet.
    #[default]
    Unknown,
    Invalid,
    Ready(Arc<ControlCa>),
}

impl CaState {
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    pub fn ready(&self) -> Option<Arc<ControlCa>> {
        match self {
            Self::Ready(ca) => Some(Arc::clone(ca)),
            Self::Unknown | Self::Invalid => None,
        }
    }
}

impl ControlCa {
    fn generate() -> anyhow::Result<Self> {
        let signing_key = generate_key("odc-control-ca")?;
        let trusted_keys = vec![public_line(signing_key.public_key())?];
        Ok(Self { signing_key, trusted_keys })
    }

    fn from_secret(secret: &Secret) -> anyhow::Result<Self> {
        let text = |name: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(name));
            let data = data.with_context(|| format!("key {name} is missing"))?;
            std::str::from_utf8(&data.0).with_context(|| format!("{name} is not UTF-8"))
        };
        let signing_key =
            PrivateKey::from_openssh(text(CA_KEY)?).with_context(|| format!("{CA_KEY} is not an SSH private key"))?;
        let lines = text(CA_BUNDLE)?.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parse = |line: &str| {
            public_line(&PublicKey::from_openssh(line).with_context(|| format!("invalid line in {CA_BUNDLE}"))?)
        };
        let trusted_keys: Vec<String> = lines.map(parse).collect::<anyhow::Result<_>>()?;
        let own = public_line(signing_key.public_key())?;
        anyhow::ensure!(trusted_keys.contains(&own), "{CA_BUNDLE} does not contain the public key of {CA_KEY}");
        Ok(Self { signing_key, trusted_keys })
    }

    fn secret(&self) -> anyhow::Result<Secret> {
        let private = self.signing_key.to_openssh(LineEnding::LF).context("encoding an SSH key")?;
        let public: String = self.trusted_keys.iter().map(|line| format!("{line}\n")).collect();
        let data = [(CA_KEY, private.as_bytes().to_vec()), (CA_BUNDLE, public.into_bytes())];
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(SECRET_NAME.into()),
                labels: Some([(label::MANAGED_BY.to_owned(), label::OPERATOR.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect()),
            type_: Some("Opaque".into()),
            ..Secret::default()
        })
    }
}

fn public_line(key: &PublicKey) -> anyhow::Result<String> {
    let mut key = key.clone();
    key.set_comment("");
    Ok(key.to_openssh().context("encoding an SSH key")?.trim_end().to_owned())
}

pub async fn watch(ctx: Arc<Context>) {
    managed_secret::watch(ctx, SECRET_NAME, restore_or_generate, update).await;
}

/// Restores the current CA if the Secret was deleted, or generates a new one.
fn restore_or_generate(ctx: &Context) -> anyhow::Result<Secret> {
    let current = ctx.control_ca.borrow().ready();
    current.map_or_else(ControlCa::generate, |current| Ok((*current).clone()))?.secret()
}

/// Uses the stored CA. An invalid Secret is ignored, because agents trust only the current CA.
fn update(ctx: &Context, secret: &Secret) -> SecretCheck {
    match ControlCa::from_secret(secret) {
        Ok(ca) => {
            ctx.control_ca.send_replace(CaState::Ready(Arc::new(ca)));
            for server in ctx.cluster.servers.state() {
                let (namespace, name) = key(&*server);
                ctx.work_queues.enqueue_server(&namespace, &name);
            }
        }
        Err(error) => {
            ctx.control_ca.send_if_modified(|state| {
                let is_first = !state.is_known();
                if is_first {
                    *state = CaState::Invalid;
                }
                is_first
            });
            tracing::error!(error = format!("{error:#}"), "invalid Secret {SECRET_NAME}, keeping the previous CA");
        }
    }
    SecretCheck::Valid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl FnOnce(&mut std::collections::BTreeMap<String, ByteString>)) -> anyhow::Result<ControlCa> {
        let mut secret = ControlCa::generate().unwrap().secret().unwrap();
        change(secret.data.as_mut().unwrap());
        ControlCa::from_secret(&secret)
    }

    #[test]
    fn secret_round_trips() {
        let generated = ControlCa::generate().unwrap();
        let read = ControlCa::from_secret(&generated.secret().unwrap()).unwrap();
        assert_eq!(read.trusted_keys, generated.trusted_keys);
        assert_eq!(read.signing_key.public_key().key_data(), generated.signing_key.public_key().key_data());
        assert!(!format!("{:?}", generated.trusted_keys).contains("odc-control-ca"));
    }

    #[test]
    fn bundle_may_contain_several_keys() {
        let second = ControlCa::generate().unwrap().trusted_keys.remove(0);
        let add = |data: &mut std::collections::BTreeMap<String, ByteString>| {
            let list = &mut data.get_mut(CA_BUNDLE).unwrap().0;
            list.extend_from_slice(format!("# next CA\n\n{second} new\n").as_bytes());
        };
        let both = changed(add).unwrap();
        assert_eq!((both.trusted_keys.len(), &both.trusted_keys[1]), (2, &second));
    }

    #[test]
    fn secret_without_matching_key_pair_is_invalid() {
        let other = ControlCa::generate().unwrap().trusted_keys.remove(0);
        let replaced = |text: &str| ByteString(text.as_bytes().to_vec());
        assert!(changed(|data| drop(data.insert(CA_BUNDLE.into(), replaced(&other)))).is_err());
        assert!(changed(|data| drop(data.insert(CA_BUNDLE.into(), replaced("nonsense")))).is_err());
        assert!(changed(|data| drop(data.insert(CA_KEY.into(), replaced("nonsense")))).is_err());
        assert!(changed(|data| drop(data.remove(CA_KEY))).is_err());
        assert!(changed(|data| drop(data.remove(CA_BUNDLE))).is_err());
    }
}
