//! Asks an image's registry what the image runs by itself, for servers that keep it beside the agent.
//!
//! Kubernetes does not tell: whoever gives a container a command of its own replaces the image's.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciEnvelope, OciErrorCode};
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

/// Asking again would not help: the image is not there, or not for us. Whatever else a registry says may pass, and a
/// server must not end for it.
fn is_final(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_) | OciDistributionError::UnauthorizedError { .. } => true,
        OciDistributionError::RegistryError { envelope, .. } => refuses(envelope),
        OciDistributionError::ServerError { code, .. } => matches!(code, 401 | 403 | 404),
        // Any answer of whoever gives out tokens, of which only the text is left.
        OciDistributionError::AuthenticationFailure(text) => {
            serde_json::from_str(text).is_ok_and(|envelope| refuses(&envelope)) || is_bad_login(text)
        }
        _ => false,
    }
}

fn refuses(envelope: &OciEnvelope) -> bool {
    let refuses = |code: &OciErrorCode| {
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
    !envelope.errors.is_empty() && envelope.errors.iter().all(|error| refuses(&error.code))
}

/// As the largest registry words it, which does not keep to the format.
fn is_bad_login(text: &str) -> bool {
    text.contains("incorrect username or password")
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
    fn only_a_clear_word_of_the_registry_is_final() {
        let body = |code: &str| format!(r#"{{"errors": [{{"code": "{code}", "message": "m"}}]}}"#);
        let said = |body: &str| OciDistributionError::RegistryError {
            envelope: serde_json::from_str(body).unwrap(),
            url: String::new(),
        };
        let token = |text: String| OciDistributionError::AuthenticationFailure(text);
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
            ("SOMETHING_OF_THEIR_OWN", false),
        ] {
            assert_eq!(is_final(&said(&body(code))), expect, "{code}");
            assert_eq!(is_final(&token(body(code))), expect, "{code} for a token");
        }
        let both = r#"{"errors": [{"code": "DENIED"}, {"code": "TOOMANYREQUESTS"}]}"#;
        assert!(!is_final(&said(both)) && !is_final(&said(r#"{"errors": []}"#)));
        for (code, expect) in
            [(401, true), (403, true), (404, true), (400, false), (429, false), (500, false), (503, false)]
        {
            let answer = OciDistributionError::ServerError { code, url: String::new(), message: String::new() };
            assert_eq!(is_final(&answer), expect, "{code}");
        }
        assert!(is_final(&token(r#"{"details": "incorrect username or password"}"#.into())));
        for text in
            ["", "<html>502 Bad Gateway</html>", "upstream connect error", r#"{"details": "too many requests"}"#]
        {
            assert!(!is_final(&token(text.into())), "{text}");
        }
        assert!(is_final(&OciDistributionError::UnauthorizedError { url: String::new() }));
        assert!(is_final(&OciDistributionError::ImageManifestNotFoundError(String::new())));
        assert!(!is_final(&OciDistributionError::RegistryTokenDecodeError(String::new())));
        assert!(!is_final(&OciDistributionError::GenericError(None)));
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
