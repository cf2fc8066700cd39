//! Asks an image's registry what the image runs by itself, for servers that keep it beside the agent.
//!
//! Kubernetes does not tell: whoever gives a container a command of its own replaces the image's.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde::Deserialize;

use crate::context::Context;
use crate::error::Error;
use crate::request::in_time;

/// A registry that answers slowly is asked again later.
const LIMIT: Duration = Duration::from_secs(15);

/// The words of the image's entrypoint and command; an error in words if there is no hope, an [`Error`] if there is.
pub async fn entrypoint(
    ctx: &Context,
    namespace: &str,
    image: &str,
    pull_secrets: &[String],
) -> Result<Result<Vec<String>, String>, Error> {
    let Ok(reference) = image.parse::<Reference>() else { return Ok(Err(format!("{image} is no image's name"))) };
    let unreachable = |reason: String| Error::Registry { image: image.to_owned(), reason };
    let login = login(ctx, namespace, pull_secrets, reference.registry()).await?;
    let settings = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(ctx.config.plain_registries.clone()),
        ..ClientConfig::default()
    };
    // Not `new`, which gives up on the whole process.
    if !knows_authorities() {
        return Err(unreachable(format!("the operator's image lacks {AUTHORITIES}")));
    }
    let client = Client::try_from(settings).map_err(|error| unreachable(error.to_string()))?;
    let asked = tokio::time::timeout(LIMIT, client.pull_manifest_and_config(&reference, &login)).await;
    let answer = asked.map_err(|_| unreachable("it does not answer".into()))?;
    match answer {
        Ok((_, _, config)) => Ok(words(&config)),
        Err(error) if is_final(&error) => Ok(Err(format!("the registry says: {error}"))),
        Err(error) => Err(unreachable(error.to_string())),
    }
}

/// Where images keep the certificate authorities they trust.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The library gives up on the whole process where there are none, so that is found out before.
fn knows_authorities() -> bool {
    std::env::var_os("SSL_CERT_FILE").map_or_else(|| AUTHORITIES.into(), std::path::PathBuf::from).exists()
}

/// Asking again would not help.
fn is_final(error: &OciDistributionError) -> bool {
    matches!(
        error,
        OciDistributionError::ImageManifestNotFoundError(_)
            | OciDistributionError::AuthenticationFailure(_)
            | OciDistributionError::UnauthorizedError { .. }
            | OciDistributionError::RegistryError { .. }
    )
}

fn words(config: &str) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        config: Option<Config>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        #[serde(default)]
        entrypoint: Option<Vec<String>>,
        #[serde(default)]
        cmd: Option<Vec<String>>,
    }
    let file: File =
        serde_json::from_str(config).map_err(|error| format!("its configuration cannot be read: {error}"))?;
    let config = file.config.unwrap_or_default();
    let words: Vec<String> = config.entrypoint.into_iter().flatten().chain(config.cmd.into_iter().flatten()).collect();
    if words.is_empty() { Err("it has neither an entrypoint nor a command".into()) } else { Ok(words) }
}

/// The login for a registry from the first Secret that has one.
async fn login(ctx: &Context, namespace: &str, secrets: &[String], registry: &str) -> Result<RegistryAuth, Error> {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), namespace);
    for name in secrets {
        let read =
            |source| Error::Read { kind: odc_core::object::Kind::Secret, name: name.clone(), source: Box::new(source) };
        let Some(secret) = in_time(api.get_opt(name)).await.map_err(read)? else { continue };
        let text = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
        if let Some(login) = text.and_then(|text| login_in(&text.0, registry)) {
            return Ok(login);
        }
    }
    Ok(RegistryAuth::Anonymous)
}

fn login_in(text: &[u8], registry: &str) -> Option<RegistryAuth> {
    #[derive(Deserialize)]
    struct File {
        auths: std::collections::BTreeMap<String, Login>,
    }
    #[derive(Deserialize)]
    struct Login {
        username: Option<String>,
        password: Option<String>,
        auth: Option<String>,
    }
    let file: File = serde_json::from_slice(text).ok()?;
    let host = |name: &str| {
        name.trim_start_matches("https://").trim_start_matches("http://").split('/').next().map(str::to_owned)
    };
    let (_, login) = file.auths.into_iter().find(|(name, _)| host(name).as_deref() == Some(registry))?;
    if let (Some(user), Some(password)) = (login.username, login.password) {
        return Some(RegistryAuth::Basic(user, password));
    }
    // The two as one word, in the encoding that Kubernetes' own byte strings use.
    let quoted = serde_json::to_string(&login.auth?).ok()?;
    let bytes: k8s_openapi::ByteString = serde_json::from_str(&quoted).ok()?;
    let text = String::from_utf8(bytes.0).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entrypoint_and_command_are_one_line() {
        let both = r#"{"config": {"Entrypoint": ["/init"], "Cmd": ["run", "it"]}}"#;
        assert_eq!(words(both), Ok(vec!["/init".into(), "run".into(), "it".into()]));
        assert_eq!(words(r#"{"config": {"Entrypoint": null, "Cmd": ["sh"]}}"#), Ok(vec!["sh".into()]));
        for none in ["{}", r#"{"config": {}}"#] {
            assert_eq!(words(none), Err("it has neither an entrypoint nor a command".into()));
        }
        assert!(words("no json").is_err());
    }

    #[test]
    fn a_login_is_found_however_it_is_written() {
        let check = |text: &str| match login_in(text.as_bytes(), "registry.example.org") {
            Some(RegistryAuth::Basic(user, password)) => Some((user, password)),
            _ => None,
        };
        let ada = Some(("ada".to_owned(), "secret".to_owned()));
        let plain = r#"{"auths": {"https://registry.example.org/v2/": {"username": "ada", "password": "secret"}}}"#;
        assert_eq!(check(plain), ada);
        assert_eq!(check(r#"{"auths": {"registry.example.org": {"auth": "YWRhOnNlY3JldA=="}}}"#), ada);
        assert_eq!(check(r#"{"auths": {"other.example.org": {"auth": "YWRhOnNlY3JldA=="}}}"#), None);
        assert_eq!(check(r#"{"auths": {"registry.example.org": {"auth": "???"}}}"#), None);
        assert_eq!(check("{}"), None);
    }
}
