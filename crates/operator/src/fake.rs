//! An API server for tests: it answers as a function says, and tells what it was asked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use crate::clock::Clock;
use crate::config::Options;
use crate::context::Context;
use crate::health::Health;
use crate::lease::{Lead, Stored};

#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    query: String,
    pub body: Value,
}

impl Asked {
    /// A word of the query; none of ours needs escaping.
    pub fn query(&self, name: &str) -> Option<&str> {
        let mut words = self.query.split('&').filter_map(|word| word.split_once('='));
        words.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

pub struct Fake {
    pub client: Client,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// Everything so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers with a code and an object. Of a refusal the code is enough.
pub fn answering(answer: impl FnMut(&Asked) -> (u16, Value) + Send + 'static) -> Fake {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::new(Mutex::new(answer));
    let noted = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (answer, noted) = (answer.clone(), noted.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let asked = Asked {
                method: head.method.to_string(),
                path: head.uri.path().to_owned(),
                query: head.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            let (code, object) = (answer.lock().unwrap_or_else(PoisonError::into_inner))(&asked);
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
            let object = if code < 300 { object } else { refusal(code) };
            let answer = http::Response::builder().status(code).body(Body::from(serde_json::to_vec(&object)?))?;
            Ok::<_, BoxError>(answer)
        }
    });
    Fake { client: Client::new(service, "default"), asked }
}

fn refusal(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "Refused",
    };
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code,
        "message": "refused", "reason": reason})
}

/// What a leader has at hand, with empty copies of the cluster; nothing of it runs.
pub fn context(client: Client) -> Arc<Context> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let line = Line::parse_from(["operator", "--agent-image", "agent", "--default-image", "base"]);
    // For longer than any test runs.
    let lead = Lead::new(1, Stored::default(), Instant::now() + Duration::from_secs(3600));
    let config = line.options.settle().unwrap();
    crate::work(config, client, Clock::new(), lead, "test", &Health::default()).unwrap().1
}
