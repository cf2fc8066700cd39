//! The checked-in descriptions of queries agree with the queries and with the schema.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use odc_tests::{DatabaseRole, with_migrated_database};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqlSafeStr as _};
use syn::parse::{Parse, ParseStream};
use syn::visit::Visit;

const HINT: &str = "hint: run `./dev sqlx` and commit crates/store/.sqlx";

#[tokio::test]
async fn descriptions_agree_with_queries_and_schema() -> anyhow::Result<()> {
    let queries = queries(&store().join("src"))?;
    assert!(queries.len() > 30, "{} queries", queries.len());
    let descriptions = descriptions()?;
    let names = |map: &BTreeMap<String, Value>| map.keys().cloned().collect::<Vec<_>>();
    for (hash, sql) in &queries {
        assert!(descriptions.contains_key(hash), "a query has no description: {sql}\n{HINT}");
    }
    for hash in names(&descriptions) {
        assert!(queries.contains_key(&hash), "query-{hash}.json describes no query\n{HINT}");
    }
    with_migrated_database(async |database| {
        let mut connection = PgConnection::connect(database.url(DatabaseRole::Migrator)).await?;
        for (hash, sql) in queries {
            let described = connection.describe(AssertSqlSafe(sql.clone()).into_sql_str()).await;
            let described = described.with_context(|| format!("{sql}\n{HINT}"))?;
            let stored = &descriptions[&hash];
            assert_eq!(stored["query"], Value::String(sql.clone()), "query-{hash}.json\n{HINT}");
            assert_eq!(stored["describe"], serde_json::to_value(described)?, "{sql}\n{HINT}");
        }
        Ok(())
    })
    .await
}

fn store() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../store")
}

/// Returns the checked-in descriptions by hash.
fn descriptions() -> anyhow::Result<BTreeMap<String, Value>> {
    let mut descriptions = BTreeMap::new();
    for entry in std::fs::read_dir(store().join(".sqlx"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let hash = name.strip_prefix("query-").with_context(|| format!("unexpected file {}", path.display()))?;
        descriptions.insert(hash.to_owned(), serde_json::from_slice(&std::fs::read(&path)?)?);
    }
    Ok(descriptions)
}

/// Returns the SQL of all checked queries below a directory, by hash.
fn queries(directory: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut queries = Queries::default();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                queries.visit_file(&syn::parse_file(&std::fs::read_to_string(path)?)?);
            }
        }
    }
    Ok(queries.0)
}

#[derive(Default)]
struct Queries(BTreeMap<String, String>);

impl<'ast> Visit<'ast> for Queries {
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let is_query = called.path.segments.last().is_some_and(|name| name.ident.to_string().starts_with("query"));
        if is_query && let Ok(Query(sql)) = called.parse_body() {
            let hash = Sha256::digest(&sql).iter().map(|byte| format!("{byte:02x}")).collect();
            self.0.insert(hash, sql);
        }
    }
}

/// The first string literal of a macro call; the type before it in `query_as!` is skipped.
struct Query(String);

impl Parse for Query {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        while !input.peek(syn::LitStr) {
            input
                .step(|cursor| cursor.token_tree().map(|(_, rest)| ((), rest)).ok_or_else(|| cursor.error("no SQL")))?;
        }
        let sql: syn::LitStr = input.parse()?;
        while !input.is_empty() {
            input.step(|cursor| cursor.token_tree().map(|(_, rest)| ((), rest)).ok_or_else(|| cursor.error("end")))?;
        }
        Ok(Self(sql.value()))
    }
}
