//! Renders `docs/reference/cli.md`.

use clap::{Arg, ArgAction, Command};

use crate::cli::{command, examples};
use crate::config::KEYS;

const INTRO: &str = include_str!("intro.md");

pub(super) fn render() -> String {
    let mut root = command();
    root.build();
    let mut text = INTRO.replace("{{settings}}", &settings());
    text.push_str("## Global options\n\n");
    text.push_str(&options(root.get_arguments().filter(|argument| argument.is_global_set())));
    text.push_str("\n## Commands\n\n| command | description |\n|---|---|\n");
    for subcommand in visible_subcommands(&root) {
        text.push_str(&format!("| [`devctl {0}`](#devctl-{0}) | {1} |\n", subcommand.get_name(), about(subcommand)));
    }
    for subcommand in visible_subcommands(&root) {
        section(&mut text, subcommand, "devctl");
    }
    text
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help")
}

fn section(text: &mut String, command: &Command, path: &str) {
    let path = format!("{path} {}", command.get_name());
    text.push_str(&format!("\n### {path}\n\n{}\n", end_sentence(about(command))));
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("Alias: {}.\n", aliases.join(", ")));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    text.push_str(&format!("\n```text\n{usage}\n```\n"));
    if let Some(examples) = examples(path.trim_start_matches("devctl").trim()) {
        text.push_str(&format!("\n```sh\n{examples}\n```\n"));
    }
    let own = command.get_arguments().filter(|argument| !argument.is_global_set() && !argument.is_hide_set());
    let own: Vec<&Arg> = own.filter(|argument| argument.get_id() != "help").collect();
    if !own.is_empty() {
        text.push('\n');
        text.push_str(&options(own.into_iter()));
    }
    for subcommand in visible_subcommands(command) {
        section(text, subcommand, &path);
    }
}

/// Renders a table for each help heading.
fn options<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut groups: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    for argument in arguments.filter(|argument| !argument.is_hide_set()) {
        let heading = argument.get_help_heading();
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, group)) => group.push(argument),
            None => groups.push((heading, vec![argument])),
        }
    }
    let table = |(heading, group): &(Option<&str>, Vec<&Arg>)| {
        let rows: String = group.iter().map(|argument| option_row(argument)).collect();
        format!("| {} | description |\n|---|---|\n{rows}", heading.unwrap_or("Option"))
    };
    groups.iter().map(table).collect::<Vec<_>>().join("\n")
}

fn option_row(argument: &Arg) -> String {
    let mut sentences = vec![argument.get_help().map(ToString::to_string).unwrap_or_default()];
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes_value(argument) && !values.is_empty() {
        sentences.push(format!("One of {}", values.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes_value(argument) && !defaults.is_empty() {
        sentences.push(format!("Default: `{}`", defaults.join(" ")));
    }
    if let Some(variable) = argument.get_env() {
        sentences.push(format!("Also `{}`", variable.to_string_lossy()));
    }
    let text = sentences.into_iter().filter(|sentence| !sentence.is_empty()).map(end_sentence);
    let text = text.collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;");
    format!("| `{}` | {text} |\n", name(argument).replace('|', "\\|"))
}

fn end_sentence(text: String) -> String {
    if text.ends_with(['.', '!', '?']) { text } else { text + "." }
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
        format!("| `{}` | {} | {variable} |\n", key.name, key.description)
    };
    format!("| setting | description | variable |\n|---|---|---|\n{}", KEYS.iter().map(row).collect::<String>())
}
