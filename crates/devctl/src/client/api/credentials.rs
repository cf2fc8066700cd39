//! The API key: from a variable, a file or a command.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::config::{ApiEndpoint, ApiKey};
use crate::error::{Error, Result};

/// A command may ask for a password.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest key. Tokens of Kubernetes, which the API accepts as well, have about 1 KiB.
const MAX_KEY_BYTES: usize = 8 << 10;

/// Returns the key for an API.
pub async fn read(endpoint: &ApiEndpoint) -> Result<String> {
    let (text, source) = match &endpoint.key {
        None => {
            return Err(Error::usage(format!("no API key for {}", endpoint.url)).with_hint(
                "set DEVCTL_API_KEY, or store the key in a file and run `devctl config set-context NAME --api-key-file FILE`",
            ));
        }
        Some(ApiKey::Text(key)) => (key.clone(), "DEVCTL_API_KEY".to_owned()),
        Some(ApiKey::File(path)) => (read_file(path)?, path.display().to_string()),
        Some(ApiKey::Command(command)) => (run(command).await?, format!("the output of `{command}`")),
    };
    let key = text.trim();
    if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::usage(format!("{source} is not an API key"))
            .with_hint("an API key is one word that starts with odc_; ask your administrator for one"));
    }
    Ok(key.to_owned())
}

fn read_file(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| {
        Error::usage(format!("could not read the API key from {}: {error}", path.display())).with_hint(
            "check the path and its permissions; change it with `devctl config set-context NAME --api-key-file FILE`",
        )
    };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    // As OpenSSH: a key that other users can read is not secret.
    if mode & 0o077 != 0 {
        return Err(Error::usage(format!("other users can access the API key in {}", path.display()))
            .with_hint(format!("run `chmod 600 {}`", path.display())));
    }
    std::fs::read_to_string(path).map_err(failed)
}

async fn run(command: &str) -> Result<String> {
    let failed = |cause: String| {
        Error::failed(format!("could not get the API key with `{command}`: {cause}")).with_hint(
            "run the command to see why; change it with `devctl config set-context NAME --api-key-command COMMAND`",
        )
    };
    let mut shell = Command::new("sh");
    // It may prompt on the terminal. What it writes to standard error is for the user.
    shell
        .arg("-c")
        .arg(command)
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, shell.output()).await;
    let output = output.map_err(|_| failed(format!("no result within {}s", COMMAND_TIMEOUT.as_secs())))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    String::from_utf8(output.stdout).map_err(|_| failed("its output is not text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn endpoint(key: Option<ApiKey>) -> ApiEndpoint {
        ApiEndpoint { url: "https://api".to_owned(), key, ca: None }
    }

    #[tokio::test]
    async fn key_comes_from_a_variable_a_private_file_or_a_command() {
        let read = async |key| read(&endpoint(Some(key))).await;
        assert_eq!(read(ApiKey::Text("odc_a".into())).await.unwrap(), "odc_a");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "odc_b\n").unwrap();
        assert_eq!(read(ApiKey::File(file.path().into())).await.unwrap(), "odc_b");
        assert_eq!(read(ApiKey::Command("echo odc_c".into())).await.unwrap(), "odc_c");
    }

    #[tokio::test]
    async fn unusable_key_is_rejected_with_its_source() {
        let error = async |key| read(&endpoint(key)).await.unwrap_err();
        assert!(error(None).await.hint.unwrap().contains("DEVCTL_API_KEY"));
        let text = error(Some(ApiKey::Text("two words".into()))).await;
        assert_eq!((text.kind, &text.message[..]), (Kind::Usage, "DEVCTL_API_KEY is not an API key"));
        let missing = error(Some(ApiKey::File("/nonexistent/key".into()))).await;
        assert!(missing.message.contains("/nonexistent/key"), "{missing}");
        let failed = error(Some(ApiKey::Command("exit 7".into()))).await;
        assert!(failed.message.contains("exit status: 7"), "{failed}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = error(Some(ApiKey::File(file.path().into()))).await;
        assert!(open.hint.unwrap().starts_with("run `chmod 600 "));
    }
}
