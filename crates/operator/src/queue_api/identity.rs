//! The certificate the API server knows us by. It lies in one Secret of our own namespace, so that a new leader has the
//! same and nothing need be written when the leader changes.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::label;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;

use super::{Known, SERVICE};
use crate::context::Context;
use crate::kept_secret;

const SECRET: &str = "odc-queue-tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

#[derive(Debug)]
pub struct Identity {
    /// What the API server is to trust: the certificate vouches for itself.
    pub pem: String,
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    fn of(secret: &Secret) -> anyhow::Result<Self> {
        let data = |name: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(name));
            data.map(|data| data.0.as_slice()).with_context(|| format!("it has no {name}"))
        };
        let pem = data(CERTIFICATE)?;
        Ok(Self {
            pem: String::from_utf8(pem.to_vec()).with_context(|| format!("{CERTIFICATE} is no text"))?,
            certificate: CertificateDer::from_pem_slice(pem).with_context(|| format!("reading {CERTIFICATE}"))?,
            key: PrivateKeyDer::from_pem_slice(data(KEY)?).with_context(|| format!("reading {KEY}"))?,
        })
    }
}

/// It is pinned by the API server's registration of us, not found by a chain, and so need not expire: an administrator
/// replaces it by deleting the Secret.
fn fresh(namespace: &str) -> anyhow::Result<Secret> {
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
        Ok(identity) => known.send_modify(|known| known.identity = Some(Arc::new(identity))),
        Err(error) => tracing::error!(
            error = format!("{error:#}"),
            "Secret {SECRET} cannot be used; the last one that could stays. Delete it to have a new one made"
        ),
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
        let without_key = Secret {
            data: secret.data.map(|mut data| {
                data.remove(KEY);
                data
            }),
            ..Secret::default()
        };
        assert_eq!(Identity::of(&without_key).unwrap_err().to_string(), "it has no tls.key");
    }
}
