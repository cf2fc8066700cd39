//! `devctl config`: the settings of devctl.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::config_ssh::{self, ConfigSshArgs};
use crate::cli::Format;
use crate::client::kube;
use crate::config::{ContextEntry, File, KEYS, get, set, unset};
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
    SetContext {
        /// Name of the context
        name: String,
        /// Context of the kubeconfig [default: its current context]
        #[arg(long, value_name = "NAME")]
        kube_context: Option<String>,
        /// Old name of --kubeconfig
        #[arg(long, value_name = "PATH", hide = true)]
        from: Option<PathBuf>,
        /// Old name of --namespace
        #[arg(long = "in", value_name = "NAMESPACE", hide = true)]
        in_namespace: Option<String>,
    },
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
        ConfigCommand::SetContext { name, kube_context, from, in_namespace } => {
            let kubeconfig = ctx.global.kubeconfig.clone().or(from);
            let kubeconfig = kubeconfig.map(|path| std::path::absolute(&path).unwrap_or(path));
            let namespace = ctx.global.namespace.clone().or(in_namespace);
            update(&ctx, |file| {
                let mut file = file.clone();
                let entry = file.contexts.entry(name.clone()).or_default();
                *entry = ContextEntry {
                    backend: entry.backend,
                    kubeconfig: kubeconfig.clone().or_else(|| entry.kubeconfig.take()),
                    kube_context: kube_context.clone().or_else(|| entry.kube_context.take()),
                    namespace: namespace.clone().or_else(|| entry.namespace.take()),
                };
                Ok(file)
            })
        }
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
    /// Where it is defined: `devctl` or `kubeconfig`.
    source: &'static str,
    backend: &'static str,
    namespace: Option<String>,
}

fn contexts(ctx: &LocalContext) -> Result<()> {
    let (kube_contexts, kube_current) = kube::contexts(ctx.global.kubeconfig.as_deref())?;
    let current = ctx.context_selection().name.or(kube_current);
    let file = &ctx.settings.file;
    let own = file.contexts.iter().map(|(name, entry)| ContextJson {
        name: name.clone(),
        current: false,
        source: "devctl",
        backend: "kube",
        namespace: entry.namespace.clone(),
    });
    let others = kube_contexts.into_iter().filter(|name| !file.contexts.contains_key(name)).map(|name| ContextJson {
        name,
        current: false,
        source: "kubeconfig",
        backend: "kube",
        namespace: None,
    });
    let rows: Vec<ContextJson> = own
        .chain(others)
        .map(|context| ContextJson { current: current.as_ref() == Some(&context.name), ..context })
        .collect();
    ctx.out.show(&rows, || rows.iter().map(|row| row.name.clone()).collect(), || contexts_table(&rows))?;
    if rows.is_empty() && ctx.out.format == Format::Table {
        ctx.ui.info(
            "No contexts found. Save a kubeconfig as ~/.kube/config, or run \
             `devctl config set-context NAME --kubeconfig FILE`.",
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
