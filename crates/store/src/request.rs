//! Accepted requests. The worker executes them and records the result.

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::audit::{Actor, Origin};
use crate::queue::Queue;
use crate::time;
use crate::{Error, Result, Store};

/// A request to accept.
#[derive(Clone, Debug)]
pub struct NewRequest<'a> {
    pub id: Uuid,
    /// The user on whose behalf it is executed.
    pub user: &'a str,
    pub actor: &'a Actor,
    pub origin: &'a Origin,
    pub queue: Queue,
    /// Such as `devserver.create`.
    pub action: &'a str,
    pub object_kind: &'a str,
    pub object_name: &'a str,
    pub payload: &'a Value,
    /// A request of the same actor with the same key is executed once.
    pub idempotency_key: Option<&'a str>,
    /// Identifies what was requested; a repeated request has the same.
    pub body_hash: [u8; 32],
    pub client_version: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    New(Uuid),
    /// The id of the first request with this idempotency key.
    Repeated(Uuid),
    /// The idempotency key was used for a different request.
    KeyReused,
    /// The actor has as many pending requests as allowed.
    TooMany,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Pending,
    Succeeded,
    /// The API server rejected it.
    Rejected,
    /// It could not be executed.
    Failed,
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Succeeded => "Succeeded",
            Self::Rejected => "Rejected",
            Self::Failed => "Failed",
        }
    }

    fn from_column(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Succeeded" => Self::Succeeded,
            "Rejected" => Self::Rejected,
            // The column has a check constraint.
            _ => Self::Failed,
        }
    }
}

/// A stored request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: Uuid,
    pub user: String,
    pub actor: String,
    pub action: String,
    pub object_kind: String,
    pub object_name: String,
    pub state: State,
    pub reason: Option<String>,
    pub message: Option<String>,
    /// HTTP status of the API server, if it rejected the request.
    pub status_code: Option<u16>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

impl Store {
    /// Stores a request, its audit entry and the message for the worker.
    ///
    /// After [`Error::Unavailable`] the request may have been accepted. Repeated with the same idempotency key, it is
    /// accepted once.
    pub async fn accept(&self, request: &NewRequest<'_>) -> Result<Accepted> {
        self.accept_within(request, None).await
    }

    /// As [`Self::accept`], unless the actor has `max_pending` pending requests. Concurrent calls may exceed it by the number
    /// of calls.
    pub async fn accept_within(&self, request: &NewRequest<'_>, max_pending: Option<u32>) -> Result<Accepted> {
        let row = sqlx::query!(
            r#"
            WITH request AS (
                INSERT INTO requests (id, user_name, actor, key_id, queue, action, object_kind, object_name, payload,
                    idempotency_key, body_hash, client_version)
                SELECT $1, $2, $3, $5, $6, $7, $8, $9, $10, $11, $12, $13
                WHERE $16::bigint IS NULL
                    OR (SELECT count(*) FROM (SELECT FROM requests WHERE actor = $3 AND state = 'Pending' LIMIT $16) pending)
                        < $16
                    -- A repeated request is not a further one.
                    OR EXISTS (SELECT FROM requests WHERE actor = $3 AND idempotency_key = $11)
                ON CONFLICT (actor, idempotency_key) DO UPDATE SET repeated_at = now()
                -- A row that was inserted, not updated, has no xmax.
                RETURNING id, body_hash = $12 AS is_same, xmax = 0 AS is_new
            ), entry AS (
                INSERT INTO audit_log (actor, actor_kind, key_id, user_name, action, object_kind, object_name, result,
                    request_id, client_ip, user_agent)
                SELECT $3, $4, $5, $2, $7, $8, $9, 'Accepted', id, $14::text::inet, $15 FROM request WHERE is_new
            ), message AS (
                SELECT pgmq.send($6, jsonb_build_object('version', 1, 'request', id)) FROM request WHERE is_new
            )
            SELECT id AS "id!", is_same AS "is_same!", is_new AS "is_new!", (SELECT count(*) FROM message) AS messages
            FROM request
            "#,
            request.id,
            request.user,
            request.actor.name,
            request.actor.kind.as_str(),
            request.actor.key_id.as_deref(),
            request.queue.as_str(),
            request.action,
            request.object_kind,
            request.object_name,
            request.payload,
            request.idempotency_key,
            request.body_hash.as_slice(),
            request.client_version,
            request.origin.client_ip.map(|address| address.to_string()),
            request.origin.user_agent.as_deref(),
            max_pending.map(i64::from)
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(Error::from)?;
        Ok(match row {
            None => Accepted::TooMany,
            Some(row) if row.is_new => Accepted::New(row.id),
            Some(row) if row.is_same => Accepted::Repeated(row.id),
            Some(_) => Accepted::KeyReused,
        })
    }

    /// Returns a request.
    pub async fn get_request(&self, id: Uuid) -> Result<Option<Request>> {
        let row = sqlx::query_as!(
            Row,
            r#"
            SELECT id, user_name, actor, action, object_kind, object_name, state, reason, message, status_code,
                created_at AS "created_at: time::Sql", finished_at AS "finished_at: time::Sql"
            FROM requests WHERE id = $1
            "#,
            id
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(Row::into_request))
    }

    /// Returns those of some requests that have ended.
    pub async fn finished_requests(&self, ids: &[Uuid]) -> Result<Vec<Request>> {
        let rows = sqlx::query_as!(
            Row,
            r#"
            SELECT id, user_name, actor, action, object_kind, object_name, state, reason, message, status_code,
                created_at AS "created_at: time::Sql", finished_at AS "finished_at: time::Sql"
            FROM requests WHERE id = ANY($1) AND state <> 'Pending'
            "#,
            ids
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Row::into_request).collect())
    }
}

/// The columns of a [`Request`].
struct Row {
    id: Uuid,
    user_name: String,
    actor: String,
    action: String,
    object_kind: String,
    object_name: String,
    state: String,
    reason: Option<String>,
    message: Option<String>,
    status_code: Option<i16>,
    created_at: time::Sql,
    finished_at: Option<time::Sql>,
}

impl Row {
    fn into_request(self) -> Request {
        Request {
            id: self.id,
            user: self.user_name,
            actor: self.actor,
            action: self.action,
            object_kind: self.object_kind,
            object_name: self.object_name,
            state: State::from_column(&self.state),
            reason: self.reason,
            message: self.message,
            status_code: self.status_code.and_then(|code| code.try_into().ok()),
            created_at: self.created_at.to_jiff(),
            finished_at: self.finished_at.map(time::Sql::to_jiff),
        }
    }
}
