//! The documentation of one route.

use odc_api::http::Accepted;
use odc_core::access::{Action, Scope};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::api::body::{MAX_NAME_LENGTH, NAME_PATTERN};

/// A route.
pub(in crate::api) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) tag: &'static str,
    pub(super) action: Option<Action>,
    parameters: Vec<Parameter>,
    body: Option<Body>,
    /// Unset if the response has no body.
    response: Option<Content>,
    status: u16,
    pub(super) is_stream: bool,
    is_change: bool,
    /// The object that a dry run returns.
    dry_run: Option<SchemaOf>,
    /// Whether the response has an `ETag`, and the client can ask for another version.
    has_version: bool,
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

const DRY_RUN: Parameter = parameter::<bool>("dryRun", "Validates the request without executing it.");

/// A parameter of the query.
#[derive(Clone, Copy)]
pub(in crate::api) struct Parameter {
    name: &'static str,
    schema: SchemaOf,
    description: &'static str,
}

pub(in crate::api) const fn parameter<T: JsonSchema>(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, schema: schema_of::<T>, description }
}

/// The body of a request.
struct Body {
    schema: SchemaOf,
    example: Value,
    /// Whether a body without fields, or none, is invalid.
    is_required: bool,
}

/// The body of a response.
struct Content {
    media_type: &'static str,
    schema: SchemaOf,
}

impl Content {
    fn to_json(&self, generator: &mut SchemaGenerator) -> Value {
        content(self.media_type, &(self.schema)(generator))
    }
}

pub(super) fn content(media_type: &str, schema: &Schema) -> Value {
    json!({media_type: {"schema": schema}})
}

pub(super) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn any_schema(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

const PROBLEM_REFERENCE: &str = "#/components/responses/Problem";

impl Operation {
    fn new(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            tag: path.split('/').nth(1).unwrap_or_default(),
            action: None,
            parameters: vec![],
            body: None,
            response: Some(Content { media_type: "application/json", schema: any_schema }),
            status: 200,
            is_stream: false,
            is_change: false,
            dry_run: None,
            has_version: false,
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

    /// Takes a body. It is optional if one without fields is valid.
    pub fn body<T: JsonSchema + DeserializeOwned>(mut self, example: Value) -> Self {
        let is_required = serde_json::from_str::<T>("{}").is_err();
        self.body = Some(Body { schema: schema_of::<T>, example, is_required });
        self
    }

    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.response = Some(Content { media_type: "application/json", schema: schema_of::<T> });
        self
    }

    /// Returns one object with its version.
    pub fn returns_object<T: JsonSchema>(mut self) -> Self {
        self.has_version = true;
        self.returns::<T>()
    }

    /// Returns no body.
    pub fn returns_nothing(mut self, status: u16) -> Self {
        self.response = None;
        self.status(status)
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Returns a stream, or content that is not JSON.
    pub fn streams<T: JsonSchema>(mut self, media_type: &'static str) -> Self {
        self.response = Some(Content { media_type, schema: schema_of::<T> });
        self.is_stream = true;
        self
    }

    /// Switches to another protocol.
    pub fn upgrades(mut self) -> Self {
        self.is_stream = true;
        self.returns_nothing(101)
    }

    /// Is a change that a worker executes: 202 with the location of the request.
    pub fn accepted(mut self) -> Self {
        self.is_change = true;
        self.status(202).returns::<Accepted>()
    }

    /// Can be validated without execution, which returns the object as it would be.
    pub fn dry_run<T: JsonSchema>(mut self) -> Self {
        self.dry_run = Some(schema_of::<T>);
        self.query(&[DRY_RUN])
    }

    fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    pub(super) fn to_json(&self, generator: &mut SchemaGenerator) -> Value {
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "parameters": self.parameters(generator),
            "responses": self.responses(generator),
        });
        if let Some(body) = &self.body {
            let mut content = content("application/json", &(body.schema)(generator));
            content["application/json"]["example"] = body.example.clone();
            operation["requestBody"] = json!({"required": body.is_required, "content": content});
        }
        match self.action {
            Some(action) => {
                operation["x-odc-action"] = json!(action.as_str());
                operation["x-odc-scope"] = json!(action.scope().map(Scope::as_str));
            }
            None => operation["security"] = json!([]),
        }
        operation
    }

    fn parameters(&self, generator: &mut SchemaGenerator) -> Vec<Value> {
        let path = self.path_parameters().map(|name| {
            let schema = json!({"type": "string", "pattern": NAME_PATTERN, "maxLength": MAX_NAME_LENGTH});
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        });
        let query = self.parameters.iter().map(|parameter| {
            let schema = (parameter.schema)(generator);
            json!({"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema})
        });
        path.chain(query).chain(self.headers()).collect()
    }

    fn headers(&self) -> Vec<Value> {
        let header = |name: &str, description: &str| json!({"name": name, "in": "header", "description": description, "schema": {"type": "string"}});
        let mut headers = vec![];
        if self.is_change {
            headers.push(header("Idempotency-Key", "Makes it safe to repeat the request for 24 hours."));
            headers.push(header("Prefer", "`wait=10` waits up to 10 seconds, at most 30, for the result; `return=representation` adds the object."));
            if self.method != "post" {
                headers.push(header("If-Match", "ETag of the version to change."));
            }
        }
        if self.has_version {
            headers.push(header("If-None-Match", "ETag of a version that the client has; it is answered with 304."));
            headers.push(header("Prefer", "`wait=10` waits up to 10 seconds, at most 30, for another version."));
        }
        headers
    }

    /// Returns the documented responses. Errors may have any status, because those of the cluster are passed on; a status of
    /// success that is not listed is a mistake.
    fn responses(&self, generator: &mut SchemaGenerator) -> Value {
        let mut responses = Map::new();
        let mut success = json!({"description": self.summary});
        if let Some(content) = &self.response {
            success["content"] = content.to_json(generator);
        }
        if self.is_change {
            success["description"] = json!("The request is accepted and will be executed.");
            success["headers"] = json!({"Location": {"description": "Path of the request, which has the result.",
                "schema": {"type": "string"}}});
            responses.insert("200".to_owned(), self.executed(generator));
        }
        if self.has_version {
            success["headers"] =
                json!({"ETag": {"description": "Version of the object.", "schema": {"type": "string"}}});
            responses.insert("304".to_owned(), json!({"description": "The client has the current version."}));
        }
        responses.insert(self.status.to_string(), success);
        for status in ["4XX", "5XX"] {
            responses.insert(status.to_owned(), json!({"$ref": PROBLEM_REFERENCE}));
        }
        responses.into()
    }

    /// Returns the response to a change whose result is known.
    fn executed(&self, generator: &mut SchemaGenerator) -> Value {
        let accepted = schema_of::<Accepted>(generator);
        let (description, schema) = match self.dry_run {
            Some(object) => {
                let schema = json_schema!({"anyOf": [accepted, object(generator)]});
                ("The result, if the client waited for it, or the object of a dry run.", schema)
            }
            None => ("The result, if the client waited for it.", accepted),
        };
        json!({"description": description, "content": content("application/json", &schema)})
    }
}
