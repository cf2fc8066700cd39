//! The certificate the API server knows us by. It lies in one Secret of our own namespace, so that a new leader has the
//! same and nothing need be written when the leader changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::label;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::{Known, SERVICE};
use crate::context::Context;
use crate::kept_secret::{self, Worth};

const SECRET: &str = "odc-queue-tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

#[derive(Debug)]
pub struct Identity {
    /// What the API server is to trust: the certificate vouches for itself.
    pub pem: String,
    /// The certificate and a key that belongs to it.
    pub pair: Arc<CertifiedKey>,
    /// As it was read, to tell whether another one is the same.
    data: BTreeMap<String, ByteString>,
}

impl Identity {
    pub(super) fn of(secret: &Secret) -> anyhow::Result<Self> {
        let data = |name: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(name));
            data.map(|data| data.0.as_slice()).with_context(|| format!("it has no {name}"))
        };
        let pem = data(CERTIFICATE)?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .with_context(|| format!("reading {CERTIFICATE}"))?;
        anyhow::ensure!(!certificates.is_empty(), "there is no certificate in {CERTIFICATE}");
        let key = PrivateKeyDer::from_pem_slice(data(KEY)?).with_context(|| format!("reading {KEY}"))?;
        let pair = CertifiedKey::from_der(certificates, key, &aws_lc_rs::default_provider())
            .with_context(|| format!("{CERTIFICATE} and {KEY} are no pair"))?;
        Ok(Self {
            pem: String::from_utf8(pem.to_vec()).with_context(|| format!("{CERTIFICATE} is no text"))?,
            pair: Arc::new(pair),
            data: secret.data.clone().unwrap_or_default(),
        })
    }
}

/// It is pinned by the API server's registration of us, not found by a chain, and so need not expire: an administrator
/// replaces it by deleting the Secret.
pub(super) fn fresh(namespace: &str) -> anyhow::Result<Secret> {
    let mut params = CertificateParams::new(vec![format!("{SERVICE}.{namespace}.svc")])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, SERVICE);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let data = [(CERTIFICATE, certificate.pem()), (KEY, key.serialize_pem())];
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.into()),
            labels: Some([(label::MANAGED_BY.to_owned(), "odc-operator".to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some(data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).into()),
        type_: Some("kubernetes.io/tls".into()),
        ..Secret::default()
    })
}

pub(super) async fn follow(ctx: Arc<Context>, known: Arc<watch::Sender<Known>>) {
    let make = |ctx: &Context| fresh(&ctx.config.namespace);
    let learn = |_: &Context, secret: &Secret| match Identity::of(secret) {
        Ok(identity) => {
            known.send_if_modified(|known| {
                // A watch that begins anew tells what is known; connections should not end for that.
                let news = known.identity.as_ref().is_none_or(|old| old.data != identity.data);
                if news {
                    known.identity = Some(Arc::new(identity));
                }
                news
            });
            Worth::Kept
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "Secret {SECRET} cannot be used; a new one takes its place");
            Worth::Replaced
        }
    };
    kept_secret::follow(ctx, SECRET, make, learn).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_read_back() {
        let secret = fresh("odc-system").unwrap();
        let identity = Identity::of(&secret).unwrap();
        assert!(identity.pem.starts_with("-----BEGIN CERTIFICATE-----"));
        let changed = |change: fn(&mut BTreeMap<String, ByteString>)| {
            let mut secret = secret.clone();
            secret.data.iter_mut().for_each(change);
            Identity::of(&secret).unwrap_err().to_string()
        };
        assert_eq!(changed(|data| drop(data.remove(KEY))), "it has no tls.key");
        assert_eq!(
            changed(|data| drop(data.insert(CERTIFICATE.into(), ByteString(vec![])))),
            "there is no certificate in tls.crt"
        );
        // Each of them is fine, but they do not belong together.
        let other = |data: &mut BTreeMap<String, ByteString>| {
            let other = fresh("odc-system").unwrap().data.unwrap()[KEY].clone();
            data.insert(KEY.into(), other);
        };
        assert_eq!(changed(other), "tls.crt and tls.key are no pair");
    }
}
