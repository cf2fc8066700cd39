//! Connections to servers with the user's own OpenSSH: devctl supplies the transport, the keys and the host key, so that
//! all features and tools of OpenSSH work.

pub mod config_file;
pub mod connect;
mod disconnect;
pub mod host;
pub mod identity;
pub mod known_hosts;
pub mod openssh;
pub mod options;
pub mod paths;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod remote;
pub mod tunnel;

use odc_api::ssh_key::PublicKey;

use crate::context::ClusterContext;
use crate::error::{Error, Result, format_chain};
use crate::model::server::ServerSummary;
use crate::ui::Confirm;
use identity::Identity;
use paths::SshPaths;

/// Returns the public keys for a new server: the user's own, or one that is created after a prompt.
pub async fn user_keys(ctx: &ClusterContext) -> Result<Vec<PublicKey>> {
    let paths = ssh_paths()?;
    let configured = options::identity_file(&ctx.settings, None);
    let found = identity::find(&paths, configured.as_deref()).await.map_err(|error| key_error(&error))?;
    if !found.is_empty() {
        return Ok(public_keys(&found));
    }
    let question = format!("No ed25519 SSH key found. Create {}?", paths.key().display());
    let confirm = Confirm {
        question: &question,
        action: "create an SSH key",
        hint: "pass `--yes` to create one, or `--ssh-public-key-file FILE` to use another key",
        default: true,
    };
    if !ctx.ui.confirm(&confirm)? {
        return Err(Error::usage("an SSH key is required to connect to the server")
            .with_hint("pass one with `--ssh-public-key-file`, or create one with `ssh-keygen -t ed25519`"));
    }
    let created = identity::create(&paths, &key_comment(ctx)).await.map_err(|error| key_error(&error))?;
    ctx.ui.info(format!("Created SSH key {}", paths.key().display()));
    let change = config_file::with_key(&paths, &paths.key())
        .and_then(|change| if change.is_needed() { config_file::apply(&change) } else { Ok(()) });
    change.map_err(|error| Error::failed(format_chain(&error)))?;
    Ok(vec![created.public])
}

/// Makes this the only host key that OpenSSH accepts for a host name.
pub fn pin_host_key(alias: &str, host_key: &str) -> Result<()> {
    known_hosts::pin(&ssh_paths()?.known_hosts(), alias, host_key).map_err(|error| Error::failed(format_chain(&error)))
}

/// Removes the host key of a host that no longer exists.
pub fn remove_host_key(alias: &str) -> Result<()> {
    let removed = known_hosts::remove(&ssh_paths()?.known_hosts(), &[alias.to_owned()]);
    removed.map_err(|error| Error::failed(format_chain(&error)))
}

/// Removes the host keys of a deleted server; the next server of this name has others.
pub fn remove_host_keys(server: &ServerSummary) -> std::result::Result<(), known_hosts::Error> {
    let Ok(paths) = ssh_paths() else { return Ok(()) };
    let hosts: Vec<String> = (0..server.nodes()).map(|node| host::Host::new(server.name(), node).alias()).collect();
    known_hosts::remove(&paths.known_hosts(), &hosts)
}

/// Returns the paths in the user's home directory.
pub fn ssh_paths() -> Result<SshPaths> {
    let home = etcetera::home_dir()
        .map_err(|_| Error::failed("could not determine the home directory").with_hint("set HOME"))?;
    Ok(SshPaths::new(&home))
}

/// Prefers keys in files. Agents hold keys for many purposes, so theirs are used only without a file.
fn public_keys(found: &[Identity]) -> Vec<PublicKey> {
    let keys = |in_file: bool| {
        let matching = found.iter().filter(move |identity| identity.file().is_some() == in_file);
        matching.map(|identity| identity.public.clone()).collect::<Vec<_>>()
    };
    let in_files = keys(true);
    if in_files.is_empty() { keys(false) } else { in_files }
}

/// Returns `user@machine`.
fn key_comment(ctx: &ClusterContext) -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let printable = |text: &str| text.chars().filter(char::is_ascii_graphic).take(60).collect::<String>();
    format!("{}@{}", printable(ctx.login_name()), printable(&machine))
}

fn key_error(error: &identity::Error) -> Error {
    Error::failed(format_chain(error)).with_hint("choose another key with `devctl config set ssh.identityFile PATH`")
}
