//! `devctl config`: devctl's own settings.

use serde::Serialize;

use crate::app::Desk;
use crate::args::{Config, ConfigSsh, ConfigVerb, Format, Switch};
use crate::backend::kube;
use crate::config::{ContextEntry, File, KEYS, get, set, unset};
use crate::failure::{Failure, Result};
use crate::find;
use crate::output::{Column, Table};

pub async fn run(desk: Desk, args: Config) -> Result<()> {
    match args.verb {
        ConfigVerb::View => view(&desk),
        ConfigVerb::Set { key, value } => change(&desk, |file| set(file, &key, &value)),
        ConfigVerb::Unset { key } => change(&desk, |file| unset(file, &key)),
        ConfigVerb::Contexts => contexts(&desk),
        ConfigVerb::Use { context } => choose(&desk, &context),
        ConfigVerb::SetContext { name, file, kube_context, place } => {
            let file = file.map(|path| std::path::absolute(&path).unwrap_or(path));
            change(&desk, |settings| {
                let mut settings = settings.clone();
                let entry = settings.contexts.entry(name.clone()).or_default();
                *entry = ContextEntry {
                    backend: entry.backend,
                    kubeconfig: file.clone().or_else(|| entry.kubeconfig.take()),
                    kube_context: kube_context.clone().or_else(|| entry.kube_context.take()),
                    namespace: place.clone().or_else(|| entry.namespace.take()),
                };
                Ok(settings)
            })
        }
        ConfigVerb::DeleteContext { name } => change(&desk, |settings| {
            let mut settings = settings.clone();
            if settings.contexts.remove(&name).is_none() {
                return Err(unknown(&name, settings.contexts.keys().map(String::as_str)));
            }
            settings.context = settings.context.filter(|used| *used != name);
            Ok(settings)
        }),
        ConfigVerb::Path => desk.out.print(&format!("{}\n", desk.settings.path.display())),
        ConfigVerb::SshInclude { switch } => {
            let args = ConfigSsh { remove: switch == Switch::Disable, ..ConfigSsh::default() };
            super::config_ssh::run(desk, args).await
        }
    }
}

fn change(desk: &Desk, change: impl FnOnce(&File) -> Result<File>) -> Result<()> {
    let changed = change(&desk.settings.file)?;
    changed.write(&desk.settings.path)?;
    desk.talk.say(format!("Written to {}.", desk.settings.path.display()));
    Ok(())
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let advice = find::nearest(name, known)
        .map_or_else(|| "devctl config contexts lists them.".to_owned(), |near| format!("Did you mean {near}?"));
    Failure::not_found(format!("there is no context {name}")).advise(advice)
}

/// A setting in force and where it comes from.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InForce {
    key: &'static str,
    value: Option<String>,
    from: Option<String>,
    about: &'static str,
}

fn view(desk: &Desk) -> Result<()> {
    let project = desk.settings.project.as_ref().map(|project| {
        let file =
            File { context: project.file.context.clone(), create: project.file.create.clone(), ..File::default() };
        (project.path.display().to_string(), file)
    });
    let rows: Vec<InForce> = KEYS
        .iter()
        .map(|key| {
            let variable = key.variable.and_then(|name| Some((std::env::var(name).ok()?, name.to_owned())));
            let of_project = || project.as_ref().and_then(|(path, file)| Some((get(file, key)?, path.clone())));
            let own = || Some((get(&desk.settings.file, key)?, desk.settings.path.display().to_string()));
            let found = variable.or_else(of_project).or_else(own);
            let (value, from) = found.map_or((None, None), |(value, from)| (Some(value), Some(from)));
            InForce { key: key.name, value, from, about: key.about }
        })
        .collect();
    desk.out.show(
        &rows,
        || rows.iter().map(|row| row.key.to_owned()).collect(),
        || {
            let mut table = Table::new([
                Column::new("SETTING"),
                Column::new("VALUE"),
                Column::new("FROM").spare(2).elastic(),
                Column::new("ABOUT").spare(4).elastic(),
            ]);
            for row in &rows {
                let value = row.value.clone().unwrap_or_else(|| "-".to_owned());
                table.row([
                    row.key.into(),
                    value.into(),
                    row.from.clone().unwrap_or_default().into(),
                    row.about.into(),
                ]);
            }
            table
        },
    )
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    name: String,
    current: bool,
    /// Where it is written: devctl's settings, or the kubeconfig.
    from: &'static str,
    backend: &'static str,
    namespace: Option<String>,
}

fn contexts(desk: &Desk) -> Result<()> {
    let (others, current) = kube::contexts(desk.global.kubeconfig.as_deref())?;
    let target = desk.target();
    let in_use = target.name.clone().or(current);
    let own = desk.settings.file.contexts.iter().map(|(name, entry)| Context {
        name: name.clone(),
        current: false,
        from: "devctl",
        backend: "kube",
        namespace: entry.namespace.clone(),
    });
    let known = |name: &String| desk.settings.file.contexts.contains_key(name);
    let others = others.into_iter().filter(|name| !known(name)).map(|name| Context {
        name,
        current: false,
        from: "kubeconfig",
        backend: "kube",
        namespace: None,
    });
    let all = own.chain(others).map(|context| Context { current: in_use.as_ref() == Some(&context.name), ..context });
    let all: Vec<Context> = all.collect();
    desk.out.show(
        &all,
        || all.iter().map(|context| context.name.clone()).collect(),
        || {
            let mut table = Table::new([
                Column::new(""),
                Column::new("CONTEXT"),
                Column::new("FROM"),
                Column::new("BACK END"),
                Column::new("NAMESPACE").spare(1),
            ]);
            for context in &all {
                let mark = if context.current { "*" } else { "" };
                let namespace = context.namespace.clone().unwrap_or_default();
                table.row([
                    mark.into(),
                    context.name.clone().into(),
                    context.from.into(),
                    context.backend.into(),
                    namespace.into(),
                ]);
            }
            table
        },
    )?;
    if all.is_empty() && desk.out.format == Format::Table {
        desk.talk
            .say("There are none. Put a kubeconfig at ~/.kube/config, or: devctl config set-context NAME --from FILE.");
    }
    Ok(())
}

fn choose(desk: &Desk, context: &str) -> Result<()> {
    let own = desk.settings.file.contexts.contains_key(context);
    let (others, _) = kube::contexts(desk.global.kubeconfig.as_deref())?;
    if !own && !others.iter().any(|known| known == context) {
        let known = desk.settings.file.contexts.keys().chain(&others).map(String::as_str);
        return Err(unknown(context, known));
    }
    change(desk, |file| Ok(File { context: Some(context.to_owned()), ..file.clone() }))
}
