//! Whose word we take: that of the API server's front proxy, by the certificate the cluster says it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Known;
use crate::context::Context;

/// Every cluster publishes it there, for servers like us.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

#[derive(Debug)]
pub struct Front {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Any, if none is named.
    names: Vec<String>,
    user_headers: Vec<String>,
    /// As it was read, to tell whether another one is the same.
    data: BTreeMap<String, String>,
}

/// The person on whose behalf the front proxy asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(pub String);

impl Front {
    pub(super) fn of(config: &ConfigMap) -> anyhow::Result<Self> {
        let text = |key: &str| config.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let list = |key: &str| -> anyhow::Result<Vec<String>> {
            text(key).map_or(Ok(vec![]), |text| serde_json::from_str(text).with_context(|| format!("reading {key}")))
        };
        let pem = text("requestheader-client-ca-file").context("it names no authority of the front proxy")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.context("reading the front proxy's authority")?)?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().context("the front proxy's authority")?;
        let user_headers = list("requestheader-username-headers")?;
        anyhow::ensure!(!user_headers.is_empty(), "it does not say in which header the person's name stands");
        let names = list("requestheader-allowed-names")?;
        Ok(Self { verifier, names, user_headers, data: config.data.clone().unwrap_or_default() })
    }

    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Whether the holder of a certificate of the right authority is the front proxy: the authority may sign others too.
    pub fn is_front_proxy(&self, certificate: &CertificateDer<'_>) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.into_iter().any(|name| self.names.iter().any(|allowed| allowed == name))
    }

    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let said = self.user_headers.iter().filter_map(|name| headers.get(name.as_str()));
        // Kubernetes passes names on as they are, in any script.
        said.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()).find(|name| !name.is_empty()).map(Caller)
    }
}

/// Takes over what the cluster says of its front proxy, and every change of it.
pub(super) async fn follow(ctx: Arc<Context>, known: Arc<watch::Sender<Known>>) {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), NAMESPACE);
    let only = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let mut events = std::pin::pin!(watcher::watcher(api, only).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(config) | Event::Apply(config)) => match Front::of(&config) {
                Ok(front) => {
                    known.send_if_modified(|known| {
                        let news = known.front.as_ref().is_none_or(|old| old.data != front.data);
                        if news {
                            known.front = Some(Arc::new(front));
                        }
                        news
                    });
                }
                Err(error) => tracing::error!(
                    error = format!("{error:#}"),
                    "ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be used; the last one that could stays"
                ),
            },
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "a watch broke and is made anew");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    fn config(change: impl FnOnce(&mut BTreeMap<String, String>)) -> ConfigMap {
        let mut data = [
            ("requestheader-client-ca-file", certificate("authority").pem()),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#.into()),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#.into()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        change(&mut data);
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    fn provider() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }

    #[test]
    fn only_the_named_proxy_is_believed() {
        provider();
        let front = Front::of(&config(|_| {})).unwrap();
        assert!(front.is_front_proxy(certificate("front-proxy-client").der()));
        assert!(!front.is_front_proxy(certificate("kubelet").der()));
        let any = Front::of(&config(|data| {
            data.insert("requestheader-allowed-names".into(), "[]".into());
        }));
        assert!(any.unwrap().is_front_proxy(certificate("kubelet").der()));
    }

    #[test]
    fn a_caller_has_a_name() {
        provider();
        let front = Front::of(&config(|_| {})).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(front.caller(&headers), None);
        headers.insert("x-remote-user", "ada".parse().unwrap());
        assert_eq!(front.caller(&headers), Some(Caller("ada".into())));
        headers.insert("x-remote-user", http::HeaderValue::from_bytes("josé".as_bytes()).unwrap());
        assert_eq!(front.caller(&headers), Some(Caller("josé".into())));
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        provider();
        for key in ["requestheader-client-ca-file", "requestheader-username-headers"] {
            assert!(Front::of(&config(|data| drop(data.remove(key)))).is_err(), "{key}");
        }
        let garbage = Front::of(&config(|data| {
            data.insert("requestheader-allowed-names".into(), "front".into());
        }));
        assert_eq!(garbage.unwrap_err().to_string(), "reading requestheader-allowed-names");
    }
}
