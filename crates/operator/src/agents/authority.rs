//! The control authority: whose certificates agents take for the operator's word. It lies in one Secret of our own
//! namespace, which the first leader makes and everybody follows.
//!
//! `ca` signs, `ca.pub` lists whom agents trust. To change the authority, first add the new public key to `ca.pub`, then
//! replace `ca`, then take the old one out of `ca.pub`: running agents are told each time, and pods that are made meanwhile,
//! as when a server wakes, bring the list with them.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::label;
use rand::Rng as _;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{PrivateKey, PublicKey};

use crate::context::Context;
use crate::kept_secret::{self, Worth};

pub const SECRET: &str = "odc-control-ca";
const SIGNS: &str = "ca";
const TRUSTED: &str = "ca.pub";

#[derive(Clone, Debug)]
pub struct Authority {
    pub signing: PrivateKey,
    /// As lines of an `authorized_keys` file, without comments.
    pub trusted: Vec<String>,
}

/// What is known of it. Servers are driven without one too; only their agents are not spoken to.
#[derive(Clone, Debug, Default)]
pub enum Known {
    /// Nobody has looked yet.
    #[default]
    Nothing,
    Unusable,
    Usable(Arc<Authority>),
}

impl Known {
    pub fn was_looked_at(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    pub fn usable(&self) -> Option<Arc<Authority>> {
        match self {
            Self::Usable(authority) => Some(Arc::clone(authority)),
            Self::Nothing | Self::Unusable => None,
        }
    }
}

impl Authority {
    fn fresh() -> anyhow::Result<Self> {
        let signing = fresh_key("odc-control-ca")?;
        let trusted = vec![line(signing.public_key())?];
        Ok(Self { signing, trusted })
    }

    fn of(secret: &Secret) -> anyhow::Result<Self> {
        let text = |name: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(name));
            let data = data.with_context(|| format!("it has no {name}"))?;
            std::str::from_utf8(&data.0).with_context(|| format!("{name} is no text"))
        };
        let signing = PrivateKey::from_openssh(text(SIGNS)?).with_context(|| format!("{SIGNS} is no SSH key"))?;
        let lines = text(TRUSTED)?.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let read =
            |written: &str| line(&PublicKey::from_openssh(written).with_context(|| format!("a line of {TRUSTED}"))?);
        let trusted: Vec<String> = lines.map(read).collect::<anyhow::Result<_>>()?;
        anyhow::ensure!(trusted.contains(&line(signing.public_key())?), "{TRUSTED} does not list the key in {SIGNS}");
        Ok(Self { signing, trusted })
    }

    fn secret(&self) -> anyhow::Result<Secret> {
        let private = self.signing.to_openssh(LineEnding::LF).context("writing an SSH key")?;
        let public: String = self.trusted.iter().map(|line| format!("{line}\n")).collect();
        let data = [(SIGNS, private.as_bytes().to_vec()), (TRUSTED, public.into_bytes())];
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.into()),
                labels: Some([(label::MANAGED_BY.to_owned(), "odc-operator".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect()),
            type_: Some("Opaque".into()),
            ..Secret::default()
        })
    }
}

fn line(key: &PublicKey) -> anyhow::Result<String> {
    let mut key = key.clone();
    key.set_comment("");
    Ok(key.to_openssh().context("writing an SSH key")?.trim_end().to_owned())
}

pub fn fresh_key(comment: &str) -> anyhow::Result<PrivateKey> {
    let mut seed = [0; 32];
    rand::rng().fill_bytes(&mut seed);
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed)), comment).context("making an SSH key")
}

pub async fn follow(ctx: Arc<Context>) {
    kept_secret::follow(ctx, SECRET, make, learn).await;
}

/// The one we know, if somebody took it away; else a new one.
fn make(ctx: &Context) -> anyhow::Result<Secret> {
    let known = ctx.authority.borrow().usable();
    known.map_or_else(Authority::fresh, |known| Ok((*known).clone()))?.secret()
}

/// One that cannot be used changes nothing: agents trust the one we know, and would not know another.
fn learn(ctx: &Context, secret: &Secret) -> Worth {
    match Authority::of(secret) {
        Ok(authority) => {
            ctx.authority.send_replace(Known::Usable(Arc::new(authority)));
            for server in ctx.cluster.servers.state() {
                let (namespace, name) = crate::follow::key(&*server);
                ctx.look_at_server(&namespace, &name);
            }
        }
        Err(error) => {
            ctx.authority.send_if_modified(|known| {
                let first = !known.was_looked_at();
                if first {
                    *known = Known::Unusable;
                }
                first
            });
            tracing::error!(
                error = format!("{error:#}"),
                "Secret {SECRET} cannot be used; the last one that could stays"
            );
        }
    }
    Worth::Kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl FnOnce(&mut std::collections::BTreeMap<String, ByteString>)) -> anyhow::Result<Authority> {
        let mut secret = Authority::fresh().unwrap().secret().unwrap();
        change(secret.data.as_mut().unwrap());
        Authority::of(&secret)
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let made = Authority::fresh().unwrap();
        let read = Authority::of(&made.secret().unwrap()).unwrap();
        assert_eq!(read.trusted, made.trusted);
        assert_eq!(read.signing.public_key().key_data(), made.signing.public_key().key_data());
        assert!(!format!("{:?}", made.trusted).contains("odc-control-ca"));
    }

    #[test]
    fn several_may_be_trusted_at_once() {
        let second = Authority::fresh().unwrap().trusted.remove(0);
        let add = |data: &mut std::collections::BTreeMap<String, ByteString>| {
            let list = &mut data.get_mut(TRUSTED).unwrap().0;
            list.extend_from_slice(format!("# the next one\n\n{second} new\n").as_bytes());
        };
        let both = changed(add).unwrap();
        assert_eq!((both.trusted.len(), &both.trusted[1]), (2, &second));
    }

    #[test]
    fn one_that_would_lock_us_out_is_not_taken() {
        let other = Authority::fresh().unwrap().trusted.remove(0);
        let replaced = |text: &str| ByteString(text.as_bytes().to_vec());
        assert!(changed(|data| drop(data.insert(TRUSTED.into(), replaced(&other)))).is_err());
        assert!(changed(|data| drop(data.insert(TRUSTED.into(), replaced("nonsense")))).is_err());
        assert!(changed(|data| drop(data.insert(SIGNS.into(), replaced("nonsense")))).is_err());
        assert!(changed(|data| drop(data.remove(SIGNS))).is_err());
        assert!(changed(|data| drop(data.remove(TRUSTED))).is_err());
    }
}
