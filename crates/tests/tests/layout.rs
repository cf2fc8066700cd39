//! Which crate may use which: the direction of the whole workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Own dependencies of each crate. A crate that is not here has not been thought about.
const ALLOWED: &[(&str, &[&str])] = &[
    ("odc", &["odc-api", "odc-core", "odc-local", "odc-operator"]),
    ("odc-agent", &["odc-control"]),
    ("odc-api", &[]),
    ("odc-control", &[]),
    ("odc-core", &["odc-api", "odc-control"]),
    ("odc-devctl", &["odc-api"]),
    ("odc-gpu-plugin", &[]),
    ("odc-local", &[]),
    ("odc-operator", &["odc-api", "odc-control", "odc-core"]),
    // These two may use everything, and nothing uses them.
    ("odc-bench", &["odc-api", "odc-control", "odc-core", "odc-local", "odc-operator", "odc-tests"]),
    ("odc-tests", &["odc-api", "odc-local"]),
];

#[test]
fn crates_use_only_what_their_place_allows() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in std::fs::read_dir(crates).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"').to_owned();
        let uses: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.split(&['.', ' ', '=']).next())
            .filter(|word| word.starts_with("odc"))
            .collect();
        let Some(allowed) = allowed.get(name.as_str()) else { panic!("{name} is not in the list of crates") };
        let surplus: Vec<_> = uses.difference(allowed).collect();
        assert!(surplus.is_empty(), "{name} must not use {surplus:?}");
    }
}
