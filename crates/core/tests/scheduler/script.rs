//! Scripts in `tests/scheduler/scripts/*.txt`: commands, and after `>` the resulting plans. Run with `ODC_BLESS=1` to update the plans, and
//! review the difference.
//!
//! ```text
//! node NAME GPUS [zone=Z] [label=KEY=VALUE]    down NODE      up NODE
//! team NAME [quota=N] [quota.FLAVOR=N] [borrow=N|any] [used=HOURS]    user NAME team=T
//! request ID USER GPUSxNODES for TIME|unlimited [low|high] [preemptible] [at TIME] [zone] [flavor=F] [label=KEY=VALUE]
//! delete ID     extend ID by TIME      after TIME     plan     dry-run ID USER GPUSxNODES for TIME
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{
    AccountSpec, DecayedUsage, Event, Explanation, Limits, Policy, Preemption, Server, ServerState,
};

use super::harness::{Harness, ZONE, node, server};

struct Script {
    harness: Harness,
    teams: BTreeMap<String, String>,
}

/// Parses `90`, `15m`, `2h` or `3d` to seconds.
fn seconds(text: &str) -> i64 {
    let (number, unit) = match text.char_indices().last() {
        Some((at, unit)) if unit.is_alphabetic() => (&text[..at], unit),
        _ => (text, 's'),
    };
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        other => panic!("unknown unit {other}"),
    };
    number.parse::<i64>().unwrap_or_else(|_| panic!("invalid time {text}")) * factor
}

fn time(seconds: i64) -> String {
    match seconds {
        0 => "0".to_owned(),
        some if some % 3_600 == 0 => format!("{}h", some / 3_600),
        some if some % 60 == 0 => format!("{}m", some / 60),
        some => format!("{some}s"),
    }
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn label(words: &[&str]) -> Option<(String, String)> {
    let (key, value) = option(words, "label")?.split_once('=').unwrap();
    Some((key.to_owned(), value.to_owned()))
}

fn after<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
}

impl Script {
    /// Runs a command and returns its output.
    fn run(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["node", name, gpus, ..] => {
                let zone = option(&words, "zone").unwrap_or("a");
                let mut node = node(name, gpus.parse().unwrap(), zone);
                node.labels.extend(label(&words));
                self.harness.node(node);
            }
            ["down", name] => self.harness.make_unschedulable(name),
            ["up", name] => self.harness.make_schedulable(name),
            ["team", name, ..] => self.team(name, &words),
            ["user", name, ..] => {
                self.teams.insert(name.to_owned(), option(&words, "team").unwrap().to_owned());
            }
            ["request", ..] => {
                let server = self.request(&words);
                self.harness.put(server);
            }
            ["dry-run", ..] => return vec![self.dry_run(self.request(&words))],
            ["delete", id] => self.harness.remove(id),
            ["extend", id, "by", by] => {
                let mut server = self.harness.servers[id].clone();
                if let ServerState::Running(running) = &mut server.state {
                    running.end = running.end.map(|end| end + seconds(by));
                }
                self.harness.put(server);
            }
            ["after", elapsed] => {
                self.harness.now += seconds(elapsed);
                self.harness.expire();
            }
            ["plan"] => return self.plan(),
            _ => panic!("unknown command {line:?}"),
        }
        Vec::new()
    }

    fn team(&mut self, name: &str, words: &[&str]) {
        let devices = option(words, "quota").map(|quota| quota.parse().unwrap());
        let flavors = words.iter().filter_map(|word| word.strip_prefix("quota.")?.split_once('='));
        let flavors = flavors.map(|(flavor, limit)| (flavor.to_owned(), limit.parse().unwrap())).collect();
        let limits = Limits { devices, flavors, ..Limits::default() };
        let borrowing_limit = match option(words, "borrow") {
            Some("any") => None,
            limit => Some(limit.map_or(0, |limit| limit.parse().unwrap())),
        };
        let usage = option(words, "used").map(|hours| {
            let hours: i64 = hours.parse().unwrap();
            DecayedUsage { amount: hours * 3_600 * 1_000, as_of: self.harness.now }
        });
        let weight = option(words, "weight").map_or(1, |weight| weight.parse().unwrap());
        let spec = AccountSpec { name: name.into(), weight, limits, borrowing_limit, usage };
        self.harness.teams.insert(name.into(), spec.clone());
        self.harness.apply(Event::Team(spec));
    }

    fn request(&self, words: &[&str]) -> Server {
        let [_, id, user, size, ..] = words[..] else { panic!("incomplete request {words:?}") };
        let (gpus, nodes) = size.split_once('x').unwrap_or((size, "1"));
        let lifetime = after(words, "for").filter(|lifetime| *lifetime != "unlimited").map(seconds);
        let mut server = server(id, gpus.parse().unwrap(), 0, self.harness.now);
        server.max_hold_time = lifetime;
        server.request.nodes = nodes.parse().unwrap();
        server.request.topology = words.contains(&"zone").then(|| ZONE.to_owned());
        // Names keep the order of requests within a second.
        server.name = format!("{:03}", self.harness.servers.len());
        server.flavor = option(words, "flavor").map_or(server.flavor, str::to_owned);
        server.request.selector.extend(label(words));
        server.owner = user.into();
        server.team = self.teams.get(user).cloned();
        server.preemptible = words.contains(&"preemptible");
        server.not_before = after(words, "at").map(seconds);
        if words.contains(&"high") {
            server.priority = Priority::High;
        } else if words.contains(&"low") {
            server.priority = Priority::Low;
        }
        server
    }

    fn plan(&mut self) -> Vec<String> {
        let plan = self.harness.plan();
        let mut lines: Vec<String> = plan.confirmed_bookings.iter().map(|id| format!("confirm {id}")).collect();
        lines.extend(plan.preemptions.iter().map(|preemption| {
            let (stop_at, end) = (time(preemption.stop_at), time(preemption.end));
            let Preemption { id, preemptor, reason, .. } = preemption;
            format!("preempt {id} for {preemptor} by {reason:?}: stops at {stop_at}, free by {end}")
        }));
        lines.extend(plan.assignments.iter().map(|assignment| {
            let suffix = match (assignment.borrowed, assignment.backfilled) {
                (true, _) => ", borrowed",
                (false, true) => ", backfilled",
                (false, false) => "",
            };
            format!("start {} on {} ({:?}{suffix})", assignment.id, assignment.nodes.join(", "), assignment.placement)
        }));
        lines.extend(plan.delayed.iter().map(|delayed| {
            let to = delayed.to.map_or_else(|| "unknown".to_owned(), time);
            format!("delayed {} from {} to {to}: {:?}", delayed.id, time(delayed.from), delayed.cause)
        }));
        self.harness.apply_plan(&plan);
        let mut explainer = self.harness.state.explainer();
        lines.extend(plan.pending.iter().map(|pending| {
            let position = pending.position.map_or_else(String::new, |position| format!(" #{position}"));
            let start =
                pending.planned_start.map_or_else(|| "unknown".to_owned(), |start| format!("by {}", time(start)));
            let Explanation { reason, message } = explainer.explain(pending);
            format!("pending {}{position} {start} {reason}: {message}", pending.id)
        }));
        lines
    }

    fn dry_run(&self, server: Server) -> String {
        let id = server.id.clone();
        let (state, plan) = self.harness.dry_run(server);
        if let Some(assignment) = plan.assignments.iter().find(|assignment| assignment.id == id) {
            return format!("would start now on {}", assignment.nodes.join(", "));
        }
        let pending = plan.pending.iter().find(|pending| pending.id == id).unwrap();
        let start = pending.planned_start;
        let start = start.map_or_else(|| "start unknown".to_owned(), |start| format!("would start by {}", time(start)));
        format!("{start}: {}", state.explainer().explain(pending).message)
    }
}

/// Returns the script with updated plans.
fn run_script(text: &str) -> String {
    let mut script = Script { harness: Harness::new(Policy::default()), teams: BTreeMap::new() };
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with('>')) {
        out += &format!("{line}\n");
        if !line.trim().is_empty() && !line.starts_with('#') {
            script.run(line).into_iter().for_each(|line| out += &format!("> {line}\n"));
        }
    }
    out
}

#[test]
fn scripts_give_the_expected_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scheduler/scripts");
    let mut scripts: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 8, "{scripts:?}");
    for path in scripts {
        let text = std::fs::read_to_string(&path).unwrap();
        let output = run_script(&text);
        if std::env::var_os("ODC_BLESS").is_some() {
            std::fs::write(&path, &output).unwrap();
            continue;
        }
        assert_eq!(output, text, "{} differs; ODC_BLESS=1 updates it", path.display());
    }
}
