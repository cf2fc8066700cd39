//! `odc sim` as people run it.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

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
    assert_ne!(played["decisionHash"], json!(""));
    // What came of some rules does not say what would have come of others.
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "backfill: none\n").unwrap();
    for other in [["--policy", policy.to_str().unwrap()], ["--with", &trace]] {
        let (ok, out, err) = odc(&[recording, other[0], other[1]]);
        assert!(!ok && out.is_empty() && err.contains("is a recording") && err.contains("what-if"), "{err}");
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
