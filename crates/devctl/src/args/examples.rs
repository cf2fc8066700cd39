//! What each command looks like in use. Help shows it before everything else.

use clap::Command;

/// By path, `devctl` left out.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "",
        "devctl create                 choose a machine, wait for it, get a shell\ndevctl list                   what you have\ndevctl ssh box                back into it\ndevctl delete box             give it back",
    ),
    (
        "create",
        "devctl create                                   choose from what is free\ndevctl create box --flavor h100 --gpus 2 --time 4h\ndevctl create box --home-claim home             with a home that outlives it\ndevctl create train --flavor h100 --gpus 16 --distributed\ndevctl create big --flavor h100 --gpus 8 --time 3h --at 'tue 9:00'\ndevctl create big --flavor h100 --gpus 8 --dry-run     when would it start, and what is in its way?\ndevctl create ci --no-connect --wait -o name    in a script",
    ),
    (
        "list",
        "devctl list\ndevctl list --watch\ndevctl list --status running,queued -o wide\ndevctl list -o json | jq -r '.[].name'",
    ),
    ("show", "devctl show box\ndevctl show box -o json | jq -r .expiresAt"),
    ("ssh", "devctl ssh box\ndevctl ssh box -- nvidia-smi\ndevctl ssh                    into the only one you have"),
    ("exec", "devctl exec box -- make test\ndevctl exec --shell box"),
    ("cp", "devctl cp train.py box:\ndevctl cp -r box:results ./results"),
    ("logs", "devctl logs box\ndevctl logs -f --tail 20 box"),
    ("port-forward", "devctl port-forward box 8888\ndevctl port-forward box 9000:8000 6006"),
    ("extend", "devctl extend box 2h\ndevctl extend box --total 24h"),
    ("hibernate", "devctl hibernate box"),
    ("wake", "devctl wake box"),
    ("delete", "devctl delete box\ndevctl delete box --purge     and forget it at once\ndevctl delete --all --yes"),
    (
        "edit",
        "devctl edit box --enable-jupyter\ndevctl edit box --add-user bob --extend 2h\ndevctl edit box               choose what to change",
    ),
    ("debug", "devctl debug box\ndevctl debug box --logs"),
    ("avail", "devctl avail\ndevctl avail --watch h100"),
    ("flavors", "devctl flavors\ndevctl flavors -o wide"),
    (
        "queue",
        "devctl queue\ndevctl queue --watch\ndevctl queue --all\ndevctl queue --calibration   how well expected starts were kept",
    ),
    ("status", "devctl status"),
    (
        "submit",
        "devctl submit --flavor h100 --hours 1 -- python train.py\ndevctl submit --no-pull --keep -- make bench",
    ),
    ("config", "devctl config view\ndevctl config set create.flavor h100\ndevctl config contexts"),
    ("config view", "devctl config view"),
    ("config set", "devctl config set create.flavor h100\ndevctl config set ssh.forwardAgent true"),
    ("config unset", "devctl config unset create.flavor"),
    ("config contexts", "devctl config contexts"),
    ("config use", "devctl config use work"),
    ("config set-context", "devctl config set-context work --from ~/work.kubeconfig --in dev-ada"),
    ("config delete-context", "devctl config delete-context work"),
    ("config path", "devctl config path"),
    ("config ssh-include", "devctl config ssh-include enable"),
    (
        "config-ssh",
        "devctl config-ssh             then: ssh box.odc, rsync -a . box.odc:, code --remote ssh-remote+box.odc\ndevctl config-ssh --dry-run\ndevctl config-ssh --remove",
    ),
    (
        "admin",
        "devctl admin user create ada --key ada.pub\ndevctl admin team add vision ada\ndevctl admin flavor maintenance h100 --message 'New drivers until noon'",
    ),
    ("admin user", "devctl admin user list\ndevctl admin user create ada --key ada.pub --devices 8"),
    ("admin user create", "devctl admin user create ada --display 'Ada Lovelace' --key ada.pub --devices 8"),
    ("admin user list", "devctl admin user list"),
    ("admin user delete", "devctl admin user delete ada"),
    ("admin user kubeconfig", "devctl admin user kubeconfig ada --duration 720h --file ada.kubeconfig"),
    ("admin team", "devctl admin team create vision --weight 2 --devices 16\ndevctl admin team add vision ada bob"),
    (
        "admin team create",
        "devctl admin team create vision --weight 2 --devices 16 --devices-of h100=8\n\
         devctl admin team set vision --priority-ceiling high --borrow 4 --memory none",
    ),
    ("admin team list", "devctl admin team list"),
    ("admin team what-if", "devctl admin team what-if vision --devices 12"),
    ("admin team add", "devctl admin team add vision ada bob"),
    ("admin team remove", "devctl admin team remove vision bob"),
    ("admin team delete", "devctl admin team delete vision"),
    ("admin flavor", "devctl admin flavor list\ndevctl admin flavor apply -f flavors.yaml"),
    ("admin flavor apply", "devctl admin flavor apply -f flavors.yaml"),
    ("admin flavor list", "devctl admin flavor list"),
    (
        "admin flavor maintenance",
        "devctl admin flavor maintenance h100 --message 'New drivers until noon' --allow ada\ndevctl admin flavor maintenance h100 --end",
    ),
    ("admin flavor default", "devctl admin flavor default cpu"),
    ("admin flavor delete", "devctl admin flavor delete h100"),
    (
        "completion",
        "source <(devctl completion bash)          in ~/.bashrc\nsource <(devctl completion zsh)           in ~/.zshrc\ndevctl completion fish | source           in ~/.config/fish/config.fish",
    ),
    ("version", "devctl version\ndevctl version -o json"),
];

const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The examples of a command, one per line.
pub fn of(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

/// The same command with its examples, and all below it.
pub(super) fn added(command: Command, path: &mut Vec<String>) -> Command {
    let command = match of(&path.join(" ")) {
        None => command,
        Some(text) => {
            let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
            command.before_help(format!("Examples:\n{lines}")).help_template(TEMPLATE)
        }
    };
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name.clone(), |below| {
            path.push(name);
            let below = added(below, path);
            path.pop();
            below
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(command: &Command, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            visible(below, format!("{path} {}", below.get_name()).trim(), all);
        }
    }

    #[test]
    fn every_command_has_examples_and_every_example_a_command() {
        let mut all = Vec::new();
        visible(&crate::args::command(), "", &mut all);
        let known: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        let mut sorted = (all.iter().map(String::as_str).collect::<Vec<_>>(), known);
        sorted.0.sort_unstable();
        sorted.1.sort_unstable();
        assert_eq!(sorted.0, sorted.1);
    }

    /// What is shown must work: each example is parsed as a shell would hand it over.
    #[test]
    fn every_example_parses() {
        for (_, text) in EXAMPLES {
            for line in text.lines() {
                let Some(words) = words(line) else { continue };
                let parsed = crate::args::command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    /// The command at the beginning of a line: up to a remark, a pipe or another command.
    fn words(line: &str) -> Option<Vec<String>> {
        let line = line.split("   ").next()?.split(" | ").next()?;
        let line = line.strip_prefix("source <(").map_or(line, |inner| inner.trim_end_matches(')'));
        let mut words = Vec::new();
        let mut rest = line.trim();
        while !rest.is_empty() {
            let (word, after) = match rest.strip_prefix('\'') {
                Some(quoted) => quoted.split_once('\'')?,
                None => rest.split_once(' ').unwrap_or((rest, "")),
            };
            words.push(word.to_owned());
            rest = after.trim_start();
        }
        (words.first()? == "devctl" && words.len() > 1).then_some(words)
    }
}
