//! Allowed dependencies between the crates of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Workspace dependencies that each crate may have. Every crate must be listed.
const ALLOWED: &[(&str, &[&str])] = &[
    ("odc", &["odc-api", "odc-core", "odc-local", "odc-operator", "odc-service"]),
    ("odc-agent", &["odc-control"]),
    ("odc-api", &[]),
    ("odc-control", &[]),
    ("odc-core", &["odc-api", "odc-control"]),
    ("odc-csi", &[]),
    ("odc-devctl", &["odc-api"]),
    ("odc-fake-gpu-plugin", &[]),
    ("odc-local", &["odc-api"]),
    ("odc-operator", &["odc-api", "odc-control", "odc-core"]),
    ("odc-service", &["odc-api", "odc-core", "odc-store"]),
    ("odc-store", &[]),
    // No crate may depend on these two.
    ("odc-bench", &["odc-api", "odc-control", "odc-core", "odc-local", "odc-operator", "odc-tests"]),
    ("odc-tests", &["odc-api", "odc-local", "odc-store"]),
];

#[test]
fn crates_have_only_allowed_dependencies() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, dependencies)| (*name, dependencies.iter().copied().collect())).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in std::fs::read_dir(crates).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"').to_owned();
        let dependencies: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.split(&['.', ' ', '=']).next())
            .filter(|word| word.starts_with("odc"))
            .collect();
        let Some(allowed) = allowed.get(name.as_str()) else { panic!("crate {name} is not listed") };
        let surplus: Vec<_> = dependencies.difference(allowed).collect();
        assert!(surplus.is_empty(), "{name} must not depend on {surplus:?}");
    }
}
