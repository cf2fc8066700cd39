//! The `odc sim` command.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use odc_core::sim::Rng;
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
fn recorded_trace_replays_to_the_same_decisions() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write(&directory.path().join("trace.jsonl"), &lines());
    let recorded = directory.path().join("events.jsonl");
    let recorded = recorded.to_str().unwrap();
    let (ok, out, err) = odc(&[&trace, "-o", "json", "--record", recorded]);
    assert!(ok, "{err}");
    let simulated: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(simulated["requests"].as_array().unwrap().len(), 20);
    assert_eq!(
        (&simulated["totals"]["overcommits"], &simulated["totals"]["unexplainedDelays"]),
        (&json!(0), &json!(0))
    );
    assert!(simulated["requests"][7]["eta"]["latest"].is_i64(), "{}", simulated["requests"][7]);
    let (ok, out, err) = odc(&[recorded, "-o", "json"]);
    assert!(ok, "{err}");
    let replayed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(replayed["decisionHash"], simulated["decisionHash"]);
    // A recorded trace cannot be simulated with another policy.
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "backfill: disabled\n").unwrap();
    for other in [["--policy", policy.to_str().unwrap()], ["--with", &trace]] {
        let (ok, out, err) = odc(&[recorded, other[0], other[1]]);
        assert!(!ok && out.is_empty() && err.contains("is a recorded trace") && err.contains("what-if"), "{err}");
    }
}

/// Returns a generated trace of four teams that borrow from each other.
fn generated_trace() -> Vec<Value> {
    let mut rng = Rng(7);
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
        t += rng.number(300);
        let lifetime = 600 + rng.number(6_000);
        let request = json!({
            "id": format!("r{number}"), "user": format!("u{}", rng.below(12)), "flavor": "h100", "count": 1 + rng.number(8),
            "nodes": if rng.below(8) == 0 { 2 } else { 1 }, "lifetimeSeconds": lifetime, "actualSeconds": lifetime / (1 + rng.number(4)),
            "priority": *rng.choose(&["Low", "Normal", "High"]).unwrap(), "preemptible": rng.below(3) == 0,
        });
        lines.push(json!({"t": t, "request": request}));
    }
    lines
}

/// Decisions are the same on all machines. A deliberate change updates the hashes, and is described in the changelog.
#[test]
fn decisions_are_reproducible() {
    let directory = tempfile::tempdir().unwrap();
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/small.jsonl");
    let generated = write(&directory.path().join("generated.jsonl"), &generated_trace());
    let traces = [
        (small, "4c01db53a01eefa929e9b699c0214e68fd9598ad5dfe6268e7d6f3ee95483e21"),
        (generated.as_str(), "31825a28c3c54979bec1876adb8dab675862b7dba9e95c3b9c1d62395fd0afb8"),
    ];
    for (trace, expect) in traces {
        let (ok, out, err) = odc(&[trace, "-o", "json"]);
        assert!(ok, "{err}");
        let simulated: Value = serde_json::from_str(&out).unwrap();
        let totals = &simulated["totals"];
        assert_eq!((&totals["overcommits"], &totals["unexplainedDelays"]), (&json!(0), &json!(0)), "{trace}");
        assert_eq!(simulated["decisionHash"], json!(expect), "{trace}");
    }
}

#[test]
fn policy_and_lines_can_be_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write(&directory.path().join("trace.jsonl"), &lines());
    let with = [json!({"t": 0, "team": {"name": "vision", "quota": {"devices": 4}}})];
    let with = write(&directory.path().join("with.jsonl"), &with);
    let (ok, out, err) = odc(&[&trace, "--with", &with]);
    assert!(ok, "{err}");
    // Requests for more than four devices never start.
    assert!(out.contains("what if") && out.contains("never started"), "{out}");
    assert!(out.contains("requests start at another time"), "{out}");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "backfill: disabled\n").unwrap();
    let (ok, _, err) = odc(&[&trace, "--policy", policy.to_str().unwrap()]);
    assert!(ok, "{err}");
    std::fs::write(&policy, "backfil: disabled\n").unwrap();
    let (ok, _, err) = odc(&[&trace, "--policy", policy.to_str().unwrap()]);
    assert!(!ok && err.contains("policy.yaml"), "{err}");
}

#[test]
fn invalid_input_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write(&directory.path().join("trace.jsonl"), &[json!({"t": 0, "knot": {}})]);
    let (ok, out, err) = odc(&[&trace]);
    assert!(!ok && out.is_empty() && err.contains("line 1") && err.contains("`knot`"), "{err}");
    let (ok, _, err) = odc(&["convert", "csv", &trace]);
    assert!(!ok && err.contains("--nodes"), "{err}");
}
