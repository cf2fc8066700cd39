//! Settings of the operator, from its command line.

use clap::Args as _;

use super::markdown::{code, sentence, start, table};

const DEFAULT: &str = "[default: ";

pub(super) fn page() -> String {
    let introduction = "Every setting of `odc operator` can be given as a flag, as an environment variable, or in the \
        YAML file named by `ODC_CONFIG`, where its key is the flag in camelCase (`--agent-image` is `agentImage`). Flags \
        take precedence over variables, variables over the file. `--config` and `--kubeconfig` are not read from the \
        file.\n\nDurations are written as in Go: `30s`, `10m`, `1h30m`. `ODC_LOG` sets the log filter (default `info`), \
        in the syntax of `tracing_subscriber::EnvFilter`.";
    let mut page = start("Operator settings", "crates/operator/src/config.rs", introduction);
    let mut rows = rows();
    rows.sort();
    table(&mut page, &["flag", "variable", "default", "meaning"], rows);
    page
}

fn rows() -> Vec<Vec<String>> {
    let command = odc_operator::Options::augment_args(clap::Command::new("operator"));
    command.get_arguments().filter_map(row).collect()
}

fn row(argument: &clap::Arg) -> Option<Vec<String>> {
    let flag = code(&format!("--{}", argument.get_long()?));
    let variable = argument.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = split_default(&help);
    let default = match default {
        None => String::new(),
        Some(description) if description.contains(' ') => description.to_owned(),
        Some(value) => code(value),
    };
    Some(vec![flag, variable, default, sentence(meaning)])
}

/// Splits the default off a help text that ends with `[default: VALUE]`.
fn split_default(help: &str) -> (&str, Option<&str>) {
    match help.split_once(DEFAULT) {
        Some((meaning, rest)) => (meaning.trim_end(), rest.strip_suffix(']')),
        None => (help, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_split_off_the_help_text() {
        assert_eq!(split_default("Address [default: [::]:9090]"), ("Address", Some("[::]:9090")));
        assert_eq!(split_default("Image of servers"), ("Image of servers", None));
    }

    #[test]
    fn every_flag_has_a_variable_and_a_meaning() {
        let rows = rows();
        assert!(rows.len() > 15, "{rows:?}");
        for row in rows {
            assert!(!row[1].is_empty() && !row[3].is_empty(), "{row:?}");
        }
    }
}
