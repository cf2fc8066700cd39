//! `devctl edit`: changes the access, ports, idle action, priority and lifetime of a server.

mod prompt;

use std::path::{Path, PathBuf};

use clap::Args;
use odc_api::duration::Duration;
use odc_api::name::{PortName, UserName};
use odc_api::v1alpha1::{Access, DevServer, Idle, IdleAction, Priority};
use serde_json::{Map, Value, json};

use super::extend::{LifetimeChange, change_lifetime};
use crate::cli::shared::{DryRunArgs, ServerArg};
use crate::cli::value::PortArg;
use crate::client::retry_on_conflict;
use crate::context::ClusterContext;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::output::duration::format_duration;
use crate::output::json::print_server;
use crate::request::args::{IdleActionArg, PriorityArg};
use crate::request::{self, GUEST_ACCESS_NOTICE, read_public_key};
use crate::resolve;

#[derive(Args, Debug)]
pub struct EditArgs {
    #[command(flatten)]
    pub server: ServerArg,
    /// Extend the lifetime, such as 2h; see `devctl extend`
    #[arg(long, value_name = "DURATION", help_heading = "Lifetime")]
    pub extend: Option<Duration>,
    /// Set the total lifetime; may be shorter than the current one
    #[arg(long, alias = "time", value_name = "DURATION", conflicts_with = "extend", help_heading = "Lifetime")]
    pub lifetime: Option<Duration>,
    /// Idle time after which the idle action runs
    #[arg(long, value_name = "DURATION", help_heading = "Lifetime")]
    pub idle: Option<Duration>,
    /// Idle action
    #[arg(long, value_name = "ACTION", help_heading = "Lifetime")]
    pub idle_action: Option<IdleActionArg>,
    /// Start JupyterLab
    #[arg(long, conflicts_with = "disable_jupyter", help_heading = "Access")]
    pub enable_jupyter: bool,
    /// Stop JupyterLab
    #[arg(long, help_heading = "Access")]
    pub disable_jupyter: bool,
    /// User to grant access; may be repeated
    #[arg(long = "add-user", value_name = "NAME", help_heading = "Access")]
    pub add_users: Vec<UserName>,
    /// User whose access is revoked; may be repeated
    #[arg(long = "remove-user", value_name = "NAME", help_heading = "Access")]
    pub remove_users: Vec<UserName>,
    /// Public key to add; may be repeated
    #[arg(long = "add-key", value_name = "FILE", help_heading = "Access")]
    pub add_keys: Vec<PathBuf>,
    /// Public key to remove, by file or comment; may be repeated
    #[arg(long = "remove-key", value_name = "FILE|COMMENT", help_heading = "Access")]
    pub remove_keys: Vec<String>,
    /// Port of a web application (reserved; not exposed yet): NAME=PORT, NAME=PORT:team or NAME=PORT:public; may be
    /// repeated
    #[arg(long = "add-port", value_name = "NAME=PORT", help_heading = "Access")]
    pub add_ports: Vec<PortArg>,
    /// Port to remove, by name; may be repeated
    #[arg(long = "remove-port", value_name = "NAME", help_heading = "Access")]
    pub remove_ports: Vec<PortName>,
    /// Priority in the queue
    #[arg(long, value_name = "PRIORITY", help_heading = "Scheduling")]
    pub priority: Option<PriorityArg>,
    #[command(flatten)]
    pub dry_run: DryRunArgs,
}

impl EditArgs {
    /// Reports whether any change is requested.
    fn has_changes(&self) -> bool {
        let Self {
            server: _,
            enable_jupyter,
            disable_jupyter,
            add_users,
            remove_users,
            add_keys,
            remove_keys,
            extend,
            lifetime,
            add_ports,
            remove_ports,
            idle,
            idle_action,
            priority,
            dry_run: _,
        } = self;
        let lists = [
            add_users.len(),
            remove_users.len(),
            add_keys.len(),
            remove_keys.len(),
            add_ports.len(),
            remove_ports.len(),
        ];
        *enable_jupyter
            || *disable_jupyter
            || extend.is_some()
            || lifetime.is_some()
            || idle.is_some()
            || idle_action.is_some()
            || priority.is_some()
            || lists.iter().any(|length| *length > 0)
    }
}

pub async fn run(ctx: &ClusterContext, mut args: EditArgs) -> Result<()> {
    let server = resolve::resolve(ctx, args.server.name.as_deref()).await?;
    if let Some(error) = resolve::not_connectable(&server) {
        return Err(error);
    }
    if !args.has_changes() {
        if !ctx.ui.is_interactive() {
            return Err(Error::usage("no changes given")
                .with_hint("pass a flag such as `--extend 2h` or `--add-user NAME`; see `devctl edit --help`"));
        }
        prompt::prompt(&server, &mut args)?;
    }
    let dry_run = args.dry_run.dry_run;
    let mut after = apply(ctx, server.name(), &args).await?;
    let extension = args.extend.map(LifetimeChange::ExtendBy);
    if let Some(change) = extension.or(args.lifetime.map(LifetimeChange::Set)) {
        after = Some(change_lifetime(ctx, after.as_ref().unwrap_or(&server), change, dry_run).await?);
    }
    print_server(&ctx.out, &after.unwrap_or(server))
}

/// Changes all but the lifetime, and prints the changes. Returns the server if it was written.
async fn apply(ctx: &ClusterContext, name: &str, args: &EditArgs) -> Result<Option<ServerSummary>> {
    let dry_run = args.dry_run.dry_run;
    let read = async || -> Result<(Option<String>, Changes)> {
        let server = ctx.client.get(name).await?.ok_or_else(|| {
            Error::not_found(format!("server {name} was deleted")).with_hint("run `devctl list` to see your servers")
        })?;
        let changes = changes(&server, args)?;
        Ok((server.metadata.resource_version, changes))
    };
    let write = async |(version, changes): &(Option<String>, Changes)| -> Result<Option<ServerSummary>> {
        if changes.patch.is_empty() {
            return Ok(None);
        }
        let patch = json!({"spec": changes.patch});
        ctx.client.patch(name, patch, version.as_deref(), dry_run).await.map(Some)
    };
    let ((_, changes), after) = retry_on_conflict(read, write).await?;
    ctx.ui.trace_step("changing the server");
    let messages = match &after {
        None => Vec::new(),
        Some(_) if dry_run => vec![format!("Server {name} would be updated (dry run)")],
        Some(_) => changes.changed,
    };
    for message in messages.iter().chain(&changes.unchanged) {
        ctx.ui.info(message);
    }
    if changes.grants_access {
        ctx.ui.note(GUEST_ACCESS_NOTICE);
    }
    Ok(after)
}

/// A patch of the spec and the messages about it.
#[derive(Debug, Default)]
struct Changes {
    patch: Map<String, Value>,
    /// One message for each change.
    changed: Vec<String>,
    /// One message for each value that is already set.
    unchanged: Vec<String>,
    /// Whether another user is granted access.
    grants_access: bool,
}

impl Changes {
    fn record(&mut self, is_changed: bool, changed: String, unchanged: String) {
        if is_changed {
            self.changed.push(changed);
        } else {
            self.unchanged.push(unchanged);
        }
    }
}

fn changes(server: &DevServer, args: &EditArgs) -> Result<Changes> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let mut changes = Changes::default();
    let access = edit_access(server, args, &mut changes)?;
    if access != server.spec.access {
        // A merge patch replaces lists, so empty lists must be included.
        let value =
            json!({"keys": access.keys, "users": access.users, "jupyter": access.jupyter, "ports": access.ports});
        changes.patch.insert("access".into(), value);
    }
    if args.idle.is_some() || args.idle_action.is_some() {
        let mut idle = server.spec.idle.clone();
        idle.timeout = args.idle.unwrap_or(idle.timeout);
        idle.action = args.idle_action.map_or(idle.action, request::idle_action);
        let is_changed = idle != server.spec.idle;
        let text = format_idle(&idle);
        changes.record(
            is_changed,
            format!("Set the idle action of server {name} to {text}"),
            format!("The idle action of server {name} is already {text}"),
        );
        if is_changed {
            changes.patch.insert("idle".into(), json!(idle));
        }
    }
    if let Some(priority) = args.priority.map(request::priority) {
        let is_changed = server.spec.scheduling.priority != Some(priority);
        let text = format_priority(priority);
        changes.record(
            is_changed,
            format!("Set the priority of server {name} to {text}"),
            format!("The priority of server {name} is already {text}"),
        );
        if is_changed {
            changes.patch.insert("scheduling".into(), json!({"priority": priority}));
        }
    }
    Ok(changes)
}

/// Formats an idle action with the words of `--idle-action`.
fn format_idle(idle: &Idle) -> String {
    let action = match idle.action {
        IdleAction::None => return "none".to_owned(),
        IdleAction::Hibernate => "hibernate",
        IdleAction::End => "delete",
    };
    format!("{action} after {}", format_duration(idle.timeout))
}

/// Formats a priority with the words of `--priority`.
const fn format_priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
    }
}

fn edit_access(server: &DevServer, args: &EditArgs, changes: &mut Changes) -> Result<Access> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let mut access = server.spec.access.clone();
    if args.enable_jupyter || args.disable_jupyter {
        let (capitalized, participle) =
            if args.enable_jupyter { ("Enabled", "enabled") } else { ("Disabled", "disabled") };
        changes.record(
            access.jupyter != args.enable_jupyter,
            format!("{capitalized} JupyterLab on server {name}"),
            format!("JupyterLab is already {participle} on server {name}"),
        );
        access.jupyter = args.enable_jupyter;
    }
    for user in &args.add_users {
        let is_added = add(&mut access.users, user.clone());
        changes.grants_access |= is_added;
        changes.record(
            is_added,
            format!("Granted {user} access to server {name}"),
            format!("User {user} already has access to server {name}"),
        );
    }
    for user in &args.remove_users {
        let missing = || format!("user {user} has no access to server {name}");
        remove(&mut access.users, |known| known == user, name, missing)?;
        changes.changed.push(format!("Revoked {user}'s access to server {name}"));
    }
    for path in &args.add_keys {
        let key = read_public_key(path)?;
        let comment = key.comment().unwrap_or("(no comment)").to_owned();
        changes.record(
            add(&mut access.keys, key),
            format!("Added key {comment} to server {name}"),
            format!("Server {name} already has key {comment}"),
        );
    }
    for typed in &args.remove_keys {
        let file = read_public_key(Path::new(typed)).ok();
        let matches = |key: &_| file.as_ref() == Some(key) || key.comment() == Some(typed.as_str());
        remove(&mut access.keys, matches, name, || format!("server {name} has no key {typed}"))?;
        changes.changed.push(format!("Removed key {typed} from server {name}"));
    }
    for port in &args.add_ports {
        let (label, number) = (&port.name, port.port);
        let port = request::port(port);
        changes.record(
            !access.ports.contains(&port),
            format!("Added port {label} ({number}) to server {name}"),
            format!("Server {name} already has port {label} ({number})"),
        );
        access.ports.retain(|known| known.name != port.name);
        access.ports.push(port);
    }
    for port in &args.remove_ports {
        remove(&mut access.ports, |known| known.name == *port, name, || format!("server {name} has no port {port}"))?;
        changes.changed.push(format!("Removed port {port} from server {name}"));
    }
    Ok(access)
}

/// Adds an item unless the list has it. Reports whether it was added.
fn add<T: PartialEq>(list: &mut Vec<T>, item: T) -> bool {
    let is_new = !list.contains(&item);
    if is_new {
        list.push(item);
    }
    is_new
}

fn remove<T>(
    list: &mut Vec<T>,
    matches: impl Fn(&T) -> bool,
    name: &str,
    missing: impl FnOnce() -> String,
) -> Result<()> {
    let before = list.len();
    list.retain(|item| !matches(item));
    if list.len() == before {
        return Err(Error::not_found(missing())
            .with_hint(format!("run `devctl show {name} -o json` to see the current access")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::error::Kind;

    fn parse(flags: &str) -> EditArgs {
        let words = ["devctl", "edit", "box"].into_iter().chain(flags.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::Edit(edit) => *edit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unchanged_values_are_not_patched() {
        let mut server = DevServer::test();
        server.spec.access.users = vec!["bob".parse().unwrap()];
        let changes = changes(&server, &parse("--add-user bob")).unwrap();
        assert_eq!(changes.unchanged, ["User bob already has access to server server-1"]);
        assert!(changes.patch.is_empty() && changes.changed.is_empty() && !changes.grants_access, "{changes:?}");
    }

    #[test]
    fn each_change_names_the_server_and_the_words_of_the_flag() {
        let server = DevServer::test();
        let flags = "--add-user bob --add-port app=8000 --idle-action delete --idle 45m --priority high";
        let changes = changes(&server, &parse(flags)).unwrap();
        assert_eq!(
            changes.changed,
            [
                "Granted bob access to server server-1",
                "Added port app (8000) to server server-1",
                "Set the idle action of server server-1 to delete after 45m",
                "Set the priority of server server-1 to high",
            ]
        );
        assert!(changes.grants_access);
    }

    #[test]
    fn emptied_list_is_patched() {
        let mut server = DevServer::test();
        server.spec.access.users = vec!["bob".parse().unwrap()];
        let patch = changes(&server, &parse("--remove-user bob")).unwrap().patch;
        assert_eq!(patch["access"]["users"], json!([]));
    }

    #[test]
    fn port_is_replaced_by_name() {
        let server = DevServer::test();
        let first = changes(&server, &parse("--add-port app=8000")).unwrap().patch;
        let mut changed = server.clone();
        changed.spec.access = serde_json::from_value(first["access"].clone()).unwrap();
        let second = changes(&changed, &parse("--add-port app=9000:public")).unwrap().patch;
        assert_eq!(second["access"]["ports"], json!([{"name": "app", "port": 9000, "share": "Public"}]));
    }

    #[test]
    fn removal_of_a_missing_entry_fails() {
        let error = changes(&DevServer::test(), &parse("--remove-user bob")).unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
        assert_eq!(changes(&DevServer::test(), &parse("--remove-port app")).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn name_alone_has_no_changes() {
        assert!(!parse("").has_changes() && !parse("--dry-run").has_changes());
        for flags in
            ["--enable-jupyter", "--idle 1h", "--priority low", "--extend 2h", "--remove-key x", "--add-port a=1"]
        {
            assert!(parse(flags).has_changes(), "{flags}");
        }
    }
}
