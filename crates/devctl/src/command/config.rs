//! `devctl config`: the settings of devctl.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::config_ssh::{self, ConfigSshArgs};
use crate::cli::Format;
use crate::client::{api, kube};
use crate::config::{ApiEntry, Backend, ContextEntry, File, KEYS, get, set, unset};
use crate::context::LocalContext;
use crate::error::{Error, Result};
use crate::output::{Column, Table};
use crate::resolve;

#[derive(Args, Debug)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Show the effective settings and their sources
    #[command(visible_alias = "show")]
    View,
    /// Change a setting
    Set {
        /// Name of the setting, such as create.flavor; see `devctl config view`
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::setting))]
        key: String,
        /// Value
        value: String,
    },
    /// Remove a setting
    Unset {
        /// Name of the setting
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::setting))]
        key: String,
    },
    /// List the contexts; `*` marks the current one
    #[command(visible_alias = "get-contexts")]
    Contexts,
    /// Set the current context
    #[command(alias = "environment")]
    Use {
        /// Name of the context
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::context))]
        context: String,
    },
    /// Create or change a context. --kubeconfig and --namespace set its kubeconfig and namespace
    #[command(alias = "set-cluster")]
    SetContext(SetContextArgs),
    /// Delete a context
    DeleteContext {
        /// Name of the context
        #[arg(add = clap_complete::ArgValueCompleter::new(crate::completion::context))]
        name: String,
    },
    /// Print the path of the config file
    Path,
    /// Enable or disable the OpenSSH configuration; see `devctl config-ssh`
    #[command(hide = true)]
    SshInclude { switch: Switch },
}

#[derive(Args, Debug)]
pub struct SetContextArgs {
    /// Name of the context
    name: String,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    kube_context: Option<String>,
    /// URL of the HTTP API, such as https://odc.example.org. The context then uses it instead of the Kubernetes API
    #[arg(long, value_name = "URL")]
    api_url: Option<String>,
    /// CA certificate of the HTTP API [default: the public CAs]
    #[arg(long, value_name = "FILE")]
    api_ca: Option<PathBuf>,
    /// File with the API key; no other user may access it
    #[arg(long, value_name = "FILE", conflicts_with = "api_key_command")]
    api_key_file: Option<PathBuf>,
    /// Shell command that prints the API key, such as that of a password manager
    #[arg(long, value_name = "COMMAND")]
    api_key_command: Option<String>,
    /// Old name of --kubeconfig
    #[arg(long, value_name = "PATH", hide = true)]
    from: Option<PathBuf>,
    /// Old name of --namespace
    #[arg(long = "in", value_name = "NAMESPACE", hide = true)]
    in_namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    Enable,
    Disable,
}

pub async fn run(ctx: LocalContext, args: ConfigArgs) -> Result<()> {
    match args.command {
        ConfigCommand::View => view(&ctx),
        ConfigCommand::Set { key, value } => update(&ctx, |file| set(file, &key, &value)),
        ConfigCommand::Unset { key } => update(&ctx, |file| unset(file, &key)),
        ConfigCommand::Contexts => contexts(&ctx),
        ConfigCommand::Use { context } => use_context(&ctx, &context),
        ConfigCommand::SetContext(args) => set_context(&ctx, args),
        ConfigCommand::DeleteContext { name } => update(&ctx, |file| {
            let mut file = file.clone();
            if file.contexts.remove(&name).is_none() {
                return Err(unknown_context(&name, file.contexts.keys().map(String::as_str)));
            }
            file.context = file.context.filter(|current| *current != name);
            Ok(file)
        }),
        ConfigCommand::Path => ctx.out.print(&format!("{}\n", ctx.settings.path.display())),
        ConfigCommand::SshInclude { switch } => {
            let args = ConfigSshArgs { remove: switch == Switch::Disable, ..ConfigSshArgs::default() };
            config_ssh::run(ctx, args).await
        }
    }
}

fn update(ctx: &LocalContext, update: impl FnOnce(&File) -> Result<File>) -> Result<()> {
    update(&ctx.settings.file)?.write(&ctx.settings.path)?;
    ctx.ui.info(format!("Updated {}", ctx.settings.path.display()));
    Ok(())
}

fn set_context(ctx: &LocalContext, args: SetContextArgs) -> Result<()> {
    let SetContextArgs { name, kube_context, api_url, api_ca, api_key_file, api_key_command, from, in_namespace } =
        args;
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    if let Some(url) = &api_url {
        api::check_url(url)?;
    }
    update(ctx, |file| {
        let mut file = file.clone();
        let mut entry = file.contexts.remove(&name).unwrap_or_default();
        if api_url.is_some() {
            entry.backend = Backend::Api;
        }
        // One source of the key replaces the other.
        if api_key_file.is_some() || api_key_command.is_some() {
            (entry.api.key_file, entry.api.key_command) = (None, None);
        }
        let entry = ContextEntry {
            backend: entry.backend,
            kubeconfig: ctx.global.kubeconfig.clone().or(from).map(absolute).or(entry.kubeconfig),
            kube_context: kube_context.or(entry.kube_context),
            namespace: ctx.global.namespace.clone().or(in_namespace).or(entry.namespace),
            api: ApiEntry {
                url: api_url.or(entry.api.url),
                ca: api_ca.map(absolute).or(entry.api.ca),
                key_file: api_key_file.map(absolute).or(entry.api.key_file),
                key_command: api_key_command.or(entry.api.key_command),
            },
        };
        if entry.api != ApiEntry::default() && entry.api.url.is_none() {
            return Err(Error::usage(format!("context {name} has no URL of the HTTP API"))
                .with_hint("give it with `--api-url https://odc.example.org`"));
        }
        file.contexts.insert(name, entry);
        Ok(file)
    })
}

fn unknown_context<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let hint = resolve::nearest(name, known).map_or_else(
        || "run `devctl config contexts` to see all contexts".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    Error::not_found(format!("context {name} not found")).with_hint(hint)
}

/// An effective setting and its source.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SettingJson {
    key: &'static str,
    value: Option<String>,
    source: Option<String>,
    description: &'static str,
}

fn view(ctx: &LocalContext) -> Result<()> {
    let project = ctx.settings.project.as_ref().map(|project| {
        let file =
            File { context: project.file.context.clone(), create: project.file.create.clone(), ..File::default() };
        (project.path.display().to_string(), file)
    });
    let rows: Vec<SettingJson> = KEYS
        .iter()
        .map(|key| {
            let variable = key.variable.and_then(|name| Some((std::env::var(name).ok()?, name.to_owned())));
            let in_project = || project.as_ref().and_then(|(path, file)| Some((get(file, key)?, path.clone())));
            let in_file = || Some((get(&ctx.settings.file, key)?, ctx.settings.path.display().to_string()));
            let setting = variable.or_else(in_project).or_else(in_file);
            let (value, source) = setting.map_or((None, None), |(value, source)| (Some(value), Some(source)));
            SettingJson { key: key.name, value, source, description: key.description }
        })
        .collect();
    ctx.out.show(&rows, || rows.iter().map(|row| row.key.to_owned()).collect(), || settings_table(&rows))
}

fn settings_table(rows: &[SettingJson]) -> Table {
    let mut table = Table::new([
        Column::new("SETTING"),
        Column::new("VALUE"),
        Column::new("SOURCE").drop_priority(2).truncate(),
        Column::new("DESCRIPTION").drop_priority(4).truncate(),
    ]);
    for row in rows {
        let value = row.value.clone().unwrap_or_else(|| "-".to_owned());
        let source = row.source.clone().unwrap_or_default();
        table.row([row.key.into(), value.into(), source.into(), row.description.into()]);
    }
    table
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContextJson {
    name: String,
    current: bool,
    /// Where it is defined: `devctl`, `kubeconfig` or `environment`.
    source: &'static str,
    backend: &'static str,
    namespace: Option<String>,
}

fn contexts(ctx: &LocalContext) -> Result<()> {
    let (kube_contexts, kube_current) = kube::contexts(ctx.global.kubeconfig.as_deref())?;
    let selection = ctx.context_selection();
    let variables = (selection.name.is_none() && selection.api.is_some()).then(|| ContextJson {
        name: api::VARIABLES.to_owned(),
        current: true,
        source: "environment",
        backend: Backend::Api.as_str(),
        namespace: selection.namespace.clone(),
    });
    let current = selection.name.or(kube_current.filter(|_| variables.is_none()));
    let file = &ctx.settings.file;
    let own = file.contexts.iter().map(|(name, entry)| ContextJson {
        name: name.clone(),
        current: false,
        source: "devctl",
        backend: entry.backend.as_str(),
        namespace: entry.namespace.clone(),
    });
    let others = kube_contexts.into_iter().filter(|name| !file.contexts.contains_key(name)).map(|name| ContextJson {
        name,
        current: false,
        source: "kubeconfig",
        backend: Backend::Kube.as_str(),
        namespace: None,
    });
    let rows = own.chain(others);
    let rows = rows.map(|context| ContextJson { current: current.as_ref() == Some(&context.name), ..context });
    let rows: Vec<ContextJson> = rows.chain(variables).collect();
    ctx.out.show(&rows, || rows.iter().map(|row| row.name.clone()).collect(), || contexts_table(&rows))?;
    if rows.is_empty() && ctx.out.format == Format::Table {
        ctx.ui.info(
            "No contexts found. Save a kubeconfig as ~/.kube/config, or run \
             `devctl config set-context NAME --kubeconfig FILE` or \
             `devctl config set-context NAME --api-url URL --api-key-file FILE`.",
        );
    }
    Ok(())
}

fn contexts_table(rows: &[ContextJson]) -> Table {
    let mut table = Table::new([
        Column::new("CURRENT"),
        Column::new("NAME"),
        Column::new("SOURCE"),
        Column::new("BACKEND"),
        Column::new("NAMESPACE").drop_priority(1),
    ]);
    for row in rows {
        let marker = if row.current { "*" } else { "" };
        let namespace = row.namespace.clone().unwrap_or_default();
        table.row([marker.into(), row.name.clone().into(), row.source.into(), row.backend.into(), namespace.into()]);
    }
    table
}

fn use_context(ctx: &LocalContext, context: &str) -> Result<()> {
    let own = &ctx.settings.file.contexts;
    let (others, _) = kube::contexts(ctx.global.kubeconfig.as_deref())?;
    if !own.contains_key(context) && !others.iter().any(|known| known == context) {
        return Err(unknown_context(context, own.keys().chain(&others).map(String::as_str)));
    }
    update(ctx, |file| Ok(File { context: Some(context.to_owned()), ..file.clone() }))
}
