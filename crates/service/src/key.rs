//! `odc key`: creates API keys with access to the database, for the first administrator and for installers. Users create
//! their keys through the API.

use clap::{Args, Subcommand};
use jiff::{Span, Timestamp};
use odc_api::duration::Duration;
use odc_api::name::UserName;
use odc_core::access::Scope;
use odc_store::Store;
use odc_store::audit::{Actor, ActorKind, Entry, Origin, Outcome};
use odc_store::key::{Created, NewKey};
use serde_json::json;

use crate::api::{MAX_KEYS, generate_key, hash_key};
use crate::database::DatabaseOptions;

/// Options of `odc key`.
#[derive(Clone, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Subcommand)]
enum Command {
    /// Create an API key of a user and print it; it cannot be shown again
    Create(Create),
}

#[derive(Clone, Args)]
struct Create {
    #[command(flatten)]
    database: DatabaseOptions,
    /// User whose permissions the key has
    #[arg(long)]
    user: UserName,
    /// Scope of the key; repeatable [default: all]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = parse_scope)]
    scopes: Vec<Scope>,
    /// How long the key is valid, at most 2160h (90 days)
    #[arg(long, default_value = "2160h", value_name = "DURATION")]
    valid_for: Duration,
    /// What the key is for
    #[arg(long, default_value = "")]
    description: String,
}

fn parse_scope(name: &str) -> Result<Scope, String> {
    let known = || format!("must be one of {}", Scope::ALL.map(Scope::as_str).join(", "));
    Scope::from_name(name).ok_or_else(known)
}

/// Runs the command. Returns the text to print.
pub async fn run(options: Options) -> anyhow::Result<String> {
    let Command::Create(create) = options.command;
    let store = Store::new(&create.database.settings("odc-key")?);
    let key = generate_key();
    let scopes = if create.scopes.is_empty() { Scope::ALL.to_vec() } else { create.scopes };
    let scopes: Vec<String> = scopes.into_iter().map(|scope| scope.as_str().to_owned()).collect();
    let seconds = i64::try_from(create.valid_for.as_std().as_secs()).unwrap_or(i64::MAX);
    let expires_at = Timestamp::now().checked_add(Span::new().try_seconds(seconds)?)?;
    let user = create.user.as_str();
    let new = NewKey {
        id: key.id(),
        user,
        hash: hash_key(&key),
        description: &create.description,
        scopes: &scopes,
        expires_at,
    };
    let actor = Actor { name: "odc key create".to_owned(), kind: ActorKind::System, key_id: None };
    let entry = Entry {
        actor: &actor,
        origin: &Origin::default(),
        user: Some(user),
        action: "key.create",
        object_kind: "ApiKey",
        object_name: key.id(),
        result: Outcome::Succeeded,
        request_id: None,
        details: json!({"scopes": scopes}),
    };
    match store.create_key(&new, MAX_KEYS, &entry).await {
        Ok(Created::Created) => Ok(format!("{}\n", key.as_str())),
        Ok(Created::TooMany) => {
            anyhow::bail!(
                "user {user} has {MAX_KEYS} valid keys\nhint: revoke one first, with `DELETE /api/v1/keys/ID`"
            )
        }
        Err(error) if error.violates("api_keys_check") => anyhow::bail!("a key is valid for at most 2160h (90 days)"),
        Err(error) => Err(error.into()),
    }
}
