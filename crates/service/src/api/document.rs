//! Routes with their documentation, so that none exists without it. The `OpenAPI` document and the reference page are
//! generated from the same declarations; schemas come from the types of `odc-api`.

mod page;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use odc_api::http::{PROBLEM_JSON, Problem};
use odc_core::access::Action;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::{App, middleware};

pub use page::reference_page;

/// The prefix of all documented paths.
pub(super) const PREFIX: &str = "/api/v1";

/// A route.
pub(super) struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    tag: &'static str,
    action: Option<Action>,
    parameters: Vec<Parameter>,
    body: Option<Content>,
    response: Content,
    status: u16,
    is_stream: bool,
    is_change: bool,
}

/// A parameter of the query.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub kind: &'static str,
    pub description: &'static str,
}

pub(super) const fn parameter(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, kind, description }
}

/// A body.
struct Content {
    media_type: &'static str,
    schema: fn(&mut SchemaGenerator) -> Schema,
    example: Option<Value>,
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn any_schema(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

impl Operation {
    fn new(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        let response = Content { media_type: "application/json", schema: any_schema, example: None };
        Self {
            method,
            path,
            id,
            summary,
            tag: path.split('/').nth(1).unwrap_or_default(),
            action: None,
            parameters: vec![],
            body: None,
            response,
            status: 200,
            is_stream: false,
            is_change: false,
        }
    }

    pub fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, id, summary)
    }

    pub fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("post", path, id, summary)
    }

    pub fn put(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("put", path, id, summary)
    }

    pub fn patch(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("patch", path, id, summary)
    }

    pub fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("delete", path, id, summary)
    }

    /// Requires authentication and a permission. Without it, the route is public.
    pub fn requires(mut self, action: Action) -> Self {
        self.action = Some(action);
        self
    }

    pub fn query(mut self, parameters: &[Parameter]) -> Self {
        self.parameters.extend(parameters);
        self
    }

    pub fn body<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = Some(Content { media_type: "application/json", schema: schema_of::<T>, example: Some(example) });
        self
    }

    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.response.schema = schema_of::<T>;
        self
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Returns a stream, or content that is not JSON.
    pub fn streams(mut self, media_type: &'static str) -> Self {
        self.response.media_type = media_type;
        self.is_stream = true;
        self
    }

    /// Is a change that a worker executes: 202 with the location of the request.
    pub fn accepted(mut self) -> Self {
        self.is_change = true;
        self.status(202).returns::<odc_api::http::Accepted>()
    }

    fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    fn to_json(&self, generator: &mut SchemaGenerator) -> Value {
        let path = self
            .path_parameters()
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
        let query = self.parameters.iter().map(|parameter| {
            let schema = json!({"type": parameter.kind});
            json!({"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema})
        });
        let header = |name: &str, description: &str| json!({"name": name, "in": "header", "description": description, "schema": {"type": "string"}});
        let mut headers = vec![];
        if self.is_change {
            headers.push(header("Idempotency-Key", "Makes it safe to repeat the request for 24 hours."));
            headers.push(header("Prefer", "`wait=10` waits up to 10 seconds, at most 30, for the result; `return=representation` adds the object."));
            if self.method != "post" {
                headers.push(header("If-Match", "ETag of the version to change."));
            }
        }
        let parameters: Vec<Value> = path.chain(query).chain(headers).collect();
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "parameters": parameters,
            "responses": self.responses(generator),
        });
        if let Some(body) = &self.body {
            let mut content = json!({"schema": (body.schema)(generator)});
            if let Some(example) = &body.example {
                content["example"] = example.clone();
            }
            operation["requestBody"] = json!({"required": true, "content": {body.media_type: content}});
        }
        match self.action {
            Some(action) => {
                operation["x-odc-action"] = json!(action.as_str());
                operation["x-odc-scope"] = json!(action.scope().map(odc_core::access::Scope::as_str));
            }
            None => operation["security"] = json!([]),
        }
        operation
    }

    fn responses(&self, generator: &mut SchemaGenerator) -> Value {
        let mut responses = Map::new();
        let content = json!({self.response.media_type: {"schema": (self.response.schema)(generator)}});
        let mut success = json!({"description": self.summary});
        if self.status != 204 {
            success["content"] = content;
        }
        if self.is_change {
            let waited = success.clone();
            success["headers"] = json!({"Location": {"description": "Path of the request, which has the result.",
                "schema": {"type": "string"}}});
            responses.insert("200".to_owned(), waited);
        }
        responses.insert(self.status.to_string(), success);
        let problem = json!({PROBLEM_JSON: {"schema": generator.subschema_for::<Problem>()}});
        responses.insert("default".to_owned(), json!({"description": "An error.", "content": problem}));
        responses.into()
    }
}

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
        json!({
            "openapi": "3.1.0",
            "info": {"title": "Open Developer Cloud", "version": env!("CARGO_PKG_VERSION"), "description": description},
            "servers": [{"url": "/"}],
            "security": [{"bearer": []}],
            "paths": paths,
            "components": {"schemas": generator.take_definitions(true), "securitySchemes": {"bearer": bearer}},
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
