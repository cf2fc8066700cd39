//! `odc sim` as people run it.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use odc_core::sim::Dice;
use serde_json::{Value, json};

fn odc(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_odc")).arg("sim").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn write(path: &Path, lines: &[Value]) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn lines() -> Vec<Value> {
    let mut lines = vec![
        json!({"t": 0, "node": {"name": "n1", "devices": {"gpu": 8}, "cpu": 64, "memoryGi": 512}}),
        json!({"t": 0, "flavor": {"name": "h100", "device": "gpu", "cpuPerDevice": 4, "memoryGiPerDevice": 32}}),
        json!({"t": 0, "team": {"name": "vision", "quota": {"devices": 8}}}),
        json!({"t": 0, "user": {"name": "ada", "team": "vision"}}),
    ];
    lines.extend((0..20).map(|number| {
        let request = json!({
            "id": format!("r{number}"), "user": "ada", "flavor": "h100", "count": 1 + number % 8,
            "lifetimeSeconds": 3_600, "actualSeconds": 600 + number * 100,
        });
        json!({"t": number * 60, "request": request})
    }));
    lines
}

#[test]
fn a_trace_is_played_recorded_and_decided_the_same_again() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write(&directory.path().join("trace.jsonl"), &lines());
    let recording = directory.path().join("events.jsonl");
    let recording = recording.to_str().unwrap();
    let (ok, out, err) = odc(&[&trace, "-o", "json", "--record", recording]);
    assert!(ok, "{err}");
    let played: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(played["requests"].as_array().unwrap().len(), 20);
    assert_eq!((&played["totals"]["overcommits"], &played["totals"]["promiseViolations"]), (&json!(0), &json!(0)));
    assert!(played["requests"][7]["eta"]["latest"].is_i64(), "{}", played["requests"][7]);
    let (ok, out, err) = odc(&[recording, "-o", "json"]);
    assert!(ok, "{err}");
    let replayed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(replayed["decisionHash"], played["decisionHash"]);
    // What came of some rules does not say what would have come of others.
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "backfill: none\n").unwrap();
    for other in [["--policy", policy.to_str().unwrap()], ["--with", &trace]] {
        let (ok, out, err) = odc(&[recording, other[0], other[1]]);
        assert!(!ok && out.is_empty() && err.contains("is a recording") && err.contains("what-if"), "{err}");
    }
}

/// A busy day of four teams that lend and borrow, from the dice.
fn made_up() -> Vec<Value> {
    let mut dice = Dice(7);
    let flavor = json!({"name": "h100", "device": "gpu", "cpuPerDevice": 4, "memoryGiPerDevice": 32});
    let mut lines = vec![json!({"t": 0, "flavor": flavor})];
    for node in 0..5 {
        let node = json!({"name": format!("n{node}"), "devices": {"gpu": 8}, "cpu": 40, "memoryGi": 512});
        lines.push(json!({"t": 0, "node": node}));
    }
    for team in 0..4 {
        let team =
            json!({"name": format!("team-{team}"), "quota": {"devices": 8 + 2 * team}, "borrow": {"devices": 8}});
        lines.push(json!({"t": 0, "team": team}));
    }
    for user in 0..12 {
        lines.push(json!({"t": 0, "user": {"name": format!("u{user}"), "team": format!("team-{}", user % 4)}}));
    }
    let mut t = 0;
    for number in 0..200 {
        t += dice.number(300);
        let life = 600 + dice.number(6_000);
        let request = json!({
            "id": format!("r{number}"), "user": format!("u{}", dice.roll(12)), "flavor": "h100", "count": 1 + dice.number(8),
            "nodes": if dice.roll(8) == 0 { 2 } else { 1 }, "lifetimeSeconds": life, "actualSeconds": life / (1 + dice.number(4)),
            "priority": *dice.pick(&["Low", "Normal", "High"]).unwrap(), "preemptible": dice.roll(3) == 0,
        });
        lines.push(json!({"t": t, "request": request}));
    }
    lines
}

/// The same trace is decided the same on every machine. Who changes what is decided on purpose writes down the new hash,
/// and says in the change log what is another.
#[test]
fn decisions_are_the_same_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/small.jsonl");
    let made_up = write(&directory.path().join("made-up.jsonl"), &made_up());
    let traces = [
        (small, "4c01db53a01eefa929e9b699c0214e68fd9598ad5dfe6268e7d6f3ee95483e21"),
        (made_up.as_str(), "31825a28c3c54979bec1876adb8dab675862b7dba9e95c3b9c1d62395fd0afb8"),
    ];
    for (trace, expect) in traces {
        let (ok, out, err) = odc(&[trace, "-o", "json"]);
        assert!(ok, "{err}");
        let played: Value = serde_json::from_str(&out).unwrap();
        let totals = &played["totals"];
        assert_eq!((&totals["overcommits"], &totals["promiseViolations"]), (&json!(0), &json!(0)), "{trace}");
        assert_eq!(played["decisionHash"], json!(expect), "{trace}");
    }
}

#[test]
fn rules_and_lines_can_be_tried() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write(&directory.path().join("trace.jsonl"), &lines());
    let with = [json!({"t": 0, "team": {"name": "vision", "quota": {"devices": 4}}})];
    let with = write(&directory.path().join("with.jsonl"), &with);
    let (ok, out, err) = odc(&[&trace, "--with", &with]);
    assert!(ok, "{err}");
    // Those that ask for more than four never run.
    assert!(out.contains("what if") && out.contains("that never ran"), "{out}");
    assert!(out.contains("requests would have started at another time"), "{out}");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "backfill: none\n").unwrap();
    let (ok, _, err) = odc(&[&trace, "--policy", policy.to_str().unwrap()]);
    assert!(ok, "{err}");
    std::fs::write(&policy, "backfil: none\n").unwrap();
    let (ok, _, err) = odc(&[&trace, "--policy", policy.to_str().unwrap()]);
    assert!(!ok && err.contains("policy.yaml"), "{err}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write(&directory.path().join("trace.jsonl"), &[json!({"t": 0, "knot": {}})]);
    let (ok, out, err) = odc(&[&trace]);
    assert!(!ok && out.is_empty() && err.contains("line 1") && err.contains("`knot`"), "{err}");
    let (ok, _, err) = odc(&["convert", "csv", &trace]);
    assert!(!ok && err.contains("--nodes"), "{err}");
}
