//! The generated pages of `docs/reference/`, each from the code that it documents.

mod conditions;
mod crds;
mod examples;
mod markdown;
mod metrics;
mod settings;

use std::path::Path;

/// Where the pages are, relative to the root of the source tree.
pub(super) const DIRECTORY: &str = "docs/reference";

/// Returns the name, relative to [`DIRECTORY`], and the content of every generated page.
pub(super) fn pages(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut pages = crds::pages()?;
    pages.push(("conditions.md".into(), conditions::page()));
    pages.push(("operator-settings.md".into(), settings::operator_page()));
    pages.push(("service-settings.md".into(), settings::service_page()));
    pages.push(("metrics.md".into(), metrics::page()?));
    pages.push(("api.md".into(), odc_service::api::reference_page()));
    pages.push(("scheduling-examples.md".into(), examples::page(root)?));
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_pages_match_the_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, expected) in pages(&root).unwrap() {
            let path = root.join(DIRECTORY).join(&name);
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(found == expected, "{DIRECTORY}/{name} is out of date; run: odc generate docs");
        }
    }

    #[test]
    fn policy_page_lists_every_key_with_its_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/scheduler-policy.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let policy = serde_json::to_value(odc_core::scheduler::Policy::default()).unwrap();
        let policy = policy.as_object().unwrap();
        for (key, default) in policy {
            let default = default.as_str().map_or_else(|| default.to_string(), |text| format!("`{text}`"));
            let row = format!("| `{key}` | {default} | ");
            assert!(rows.iter().any(|line| line.starts_with(&row)), "docs/reference/scheduler-policy.md lacks {row:?}");
        }
        assert_eq!(rows.len(), policy.len(), "docs/reference/scheduler-policy.md lists a key that does not exist");
    }
}
