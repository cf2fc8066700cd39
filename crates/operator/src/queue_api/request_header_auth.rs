//! Request header authentication: accepts the API server's front proxy by its client certificate, and the user it names
//! in a header.

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

use super::Credentials;
use crate::context::Context;

/// The `ConfigMap` in which every cluster publishes the configuration for extension API servers.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

#[derive(Debug)]
pub struct RequestHeaderAuth {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The accepted common names; empty accepts all.
    allowed_names: Vec<String>,
    username_headers: Vec<String>,
    /// The source, to detect changes.
    data: BTreeMap<String, String>,
}

/// The user on whose behalf the front proxy sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(pub String);

impl RequestHeaderAuth {
    pub(super) fn from_config_map(config: &ConfigMap) -> anyhow::Result<Self> {
        let text = |key: &str| config.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let list = |key: &str| -> anyhow::Result<Vec<String>> {
            text(key).map_or(Ok(vec![]), |text| serde_json::from_str(text).with_context(|| format!("parsing {key}")))
        };
        let pem = text("requestheader-client-ca-file").context("requestheader-client-ca-file is missing")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.context("parsing requestheader-client-ca-file")?)?;
        }
        let verifier =
            WebPkiClientVerifier::builder(Arc::new(roots)).build().context("invalid requestheader-client-ca-file")?;
        let username_headers = list("requestheader-username-headers")?;
        anyhow::ensure!(!username_headers.is_empty(), "requestheader-username-headers is missing or empty");
        let allowed_names = list("requestheader-allowed-names")?;
        Ok(Self { verifier, allowed_names, username_headers, data: config.data.clone().unwrap_or_default() })
    }

    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Reports whether a verified certificate is that of the front proxy. The CA may sign other certificates too.
    pub fn is_front_proxy(&self, certificate: &CertificateDer<'_>) -> bool {
        if self.allowed_names.is_empty() {
            return true;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.into_iter().any(|name| self.allowed_names.iter().any(|allowed| allowed == name))
    }

    /// Returns the user named in the headers.
    pub fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let values = self.username_headers.iter().filter_map(|name| headers.get(name.as_str()));
        // Kubernetes passes names as UTF-8.
        values
            .map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
            .find(|name| !name.is_empty())
            .map(Caller)
    }
}

/// Watches the `ConfigMap` and updates the credentials. Never returns.
pub(super) async fn watch(ctx: Arc<Context>, credentials: Arc<watch::Sender<Credentials>>) {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), NAMESPACE);
    let watch_config = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let mut events = std::pin::pin!(watcher::watcher(api, watch_config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(config) | Event::Apply(config)) => match RequestHeaderAuth::from_config_map(&config) {
                Ok(auth) => {
                    credentials.send_if_modified(|credentials| {
                        let changed = credentials.client_auth.as_ref().is_none_or(|old| old.data != auth.data);
                        if changed {
                            credentials.client_auth = Some(Arc::new(auth));
                        }
                        changed
                    });
                }
                Err(error) => tracing::error!(
                    error = format!("{error:#}"),
                    "invalid ConfigMap {NAMESPACE}/{CONFIG_MAP}, keeping the previous configuration"
                ),
            },
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "watch failed, restarting");
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
            ("requestheader-client-ca-file", certificate("ca").pem()),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#.into()),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#.into()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        change(&mut data);
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    fn install_crypto_provider() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }

    #[test]
    fn only_allowed_names_are_the_front_proxy() {
        install_crypto_provider();
        let auth = RequestHeaderAuth::from_config_map(&config(|_| {})).unwrap();
        assert!(auth.is_front_proxy(certificate("front-proxy-client").der()));
        assert!(!auth.is_front_proxy(certificate("kubelet").der()));
        let any = RequestHeaderAuth::from_config_map(&config(|data| {
            data.insert("requestheader-allowed-names".into(), "[]".into());
        }));
        assert!(any.unwrap().is_front_proxy(certificate("kubelet").der()));
    }

    #[test]
    fn caller_is_read_from_the_header() {
        install_crypto_provider();
        let auth = RequestHeaderAuth::from_config_map(&config(|_| {})).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(auth.caller(&headers), None);
        headers.insert("x-remote-user", "ada".parse().unwrap());
        assert_eq!(auth.caller(&headers), Some(Caller("ada".into())));
        headers.insert("x-remote-user", http::HeaderValue::from_bytes("josé".as_bytes()).unwrap());
        assert_eq!(auth.caller(&headers), Some(Caller("josé".into())));
    }

    #[test]
    fn invalid_configuration_is_an_error() {
        install_crypto_provider();
        for key in ["requestheader-client-ca-file", "requestheader-username-headers"] {
            assert!(RequestHeaderAuth::from_config_map(&config(|data| drop(data.remove(key)))).is_err(), "{key}");
        }
        let invalid = RequestHeaderAuth::from_config_map(&config(|data| {
            data.insert("requestheader-allowed-names".into(), "front".into());
        }));
        assert_eq!(invalid.unwrap_err().to_string(), "parsing requestheader-allowed-names");
    }
}
