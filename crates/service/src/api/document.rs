//! Routes with their documentation, so that none exists without it. The `OpenAPI` document and the reference page are
//! generated from the same declarations; schemas come from the types of `odc-api`.

mod operation;
mod page;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use odc_api::http::{PROBLEM_JSON, Problem};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{App, middleware};
use operation::{content, schema_of};

pub(super) use operation::{Operation, Parameter, parameter};
pub use page::reference_page;

/// The prefix of all documented paths.
pub(super) const PREFIX: &str = "/api/v1";

/// The routes of the API.
#[derive(Default)]
pub(super) struct Routes {
    routes: Vec<(Operation, MethodRouter<App>)>,
}

impl Routes {
    /// Adds a route.
    pub fn add<H, T>(mut self, operation: Operation, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let filter = match operation.method {
            "post" => MethodFilter::POST,
            "put" => MethodFilter::PUT,
            "patch" => MethodFilter::PATCH,
            "delete" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        self.routes.push((operation, on(filter, handler)));
        self
    }

    pub fn merge(mut self, other: Self) -> Self {
        self.routes.extend(other.routes);
        self
    }

    /// Returns the routes with authentication and time limits.
    pub fn into_router(self, app: &App) -> Router<App> {
        self.routes.into_iter().fold(Router::new(), |router, (operation, mut route)| {
            if operation.action.is_some() {
                route = route.layer(axum::middleware::from_fn_with_state(app.clone(), middleware::authenticate));
            }
            if !operation.is_stream {
                route = route.layer(axum::middleware::from_fn(middleware::limit_time));
            }
            router.route(&format!("{PREFIX}{}", operation.path), route)
        })
    }

    fn document(&self) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let mut generator = settings.into_generator();
        let mut paths = Map::new();
        for (operation, _) in &self.routes {
            let item = paths.entry(format!("{PREFIX}{}", operation.path)).or_insert_with(|| json!({}));
            item[operation.method] = operation.to_json(&mut generator);
        }
        let bearer = json!({"type": "http", "scheme": "bearer",
            "description": "An API key (odc_…), or a token of the Kubernetes service account odc-user of the user."});
        let description = "Reads are answered from memory; `observedAt` says when the state was current. Changes are \
                           accepted with 202 and executed by a worker; the location has the result. A read of one object \
                           with `If-None-Match` and `Prefer: wait=10` waits for another version. Errors are problems \
                           (RFC 9457) with stable types.";
        let problem = content(PROBLEM_JSON, &schema_of::<Problem>(&mut generator));
        json!({
            "openapi": "3.1.0",
            "info": {"title": "Open Developer Cloud", "version": env!("CARGO_PKG_VERSION"), "description": description},
            "servers": [{"url": "/"}],
            "security": [{"bearer": []}],
            "paths": paths,
            "components": {
                "responses": {"Problem": {"description": "An error.", "content": problem}},
                "schemas": generator.take_definitions(true),
                "securitySchemes": {"bearer": bearer},
            },
        })
    }
}

/// Returns the `OpenAPI` document.
pub fn openapi() -> Value {
    super::route::all().document()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.insert(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn all_references_resolve() {
        let document = openapi();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let routes = super::super::route::all();
        let ids: BTreeSet<&str> = routes.routes.iter().map(|(operation, _)| operation.id).collect();
        assert_eq!(ids.len(), routes.routes.len());
    }
}
