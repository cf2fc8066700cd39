//! Examples of each command, shown at the top of its help text.

use clap::Command;

/// Examples by command path, without `devctl`. Remarks are shell comments.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "",
        "devctl create                 # choose a flavor, wait for the server, open a shell\ndevctl list                   # list your servers\ndevctl ssh box                # connect again\ndevctl delete box             # delete the server",
    ),
    (
        "create",
        "devctl create                                   # choose interactively\ndevctl create box --flavor h100 --gpus 2 --lifetime 4h\ndevctl create box --disk data                   # use another disk as the home\ndevctl create tmp --ephemeral                   # delete the home with the server\ndevctl create train --flavor h100 --gpus 16 --distributed\ndevctl create big --flavor h100 --gpus 8 --lifetime 3h --at 'tue 9:00'\ndevctl create big --flavor h100 --gpus 8 --dry-run     # show when it would start\ndevctl create ci --no-connect --wait -o name    # in a script",
    ),
    (
        "list",
        "devctl list\ndevctl list --watch\ndevctl list --phase running,queued -o wide\ndevctl list -o json | jq -r '.[].name'",
    ),
    ("show", "devctl show box\ndevctl show box -o json | jq -r .expiresAt"),
    (
        "ssh",
        "devctl ssh box\ndevctl ssh box -- nvidia-smi\ndevctl ssh                    # connect to your only server",
    ),
    ("exec", "devctl exec box -- make test\ndevctl exec --shell box"),
    ("cp", "devctl cp train.py box:\ndevctl cp box:results ./results"),
    ("logs", "devctl logs box\ndevctl logs -f --tail 20 box"),
    ("port-forward", "devctl port-forward box 8888\ndevctl port-forward box 9000:8000 6006"),
    ("extend", "devctl extend box 2h\ndevctl extend box --total 24h"),
    ("hibernate", "devctl hibernate box"),
    ("wake", "devctl wake box"),
    (
        "delete",
        "devctl delete box\ndevctl delete box --purge     # also remove the finished server from the list\ndevctl delete --all --yes",
    ),
    (
        "edit",
        "devctl edit box --enable-jupyter\ndevctl edit box --add-user bob --extend 2h\ndevctl edit box               # choose interactively",
    ),
    (
        "disk",
        "devctl disk list\ndevctl disk points home\ndevctl disk snapshot home --note 'before the upgrade'\ndevctl disk rollback home home-1a2b3c4d",
    ),
    (
        "disk create",
        "devctl disk create data --size 100Gi --daily 7\ndevctl disk create copy --from home\ndevctl disk create moved --from-claim old-home",
    ),
    ("disk list", "devctl disk list\ndevctl disk list -o json | jq -r '.[].name'"),
    ("disk show", "devctl disk show home"),
    ("disk rename", "devctl disk rename data 'Training data'"),
    ("disk resize", "devctl disk resize home 50Gi"),
    ("disk clone", "devctl disk clone home home-copy\ndevctl disk clone home old --point home-1a2b3c4d"),
    (
        "disk delete",
        "devctl disk delete data                  # can be undeleted for 30 days\ndevctl disk delete data --purge          # delete the data now",
    ),
    ("disk undelete", "devctl disk undelete data"),
    ("disk points", "devctl disk points home\ndevctl disk points home -o json | jq -r '.[0].name'"),
    (
        "disk files",
        "devctl disk files home                   # at the newest restore point with a listing\ndevctl disk files home home-1a2b3c4d -o json | jq -r '.entries[].path'",
    ),
    ("disk snapshot", "devctl disk snapshot home --note 'before the upgrade'"),
    (
        "disk browse",
        "devctl disk browse home home-1a2b3c4d\ndevctl disk browse home home-1a2b3c4d -- cat notes.txt > notes.old",
    ),
    (
        "disk diff",
        "devctl disk diff home home-1a2b3c4d                  # what changed since then\ndevctl disk diff home home-1a2b3c4d home-5e6f7a8b --name-status",
    ),
    ("disk rollback", "devctl disk rollback home home-1a2b3c4d --stop"),
    ("disk restore", "devctl disk restore home home-1a2b3c4d src/main.rs notes"),
    ("disk unlock", "devctl disk unlock home"),
    ("debug", "devctl debug box\ndevctl debug box --logs"),
    ("avail", "devctl avail\ndevctl avail --watch h100"),
    ("flavors", "devctl flavors\ndevctl flavors -o wide"),
    (
        "queue",
        "devctl queue\ndevctl queue --watch\ndevctl queue --all\ndevctl queue --calibration   # show the accuracy of expected start times",
    ),
    ("status", "devctl status\ndevctl status --watch"),
    (
        "submit",
        "devctl submit --flavor h100 --lifetime 1h -- python train.py\ndevctl submit --no-pull --keep -- make bench",
    ),
    ("config", "devctl config view\ndevctl config set create.flavor h100\ndevctl config contexts"),
    ("config view", "devctl config view"),
    ("config set", "devctl config set create.flavor h100\ndevctl config set ssh.forwardAgent true"),
    ("config unset", "devctl config unset create.flavor"),
    ("config contexts", "devctl config contexts"),
    ("config use", "devctl config use work"),
    ("config set-context", "devctl config set-context work --kubeconfig ~/work.kubeconfig --namespace dev-ada"),
    ("config delete-context", "devctl config delete-context work"),
    ("config path", "devctl config path"),
    (
        "config-ssh",
        "devctl config-ssh             # then: ssh box.odc, rsync -a . box.odc:, code --remote ssh-remote+box.odc\ndevctl config-ssh --dry-run\ndevctl config-ssh --remove",
    ),
    (
        "admin",
        "devctl admin user create ada --ssh-public-key-file ada.pub\ndevctl admin team add vision ada\ndevctl admin flavor maintenance h100 --message 'New drivers until noon'",
    ),
    ("admin user", "devctl admin user list\ndevctl admin user create ada --ssh-public-key-file ada.pub --devices 8"),
    (
        "admin user create",
        "devctl admin user create ada --display 'Ada Lovelace' --ssh-public-key-file ada.pub --devices 8",
    ),
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
        "source <(devctl completion bash)          # in ~/.bashrc\nsource <(devctl completion zsh)           # in ~/.zshrc\ndevctl completion fish | source           # in ~/.config/fish/config.fish",
    ),
    ("version", "devctl version\ndevctl version -o json"),
];

const HELP_TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Returns the examples of a command, one per line.
pub fn examples(path: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

/// Adds the examples to a command and its subcommands.
pub(super) fn add_examples(command: Command, path: &mut Vec<String>) -> Command {
    let command = match examples(&path.join(" ")) {
        None => command,
        Some(text) => {
            let lines: String = text.lines().map(|line| format!("  {line}\n")).collect();
            command.before_help(format!("Examples:\n{lines}")).help_template(HELP_TEMPLATE)
        }
    };
    let names: Vec<String> = command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name.clone(), |subcommand| {
            path.push(name);
            let subcommand = add_examples(subcommand, path);
            path.pop();
            subcommand
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible_paths(command: &Command, path: &str, paths: &mut Vec<String>) {
        paths.push(path.to_owned());
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            visible_paths(subcommand, format!("{path} {}", subcommand.get_name()).trim(), paths);
        }
    }

    #[test]
    fn every_visible_command_has_examples() {
        let mut paths = Vec::new();
        visible_paths(&crate::cli::command(), "", &mut paths);
        paths.sort_unstable();
        let mut documented: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        documented.sort_unstable();
        assert_eq!(paths, documented);
    }

    #[test]
    fn every_example_parses() {
        for (_, text) in EXAMPLES {
            for line in text.lines() {
                let Some(words) = command_words(line) else { continue };
                let parsed = crate::cli::command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    /// Returns the words of the devctl command at the start of a line, before a comment or pipe.
    fn command_words(line: &str) -> Option<Vec<String>> {
        let line = line.split(" # ").next()?.split(" | ").next()?.trim();
        let line = line.strip_prefix("source <(").map_or(line, |inner| inner.trim_end_matches(')'));
        let words = shlex::split(line)?;
        (words.first()? == "devctl" && words.len() > 1).then_some(words)
    }
}
