//! `docs/devctl.md`.

use clap::{Arg, ArgAction, Command};

use crate::args::{command, examples_of};
use crate::config::KEYS;

const TOP: &str = include_str!("top.md");

pub(super) fn page() -> String {
    let mut all = command();
    all.build();
    let mut text = TOP.replace("{{settings}}", &settings());
    text.push_str("\n## Options of every command\n\n");
    text.push_str(&options(all.get_arguments().filter(|argument| argument.is_global_set())));
    text.push_str("\n## Commands\n\n| command | |\n|---|---|\n");
    for below in visible(&all) {
        text.push_str(&format!("| [`devctl {0}`](#devctl-{0}) | {1} |\n", below.get_name(), about(below)));
    }
    for below in visible(&all) {
        section(&mut text, below, "devctl");
    }
    text
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn section(text: &mut String, command: &Command, path: &str) {
    let path = format!("{path} {}", command.get_name());
    text.push_str(&format!("\n### {path}\n\n{}.\n", about(command)));
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("Also called {}.\n", aliases.join(", ")));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    text.push_str(&format!("\n```\n{usage}\n```\n"));
    if let Some(examples) = examples_of(path.trim_start_matches("devctl").trim()) {
        text.push_str(&format!("\n```\n{examples}\n```\n"));
    }
    let own = command.get_arguments().filter(|argument| !argument.is_global_set() && !argument.is_hide_set());
    let own: Vec<&Arg> = own.filter(|argument| argument.get_id() != "help").collect();
    if !own.is_empty() {
        text.push('\n');
        text.push_str(&options(own.into_iter()));
    }
    for below in visible(command) {
        section(text, below, &path);
    }
}

fn options<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let row = |argument: &Arg| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let mut about = vec![help];
        let values: Vec<String> =
            argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        if takes_value(argument) && !values.is_empty() {
            about.push(format!("One of {}.", values.join(", ")));
        }
        let defaults: Vec<String> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        if takes_value(argument) && !defaults.is_empty() {
            about.push(format!("[default: {}]", defaults.join(" ")));
        }
        if let Some(variable) = argument.get_env() {
            about.push(format!("Also `{}`.", variable.to_string_lossy()));
        }
        let about = about.join(" ").replace('|', "\\|").replace('<', "&lt;");
        format!("| `{}` | {about} |\n", name(argument).replace('|', "\\|"))
    };
    format!(
        "| option | |\n|---|---|\n{}",
        arguments.filter(|argument| !argument.is_hide_set()).map(row).collect::<String>()
    )
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn name(argument: &Arg) -> String {
    let values =
        argument.get_value_names().map(|names| names.iter().map(|name| format!("<{name}>")).collect::<String>());
    let value = values.filter(|_| takes_value(argument)).unwrap_or_default();
    if argument.is_positional() {
        return value;
    }
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let aliases = argument.get_visible_aliases().unwrap_or_default().into_iter().map(|alias| format!("--{alias}"));
    let all: Vec<String> = short.into_iter().chain(long).chain(aliases).collect();
    format!("{} {value}", all.join(", ")).trim().to_owned()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn settings() -> String {
    let row = |key: &crate::config::Key| {
        let variable = key.variable.map(|name| format!("`{name}`")).unwrap_or_default();
        format!("| `{}` | {} | {variable} |\n", key.name, key.about)
    };
    format!("| setting | | variable |\n|---|---|---|\n{}", KEYS.iter().map(row).collect::<String>())
}
