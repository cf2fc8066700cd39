//! Settings of the operator and of the service layer, from their command lines.

use super::markdown::{code, sentence, start, table};

const DEFAULT: &str = "[default: ";

pub(super) fn operator_page() -> String {
    let introduction = "Every setting of `odc operator` can be given as a flag, as an environment variable, or in the \
        YAML file named by `ODC_CONFIG`, where its key is the flag in camelCase (`--agent-image` is `agentImage`). Flags \
        take precedence over variables, variables over the file. `--config` and `--kubeconfig` are not read from the \
        file.\n\nDurations are written as in Go: `30s`, `10m`, `1h30m`. `ODC_LOG` sets the log filter (default `info`), \
        in the syntax of `tracing_subscriber::EnvFilter`.";
    let mut page = start("Operator settings", "crates/operator/src/config.rs", introduction);
    settings_table(&mut page, rows::<odc_operator::Options>());
    page
}

pub(super) fn service_page() -> String {
    let introduction = "Every setting of `odc api`, `odc worker` and `odc migrate` can be given as a flag or as an \
        environment variable; flags take precedence. `ODC_LOG` sets the log filter (default `info`), in the syntax of \
        `tracing_subscriber::EnvFilter`. [Service layer](../admin/service-layer.md) describes the installation.\n\nThe \
        variables without the prefix `ODC_` are those of the reservation processor that ODC replaces. Its `AWS_REGION` and \
        `EKS_CLUSTER_NAME` have no effect: the worker calls no cloud service, and finds the cluster by its service account \
        or kubeconfig. With `POSTGRES_HOST`, TLS is set by `PGSSLMODE` and `PGSSLROOTCERT`; with `DATABASE_URL`, by its \
        parameters `sslmode` and `sslrootcert`.";
    let mut page = start("Service settings", "crates/service", introduction);
    for (command, rows) in [
        ("api", rows::<odc_service::api::Options>()),
        ("worker", rows::<odc_service::worker::Options>()),
        ("migrate", rows::<odc_service::migrate::Options>()),
    ] {
        page.push_str("\n## odc ");
        page.push_str(command);
        page.push('\n');
        settings_table(&mut page, rows);
    }
    page
}

fn settings_table(page: &mut String, mut rows: Vec<Vec<String>>) {
    rows.sort();
    table(page, &["flag", "variable", "default", "meaning"], rows);
}

fn rows<A: clap::Args>() -> Vec<Vec<String>> {
    let command = A::augment_args(clap::Command::new("odc"));
    command.get_arguments().filter_map(row).collect()
}

fn row(argument: &clap::Arg) -> Option<Vec<String>> {
    let flag = code(&format!("--{}", argument.get_long()?));
    let variable = argument.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = split_default(&help);
    let clap_default = argument.get_default_values().first().map(|value| value.to_string_lossy());
    let clap_default =
        clap_default.as_deref().filter(|value| !value.is_empty() && argument.get_action().takes_values());
    let default = default.or(clap_default);
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
        let operator = rows::<odc_operator::Options>();
        assert!(operator.len() > 15, "{operator:?}");
        let service = [rows::<odc_service::api::Options>(), rows::<odc_service::worker::Options>()].concat();
        for row in operator.into_iter().chain(service) {
            assert!(!row[1].is_empty() && !row[3].is_empty(), "{row:?}");
        }
    }
}
