//! The serving certificate. It is stored in a Secret of the operator's namespace, so that all leaders use the same one
//! and the `APIService` does not change with the leader.

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

use super::{Credentials, SERVICE};
use crate::context::Context;
use crate::managed_secret::{self, SecretCheck};

const SECRET_NAME: &str = "odc-queue-tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

#[derive(Debug)]
pub struct ServingCert {
    /// The CA bundle for the `APIService`: the self-signed certificate.
    pub pem: String,
    pub key_pair: Arc<CertifiedKey>,
    /// The source, to detect changes.
    data: BTreeMap<String, ByteString>,
}

impl ServingCert {
    pub(super) fn from_secret(secret: &Secret) -> anyhow::Result<Self> {
        let data = |name: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(name));
            data.map(|data| data.0.as_slice()).with_context(|| format!("key {name} is missing"))
        };
        let pem = data(CERTIFICATE)?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .with_context(|| format!("parsing {CERTIFICATE}"))?;
        anyhow::ensure!(!certificates.is_empty(), "{CERTIFICATE} contains no certificate");
        let key = PrivateKeyDer::from_pem_slice(data(KEY)?).with_context(|| format!("parsing {KEY}"))?;
        let key_pair = CertifiedKey::from_der(certificates, key, &aws_lc_rs::default_provider())
            .with_context(|| format!("{KEY} does not match {CERTIFICATE}"))?;
        Ok(Self {
            pem: String::from_utf8(pem.to_vec()).with_context(|| format!("{CERTIFICATE} is not UTF-8"))?,
            key_pair: Arc::new(key_pair),
            data: secret.data.clone().unwrap_or_default(),
        })
    }
}

/// Generates a self-signed certificate. The `APIService` pins it, so it does not expire; an administrator rotates it by
/// deleting the Secret.
pub(super) fn generate(namespace: &str) -> anyhow::Result<Secret> {
    let mut params = CertificateParams::new(vec![format!("{SERVICE}.{namespace}.svc")])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, SERVICE);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let data = [(CERTIFICATE, certificate.pem()), (KEY, key.serialize_pem())];
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(SECRET_NAME.into()),
            labels: Some([(label::MANAGED_BY.to_owned(), label::OPERATOR.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some(data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).into()),
        type_: Some("kubernetes.io/tls".into()),
        ..Secret::default()
    })
}

/// Watches the Secret and updates the credentials. Never returns.
pub(super) async fn watch(ctx: Arc<Context>, credentials: Arc<watch::Sender<Credentials>>) {
    let generate = |ctx: &Context| generate(&ctx.config.namespace);
    let update = |_: &Context, secret: &Secret| match ServingCert::from_secret(secret) {
        Ok(cert) => {
            credentials.send_if_modified(|credentials| {
                // A restarted watch delivers the same Secret again, which must not close connections.
                let changed = credentials.serving_cert.as_ref().is_none_or(|old| old.data != cert.data);
                if changed {
                    credentials.serving_cert = Some(Arc::new(cert));
                }
                changed
            });
            SecretCheck::Valid
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "invalid Secret {SECRET_NAME}, generating a new one");
            SecretCheck::Regenerate
        }
    };
    managed_secret::watch(ctx, SECRET_NAME, generate, update).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_secret_is_valid() {
        let secret = generate("odc-system").unwrap();
        let cert = ServingCert::from_secret(&secret).unwrap();
        assert!(cert.pem.starts_with("-----BEGIN CERTIFICATE-----"));
        let error = |change: fn(&mut BTreeMap<String, ByteString>)| {
            let mut secret = secret.clone();
            secret.data.iter_mut().for_each(change);
            ServingCert::from_secret(&secret).unwrap_err().to_string()
        };
        assert_eq!(error(|data| drop(data.remove(KEY))), "key tls.key is missing");
        assert_eq!(
            error(|data| drop(data.insert(CERTIFICATE.into(), ByteString(vec![])))),
            "tls.crt contains no certificate"
        );
        // Both are valid, but do not match.
        let other = |data: &mut BTreeMap<String, ByteString>| {
            let other = generate("odc-system").unwrap().data.unwrap()[KEY].clone();
            data.insert(KEY.into(), other);
        };
        assert_eq!(error(other), "tls.key does not match tls.crt");
    }
}
