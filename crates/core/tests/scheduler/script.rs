//! Scripts in `tests/sim/*.txt`: what happens, and behind `>` what is planned then. Run with `ODC_BLESS=1` to write what is
//! planned now into them, and read the difference.
//!
//! ```text
//! node NAME GPUS [zone=Z] [label=KEY=VALUE]    down NODE      up NODE
//! team NAME [quota=N] [quota.FLAVOR=N] [borrow=N|any] [used=HOURS]    user NAME team=T
//! ask ID USER GPUSxNODES for TIME|ever [low|high] [preemptible] [at TIME] [zone] [flavor=F] [label=KEY=VALUE]
//! leave ID      extend ID by TIME      after TIME     plan     dry ID USER GPUSxNODES for TIME
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Account, Event, Limits, Policy, Server, State, Used};

use super::harness::{Harness, ZONE, node, server};

struct Script {
    harness: Harness,
    teams: BTreeMap<String, String>,
}

/// `90`, `15m`, `2h` or `3d` in seconds.
fn seconds(text: &str) -> i64 {
    let (number, unit) = match text.char_indices().last() {
        Some((at, unit)) if unit.is_alphabetic() => (&text[..at], unit),
        _ => (text, 's'),
    };
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        other => panic!("{other} is no unit of time"),
    };
    number.parse::<i64>().unwrap_or_else(|_| panic!("{text} is no time")) * each
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
    /// What a line prints, if it asks for something.
    fn run(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["node", name, gpus, ..] => {
                let zone = option(&words, "zone").unwrap_or("a");
                let mut node = node(name, gpus.parse().unwrap(), zone);
                node.labels.extend(label(&words));
                self.harness.node(node);
            }
            ["down", name] => self.harness.close(name),
            ["up", name] => self.harness.open(name),
            ["team", name, ..] => self.team(name, &words),
            ["user", name, ..] => {
                self.teams.insert(name.to_owned(), option(&words, "team").unwrap().to_owned());
            }
            ["ask", ..] => {
                let server = self.asked(&words);
                self.harness.put(server);
            }
            ["dry", ..] => {
                let server = self.asked(&words);
                let (policy, now) = (self.harness.policy, self.harness.now);
                let answer = self.harness.world.dry_run(server, &policy, now);
                let when = match answer.start {
                    Some(start) if start == now => format!("would start now on {}", answer.nodes.join(", ")),
                    Some(start) => format!("would start by {}", time(start)),
                    None => "nobody knows when it would start".to_owned(),
                };
                return vec![[Some(when), answer.message].into_iter().flatten().collect::<Vec<_>>().join(": ")];
            }
            ["leave", id] => self.harness.remove(id),
            ["extend", id, "by", by] => {
                let mut server = self.harness.servers[id].clone();
                if let State::Running(running) = &mut server.state {
                    running.end = running.end.map(|end| end + seconds(by));
                }
                self.harness.put(server);
            }
            ["after", passed] => {
                self.harness.now += seconds(passed);
                self.harness.expire();
            }
            ["plan"] => return self.plan(),
            _ => panic!("{line:?} is no command"),
        }
        Vec::new()
    }

    fn team(&mut self, name: &str, words: &[&str]) {
        let devices = option(words, "quota").map(|quota| quota.parse().unwrap());
        let flavors = words.iter().filter_map(|word| word.strip_prefix("quota.")?.split_once('='));
        let flavors = flavors.map(|(flavor, most)| (flavor.to_owned(), most.parse().unwrap())).collect();
        let limits = Limits { devices, flavors, ..Limits::default() };
        let borrow = match option(words, "borrow") {
            Some("any") => None,
            some => Some(some.map_or(0, |most| most.parse().unwrap())),
        };
        let used = option(words, "used").map(|hours| {
            let hours: i64 = hours.parse().unwrap();
            Used { amount: hours * 3_600 * 1_000, at: self.harness.now }
        });
        let weight = option(words, "weight").map_or(1, |weight| weight.parse().unwrap());
        let account = Account { name: name.into(), weight, limits, borrow, used };
        self.harness.teams.insert(name.into(), account.clone());
        self.harness.tell(Event::Team(account));
    }

    fn asked(&self, words: &[&str]) -> Server {
        let [_, id, user, size, ..] = words[..] else { panic!("{words:?} asks for nothing") };
        let (gpus, nodes) = size.split_once('x').unwrap_or((size, "1"));
        let life = after(words, "for").filter(|life| *life != "ever").map(seconds);
        let mut server = server(id, gpus.parse().unwrap(), 0, self.harness.now);
        server.lifetime = life;
        server.ask.nodes = nodes.parse().unwrap();
        server.ask.topology = words.contains(&"zone").then(|| ZONE.to_owned());
        // Of those who ask in the same second the first one comes first.
        server.name = format!("{:03}", self.harness.servers.len());
        server.flavor = option(words, "flavor").map_or(server.flavor, str::to_owned);
        server.ask.selector.extend(label(words));
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
        let mut lines: Vec<String> = plan.booked.iter().map(|id| format!("book {id}")).collect();
        lines.extend(plan.preemptions.iter().map(|preemption| {
            let (stop, end) = (time(preemption.stop), time(preemption.end));
            format!(
                "preempt {} for {} by {:?}: stops at {stop}, gone by {end}",
                preemption.id, preemption.by, preemption.right
            )
        }));
        lines.extend(plan.grants.iter().map(|grant| {
            let how = match (grant.borrowed, grant.backfilled) {
                (true, _) => ", borrowed",
                (false, true) => ", backfilled",
                (false, false) => "",
            };
            format!("start {} on {} ({:?}{how})", grant.id, grant.nodes.join(", "), grant.choice)
        }));
        lines.extend(plan.moved.iter().map(|moved| {
            let to = moved.to.map_or_else(|| "no known time".to_owned(), time);
            format!("moved {} from {} to {to}: {:?}", moved.id, time(moved.from), moved.why)
        }));
        self.harness.carry_out(&plan);
        let mut explained = self.harness.world.explained();
        lines.extend(plan.waits.iter().map(|wait| {
            let place = wait.position.map_or_else(String::new, |place| format!(" #{place}"));
            let start = wait.start.map_or_else(|| "no known time".to_owned(), |start| format!("by {}", time(start)));
            let (reason, message) = explained.why(wait);
            format!("wait {}{place} {start} {reason}: {message}", wait.id)
        }));
        lines
    }
}

/// The script with what is planned now.
fn played(text: &str) -> String {
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
fn scripts_come_out_as_they_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim");
    let mut scripts: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 8, "{scripts:?}");
    for path in scripts {
        let text = std::fs::read_to_string(&path).unwrap();
        let played = played(&text);
        if std::env::var_os("ODC_BLESS").is_some() {
            std::fs::write(&path, &played).unwrap();
            continue;
        }
        assert_eq!(played, text, "{} differs; ODC_BLESS=1 writes it anew", path.display());
    }
}
