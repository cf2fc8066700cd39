//! Reads the entrypoint of an image from its registry, for servers with `image.keepEntrypoint`.
//!
//! A container with a command does not run the image's entrypoint, and Kubernetes does not expose it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciEnvelope, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde::Deserialize;

use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::Error;

const REGISTRY_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the image's entrypoint and command. The inner error is permanent; an [`Error`] is transient.
pub async fn entrypoint(
    ctx: &Context,
    namespace: &str,
    image: &str,
    pull_secrets: &[String],
) -> Result<Result<Vec<String>, String>, Error> {
    let Ok(reference) = image.parse::<Reference>() else { return Ok(Err(format!("invalid image name {image}"))) };
    let transient = |reason: String| Error::Registry { image: image.to_owned(), reason };
    let auth = credentials(ctx, namespace, pull_secrets, reference.registry()).await?;
    let config = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(ctx.config.insecure_registries.clone()),
        ..ClientConfig::default()
    };
    // The library panics without CA certificates.
    if !has_ca_bundle() {
        return Err(transient(format!("{CA_BUNDLE} is missing in the operator's image")));
    }
    let client = Client::try_from(config).map_err(|error| transient(error.to_string()))?;
    let response = tokio::time::timeout(REGISTRY_TIMEOUT, client.pull_manifest_and_config(&reference, &auth)).await;
    match response.map_err(|_| transient("request timed out".into()))? {
        Ok((_, _, config)) => Ok(parse_entrypoint(&config)),
        Err(error) if is_permanent(&error) => Ok(Err(format!("registry error: {error}"))),
        Err(error) => Err(transient(error.to_string())),
    }
}

const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

fn has_ca_bundle() -> bool {
    std::env::var_os("SSL_CERT_FILE").map_or_else(|| CA_BUNDLE.into(), std::path::PathBuf::from).exists()
}

/// Reports whether the image does not exist or access is denied. All other errors may be transient, and a server must
/// not fail because of them.
fn is_permanent(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_) | OciDistributionError::UnauthorizedError { .. } => true,
        OciDistributionError::RegistryError { envelope, .. } => denies(envelope),
        OciDistributionError::ServerError { code, .. } => matches!(code, 401 | 403 | 404),
        // An error of the token service; only its text is available.
        OciDistributionError::AuthenticationFailure(text) => {
            serde_json::from_str(text).is_ok_and(|envelope| denies(&envelope)) || is_bad_login(text)
        }
        _ => false,
    }
}

fn denies(envelope: &OciEnvelope) -> bool {
    let is_denial = |code: &OciErrorCode| {
        matches!(
            code,
            OciErrorCode::NameUnknown
                | OciErrorCode::ManifestUnknown
                | OciErrorCode::NotFound
                | OciErrorCode::NameInvalid
                | OciErrorCode::Denied
                | OciErrorCode::Unauthorized
        )
    };
    !envelope.errors.is_empty() && envelope.errors.iter().all(|error| is_denial(&error.code))
}

/// Matches the message of Docker Hub, which is not in the OCI format.
fn is_bad_login(text: &str) -> bool {
    text.contains("incorrect username or password")
}

fn parse_entrypoint(config: &str) -> Result<Vec<String>, String> {
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
    let file: File = serde_json::from_str(config).map_err(|error| format!("invalid image configuration: {error}"))?;
    let config = file.config.unwrap_or_default();
    let command: Vec<String> =
        config.entrypoint.into_iter().flatten().chain(config.cmd.into_iter().flatten()).collect();
    if command.is_empty() { Err("the image has neither an entrypoint nor a command".into()) } else { Ok(command) }
}

/// Returns the credentials for a registry from the first Secret that has them.
async fn credentials(
    ctx: &Context,
    namespace: &str,
    secrets: &[String],
    registry: &str,
) -> Result<RegistryAuth, Error> {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), namespace);
    for name in secrets {
        let read = |source| Error::Read { kind: "Secret", name: name.clone(), source: Box::new(source) };
        let Some(secret) = with_timeout(api.get_opt(name)).await.map_err(read)? else { continue };
        let text = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
        if let Some(auth) = text.and_then(|text| parse_docker_config(&text.0, registry)) {
            return Ok(auth);
        }
    }
    Ok(RegistryAuth::Anonymous)
}

fn parse_docker_config(text: &[u8], registry: &str) -> Option<RegistryAuth> {
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
    // `auth` is base64, decoded by way of a Kubernetes byte string.
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
    fn entrypoint_and_command_are_concatenated() {
        let both = r#"{"config": {"Entrypoint": ["/init"], "Cmd": ["run", "it"]}}"#;
        assert_eq!(parse_entrypoint(both), Ok(vec!["/init".into(), "run".into(), "it".into()]));
        assert_eq!(parse_entrypoint(r#"{"config": {"Entrypoint": null, "Cmd": ["sh"]}}"#), Ok(vec!["sh".into()]));
        for none in ["{}", r#"{"config": {}}"#] {
            assert_eq!(parse_entrypoint(none), Err("the image has neither an entrypoint nor a command".into()));
        }
        assert!(parse_entrypoint("no json").is_err());
    }

    #[test]
    fn only_denials_and_missing_images_are_permanent() {
        let body = |code: &str| format!(r#"{{"errors": [{{"code": "{code}", "message": "m"}}]}}"#);
        let registry_error = |body: &str| OciDistributionError::RegistryError {
            envelope: serde_json::from_str(body).unwrap(),
            url: String::new(),
        };
        let token_error = |text: String| OciDistributionError::AuthenticationFailure(text);
        for (code, expect) in [
            ("NAME_UNKNOWN", true),
            ("MANIFEST_UNKNOWN", true),
            ("NOT_FOUND", true),
            ("NAME_INVALID", true),
            ("DENIED", true),
            ("UNAUTHORIZED", true),
            ("TOOMANYREQUESTS", false),
            ("UNSUPPORTED", false),
            ("BLOB_UNKNOWN", false),
            ("VENDOR_SPECIFIC", false),
        ] {
            assert_eq!(is_permanent(&registry_error(&body(code))), expect, "{code}");
            assert_eq!(is_permanent(&token_error(body(code))), expect, "{code} for a token");
        }
        let both = r#"{"errors": [{"code": "DENIED"}, {"code": "TOOMANYREQUESTS"}]}"#;
        assert!(!is_permanent(&registry_error(both)) && !is_permanent(&registry_error(r#"{"errors": []}"#)));
        for (code, expect) in
            [(401, true), (403, true), (404, true), (400, false), (429, false), (500, false), (503, false)]
        {
            let error = OciDistributionError::ServerError { code, url: String::new(), message: String::new() };
            assert_eq!(is_permanent(&error), expect, "{code}");
        }
        assert!(is_permanent(&token_error(r#"{"details": "incorrect username or password"}"#.into())));
        for text in
            ["", "<html>502 Bad Gateway</html>", "upstream connect error", r#"{"details": "too many requests"}"#]
        {
            assert!(!is_permanent(&token_error(text.into())), "{text}");
        }
        assert!(is_permanent(&OciDistributionError::UnauthorizedError { url: String::new() }));
        assert!(is_permanent(&OciDistributionError::ImageManifestNotFoundError(String::new())));
        assert!(!is_permanent(&OciDistributionError::RegistryTokenDecodeError(String::new())));
        assert!(!is_permanent(&OciDistributionError::GenericError(None)));
    }

    #[test]
    fn credentials_are_found_in_all_formats() {
        let check = |text: &str| match parse_docker_config(text.as_bytes(), "registry.example.org") {
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
