//! Requests, and values read with SQL.

use odc_store::Store;
use odc_store::audit::{Actor, ActorKind, Entry, Origin, Outcome};
use odc_store::queue::{Delivery, Finish, FinishResult, Message, Queue};
use odc_store::request::{Accepted, NewRequest};
use serde_json::{Value, json};
use uuid::Uuid;

pub use odc_tests::sql::{administrator, count, execute, value};

/// A visibility timeout that does not end during a test.
pub const LONG: u32 = 300;

/// A request of user `ada` about server `box`.
#[derive(Clone, Debug)]
pub struct TestRequest {
    pub id: Uuid,
    pub queue: Queue,
    pub name: String,
    pub payload: Value,
    pub idempotency_key: Option<String>,
    pub body_hash: [u8; 32],
}

impl TestRequest {
    pub fn new() -> Self {
        Self {
            id: Uuid::now_v7(),
            queue: Queue::Reservations,
            name: "box".to_owned(),
            payload: json!({"flavor": "cpu"}),
            idempotency_key: None,
            body_hash: [1; 32],
        }
    }

    pub fn with_key(key: &str) -> Self {
        Self { idempotency_key: Some(key.to_owned()), ..Self::new() }
    }

    pub async fn accept(&self, store: &Store) -> odc_store::Result<Accepted> {
        self.accept_within(store, None).await
    }

    pub async fn accept_within(&self, store: &Store, max_pending: Option<u32>) -> odc_store::Result<Accepted> {
        self.accept_as(store, &actor(), max_pending).await
    }

    pub async fn accept_as(
        &self,
        store: &Store,
        actor: &Actor,
        max_pending: Option<u32>,
    ) -> odc_store::Result<Accepted> {
        let request = NewRequest {
            id: self.id,
            user: "ada",
            actor,
            origin: &origin(),
            queue: self.queue,
            action: "devserver.create",
            object_kind: "DevServer",
            object_name: &self.name,
            payload: &self.payload,
            idempotency_key: self.idempotency_key.as_deref(),
            body_hash: self.body_hash,
            client_version: Some("0.1.0"),
        };
        store.accept_within(&request, max_pending).await
    }
}

pub fn actor() -> Actor {
    Actor { name: "ada".to_owned(), kind: ActorKind::ApiKey, key_id: Some("k12345678901".to_owned()) }
}

pub fn origin() -> Origin {
    Origin { client_ip: Some([192, 0, 2, 1].into()), user_agent: Some("devctl/0.1.0".to_owned()) }
}

pub fn entry<'a>(actor: &'a Actor, origin: &'a Origin, action: &'a str) -> Entry<'a> {
    Entry {
        actor,
        origin,
        user: Some("ada"),
        action,
        object_kind: "ApiKey",
        object_name: "",
        result: Outcome::Succeeded,
        request_id: None,
        details: json!({}),
    }
}

/// Accepts this number of requests.
pub async fn accept_many(store: &Store, count: usize) -> odc_store::Result<Vec<Uuid>> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let request = TestRequest::new();
        request.accept(store).await?;
        ids.push(request.id);
    }
    Ok(ids)
}

/// Reads up to ten messages of each queue.
pub async fn read(store: &Store, visibility_seconds: u32) -> odc_store::Result<Vec<Message>> {
    store.read_messages(|_| 10, visibility_seconds).await
}

pub fn succeed(message: &Message) -> Finish {
    finish(message.delivery, message.request.as_ref().map(|work| work.id), FinishResult::Succeeded)
}

pub fn fail(message: &Message, reason: &str) -> Finish {
    let result = FinishResult::Failed { reason: reason.to_owned(), message: "it failed".to_owned() };
    finish(message.delivery, message.request.as_ref().map(|work| work.id), result)
}

pub fn finish(delivery: Delivery, request_id: Option<Uuid>, result: FinishResult) -> Finish {
    Finish { delivery, request_id, result }
}
