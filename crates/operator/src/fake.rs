//! A fake API server for tests: responds by a function and records the requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::BoxError;

use crate::api_server_clock::Clock;
use crate::config::Options;
use crate::context::Context;
use crate::health::Health;
use crate::leader::{Leadership, LeaseVersion};

#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: String,
    pub path: String,
    query: String,
    pub body: Value,
}

impl RecordedRequest {
    /// Returns a query parameter. Escapes are not decoded; the operator's queries have none.
    pub fn query(&self, name: &str) -> Option<&str> {
        let mut parameters = self.query.split('&').filter_map(|pair| pair.split_once('='));
        parameters.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

pub struct FakeApiServer {
    pub client: Client,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl FakeApiServer {
    /// Returns all requests so far, in order.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().clone()
    }
}

/// Creates an API server that responds with a status code and an object. The object of an error is ignored.
pub fn api_server(respond: impl FnMut(&RecordedRequest) -> (u16, Value) + Send + 'static) -> FakeApiServer {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let respond = Arc::new(Mutex::new(respond));
    let recorded = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (respond, recorded) = (respond.clone(), recorded.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = RecordedRequest {
                method: head.method.to_string(),
                path: head.uri.path().to_owned(),
                query: head.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            let (code, object) = (respond.lock())(&request);
            recorded.lock().push(request);
            let object = if code < 300 { object } else { error_status(code) };
            let response = http::Response::builder().status(code).body(Body::from(serde_json::to_vec(&object)?))?;
            Ok::<_, BoxError>(response)
        }
    });
    FakeApiServer { client: Client::new(service, "default"), requests }
}

fn error_status(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Rejected",
    };
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code,
        "message": "rejected", "reason": reason})
}

/// Returns the context of a leader with empty caches; none of its tasks run.
pub fn context(client: Client) -> Arc<Context> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let line = Line::parse_from(["operator", "--agent-image", "agent", "--default-image", "base"]);
    // Longer than any test.
    let leadership = Leadership::new(1, LeaseVersion::default(), Instant::now() + Duration::from_secs(3600));
    let config = line.options.into_config().unwrap();
    crate::leader_tasks::build(config, client, Clock::new(), leadership, "test", &Health::default()).unwrap().1
}
