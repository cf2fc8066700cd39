//! The queues from which the worker executes requests (PGMQ).
//!
//! A message is invisible while a worker handles it, and becomes visible again if that takes longer than the visibility
//! timeout. Its `read_ct` then increases, so the pair (`msg_id`, `read_ct`) identifies one delivery: a worker whose delivery
//! is no longer current cannot finish or delay the message. PGMQ's own functions compare only `msg_id`.

use jiff::Timestamp;
use serde_json::Value;
use sqlx::postgres::PgListener;
use uuid::Uuid;

use crate::request::State;
use crate::time;
use crate::{Result, Store};

/// A queue. The names are those of seed 001 and its successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// Requests about servers.
    Reservations,
    /// Requests about disks.
    DiskOperations,
    /// Requests about users, teams, flavors and nodes.
    AdminOperations,
}

impl Queue {
    pub const ALL: [Self; 3] = [Self::Reservations, Self::DiskOperations, Self::AdminOperations];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reservations => "gpu_reservations",
            Self::DiskOperations => "disk_operations",
            Self::AdminOperations => "admin_operations",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|queue| queue.as_str() == name)
    }
}

/// One delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    pub queue: Queue,
    pub msg_id: i64,
    pub read_ct: i32,
}

/// A message that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub delivery: Delivery,
    pub enqueued_at: Timestamp,
    /// How many deliveries ended with a temporary failure, and how many before the request was executed. The others ended
    /// without a result, such as by a crash of the worker.
    pub delays: i32,
    pub returns: i32,
    pub body: Value,
    /// Absent if the message does not belong to a pending request. It cannot be executed.
    pub request: Option<Work>,
}

/// What a worker needs to execute a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    pub id: Uuid,
    pub user: String,
    pub actor: String,
    pub action: String,
    pub object_name: String,
    pub payload: Value,
    pub created_at: Timestamp,
}

/// The end of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    pub delivery: Delivery,
    pub request_id: Option<Uuid>,
    pub result: FinishResult,
}

/// The end of a delivery without a result. The message becomes visible again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    pub delivery: Delivery,
    pub seconds: u32,
    /// Whether an attempt to execute the request failed. Otherwise the message is returned.
    pub has_failed: bool,
}

/// A successful message is deleted, any other is archived with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishResult {
    Succeeded,
    Rejected { status_code: u16, message: String },
    Failed { reason: String, message: String },
}

impl FinishResult {
    const fn state(&self) -> State {
        match self {
            Self::Succeeded => State::Succeeded,
            Self::Rejected { .. } => State::Rejected,
            Self::Failed { .. } => State::Failed,
        }
    }
}

/// The length of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    pub queue: Queue,
    pub messages: u64,
    pub oldest: Option<Timestamp>,
}

/// The maximum length of a stored message, in characters.
const MAX_MESSAGE_LENGTH: usize = 4096;
/// The maximum length of a stored reason, in characters.
const MAX_REASON_LENGTH: usize = 128;

impl Store {
    /// Reads up to `limit` messages of each queue and makes them invisible. The read is committed alone, so that a message
    /// that crashes the worker is counted.
    pub async fn read_messages(&self, limit: impl Fn(Queue) -> u32, visibility_seconds: u32) -> Result<Vec<Message>> {
        let limit = |queue| i32::try_from(limit(queue)).unwrap_or(i32::MAX);
        let rows = sqlx::query!(
            r#"
            WITH message AS (
                SELECT 'gpu_reservations' AS queue, m.* FROM pgmq.read('gpu_reservations', $1, $2) m
                UNION ALL
                SELECT 'disk_operations', m.* FROM pgmq.read('disk_operations', $1, $3) m
                UNION ALL
                SELECT 'admin_operations', m.* FROM pgmq.read('admin_operations', $1, $4) m
            )
            SELECT m.queue AS "queue!", m.msg_id AS "msg_id!", m.read_ct AS "read_ct!",
                m.enqueued_at AS "enqueued_at!: time::Sql", m.message AS "body!",
                COALESCE((m.headers ->> 'delays')::int, 0) AS "delays!",
                COALESCE((m.headers ->> 'returns')::int, 0) AS "returns!",
                r.id AS "id?", r.user_name AS "user_name?", r.actor AS "actor?", r.action AS "action?",
                r.object_name AS "object_name?", r.payload AS "payload?", r.created_at AS "created_at?: time::Sql"
            FROM message m LEFT JOIN LATERAL (
                SELECT * FROM requests
                -- Without the check, a malformed message would block all others.
                WHERE id = CASE WHEN m.message ->> 'request' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                        THEN (m.message ->> 'request')::uuid END
                    AND queue = m.queue AND state = 'Pending'
                -- One by one with the index. A join would read the whole table, because functions are assumed to return
                -- many rows.
                LIMIT 1
            ) r ON true
            ORDER BY m.queue, m.msg_id
            "#,
            i32::try_from(visibility_seconds).unwrap_or(i32::MAX),
            limit(Queue::Reservations),
            limit(Queue::DiskOperations),
            limit(Queue::AdminOperations)
        )
        .fetch_all(&self.pool)
        .await?;
        let message = |row| {
            let Row { queue, msg_id, read_ct, enqueued_at, delays, returns, body, work } = row;
            Some(Message {
                delivery: Delivery { queue: Queue::from_name(&queue)?, msg_id, read_ct },
                enqueued_at,
                delays,
                returns,
                body,
                request: work,
            })
        };
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                let work = match (row.id, row.user_name, row.actor, row.action, row.object_name, row.payload) {
                    (Some(id), Some(user), Some(actor), Some(action), Some(object_name), Some(payload)) => {
                        let created_at = row.created_at?.to_jiff();
                        Some(Work { id, user, actor, action, object_name, payload, created_at })
                    }
                    _ => None,
                };
                message(Row {
                    queue: row.queue,
                    msg_id: row.msg_id,
                    read_ct: row.read_ct,
                    enqueued_at: row.enqueued_at.to_jiff(),
                    delays: row.delays,
                    returns: row.returns,
                    body: row.body,
                    work,
                })
            })
            .collect())
    }

    /// Ends deliveries: deletes or archives the messages, and stores the results and the audit entries of failures, all in
    /// one transaction. Returns the deliveries that were current.
    pub async fn finish_messages(&self, finished: &[Finish]) -> Result<Vec<Delivery>> {
        let mut columns = FinishColumns::default();
        for finish in finished {
            columns.push(finish);
        }
        let rows = sqlx::query!(
            r#"
            WITH outcome AS (
                SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::uuid[], $5::text[], $6::text[], $7::text[],
                    $8::smallint[])
                    AS o(queue, msg_id, read_ct, request_id, state, reason, failure, status_code)
            ), reservation AS (
                DELETE FROM pgmq.q_gpu_reservations q USING outcome o
                WHERE o.queue = 'gpu_reservations' AND q.msg_id = o.msg_id AND q.read_ct = o.read_ct
                RETURNING q.*, o.queue, o.request_id, o.state, o.reason, o.failure, o.status_code
            ), disk_operation AS (
                DELETE FROM pgmq.q_disk_operations q USING outcome o
                WHERE o.queue = 'disk_operations' AND q.msg_id = o.msg_id AND q.read_ct = o.read_ct
                RETURNING q.*, o.queue, o.request_id, o.state, o.reason, o.failure, o.status_code
            ), admin_operation AS (
                DELETE FROM pgmq.q_admin_operations q USING outcome o
                WHERE o.queue = 'admin_operations' AND q.msg_id = o.msg_id AND q.read_ct = o.read_ct
                RETURNING q.*, o.queue, o.request_id, o.state, o.reason, o.failure, o.status_code
            ), archived_reservation AS (
                INSERT INTO pgmq.a_gpu_reservations (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers)
                SELECT msg_id, read_ct, enqueued_at, last_read_at, vt, message,
                    COALESCE(headers, '{}') || jsonb_build_object('reason', reason, 'message', failure)
                FROM reservation WHERE state <> 'Succeeded'
            ), archived_disk_operation AS (
                INSERT INTO pgmq.a_disk_operations (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers)
                SELECT msg_id, read_ct, enqueued_at, last_read_at, vt, message,
                    COALESCE(headers, '{}') || jsonb_build_object('reason', reason, 'message', failure)
                FROM disk_operation WHERE state <> 'Succeeded'
            ), archived_admin_operation AS (
                INSERT INTO pgmq.a_admin_operations (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers)
                SELECT msg_id, read_ct, enqueued_at, last_read_at, vt, message,
                    COALESCE(headers, '{}') || jsonb_build_object('reason', reason, 'message', failure)
                FROM admin_operation WHERE state <> 'Succeeded'
            ), finished AS (
                SELECT * FROM reservation UNION ALL SELECT * FROM disk_operation UNION ALL SELECT * FROM admin_operation
            ), request AS (
                UPDATE requests r
                SET state = f.state, reason = f.reason, message = f.failure, status_code = f.status_code,
                    finished_at = now(),
                    -- Values of environment variables are not kept for longer than necessary.
                    payload = CASE WHEN r.payload #> '{spec,env}' IS NULL THEN r.payload ELSE r.payload #- '{spec,env}' END
                FROM finished f WHERE r.id = f.request_id AND r.state = 'Pending'
                RETURNING r.*
            ), entry AS (
                INSERT INTO audit_log (actor, actor_kind, user_name, action, object_kind, object_name, result, request_id,
                    details)
                SELECT actor, 'System', user_name, action, object_kind, object_name, state, id,
                    jsonb_build_object('reason', reason, 'message', message)
                FROM request WHERE state <> 'Succeeded'
            )
            SELECT queue AS "queue!", msg_id AS "msg_id!", read_ct AS "read_ct!" FROM finished
            "#,
            &columns.queues as _,
            &columns.msg_ids,
            &columns.read_cts,
            &columns.request_ids as _,
            &columns.states as _,
            &columns.reasons as _,
            &columns.messages as _,
            &columns.status_codes as _
        )
        .fetch_all(&self.pool)
        .await?;
        let delivery =
            |queue: &str, msg_id, read_ct| Some(Delivery { queue: Queue::from_name(queue)?, msg_id, read_ct });
        Ok(rows.into_iter().filter_map(|row| delivery(&row.queue, row.msg_id, row.read_ct)).collect())
    }

    /// Ends deliveries without a result: makes the messages visible again, and counts the delays and returns. Deliveries
    /// that are no longer current are ignored.
    pub async fn delay_messages(&self, delays: &[Delay]) -> Result<u64> {
        let queues: Vec<&str> = delays.iter().map(|delay| delay.delivery.queue.as_str()).collect();
        let msg_ids: Vec<i64> = delays.iter().map(|delay| delay.delivery.msg_id).collect();
        let read_cts: Vec<i32> = delays.iter().map(|delay| delay.delivery.read_ct).collect();
        let seconds: Vec<f64> = delays.iter().map(|delay| f64::from(delay.seconds)).collect();
        let counters: Vec<&str> =
            delays.iter().map(|delay| if delay.has_failed { "delays" } else { "returns" }).collect();
        let delayed = sqlx::query_scalar!(
            r#"
            WITH delay AS (
                SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::float8[], $5::text[])
                    AS d(queue, msg_id, read_ct, seconds, counter)
            ), reservation AS (
                UPDATE pgmq.q_gpu_reservations q SET vt = clock_timestamp() + make_interval(secs => d.seconds),
                    headers = COALESCE(q.headers, '{}')
                        || jsonb_build_object(d.counter, COALESCE((q.headers ->> d.counter)::int, 0) + 1)
                FROM delay d
                WHERE d.queue = 'gpu_reservations' AND q.msg_id = d.msg_id AND q.read_ct = d.read_ct RETURNING q.msg_id
            ), disk_operation AS (
                UPDATE pgmq.q_disk_operations q SET vt = clock_timestamp() + make_interval(secs => d.seconds),
                    headers = COALESCE(q.headers, '{}')
                        || jsonb_build_object(d.counter, COALESCE((q.headers ->> d.counter)::int, 0) + 1)
                FROM delay d
                WHERE d.queue = 'disk_operations' AND q.msg_id = d.msg_id AND q.read_ct = d.read_ct RETURNING q.msg_id
            ), admin_operation AS (
                UPDATE pgmq.q_admin_operations q SET vt = clock_timestamp() + make_interval(secs => d.seconds),
                    headers = COALESCE(q.headers, '{}')
                        || jsonb_build_object(d.counter, COALESCE((q.headers ->> d.counter)::int, 0) + 1)
                FROM delay d
                WHERE d.queue = 'admin_operations' AND q.msg_id = d.msg_id AND q.read_ct = d.read_ct RETURNING q.msg_id
            )
            SELECT (SELECT count(*) FROM reservation) + (SELECT count(*) FROM disk_operation)
                + (SELECT count(*) FROM admin_operation) AS "delayed!"
            "#,
            &queues as _,
            &msg_ids,
            &read_cts,
            &seconds,
            &counters as _
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(delayed.unsigned_abs())
    }

    /// Keeps messages invisible for longer, while they are handled. Returns the deliveries that are current.
    pub async fn extend_visibility(&self, deliveries: &[Delivery], seconds: u32) -> Result<Vec<Delivery>> {
        let queues: Vec<&str> = deliveries.iter().map(|delivery| delivery.queue.as_str()).collect();
        let msg_ids: Vec<i64> = deliveries.iter().map(|delivery| delivery.msg_id).collect();
        let read_cts: Vec<i32> = deliveries.iter().map(|delivery| delivery.read_ct).collect();
        let rows = sqlx::query!(
            r#"
            WITH delivery AS (
                SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[]) AS d(queue, msg_id, read_ct)
            ), reservation AS (
                UPDATE pgmq.q_gpu_reservations q SET vt = clock_timestamp() + make_interval(secs => $4) FROM delivery d
                WHERE d.queue = 'gpu_reservations' AND q.msg_id = d.msg_id AND q.read_ct = d.read_ct RETURNING d.*
            ), disk_operation AS (
                UPDATE pgmq.q_disk_operations q SET vt = clock_timestamp() + make_interval(secs => $4) FROM delivery d
                WHERE d.queue = 'disk_operations' AND q.msg_id = d.msg_id AND q.read_ct = d.read_ct RETURNING d.*
            ), admin_operation AS (
                UPDATE pgmq.q_admin_operations q SET vt = clock_timestamp() + make_interval(secs => $4) FROM delivery d
                WHERE d.queue = 'admin_operations' AND q.msg_id = d.msg_id AND q.read_ct = d.read_ct RETURNING d.*
            )
            SELECT queue AS "queue!", msg_id AS "msg_id!", read_ct AS "read_ct!" FROM reservation
            UNION ALL SELECT * FROM disk_operation UNION ALL SELECT * FROM admin_operation
            "#,
            &queues as _,
            &msg_ids,
            &read_cts,
            f64::from(seconds)
        )
        .fetch_all(&self.pool)
        .await?;
        let delivery =
            |queue: &str, msg_id, read_ct| Some(Delivery { queue: Queue::from_name(queue)?, msg_id, read_ct });
        Ok(rows.into_iter().filter_map(|row| delivery(&row.queue, row.msg_id, row.read_ct)).collect())
    }

    /// Returns the number of messages of each queue and the time of the oldest.
    pub async fn queue_depths(&self) -> Result<Vec<Depth>> {
        let rows = sqlx::query!(
            r#"
            SELECT 'gpu_reservations' AS "queue!", count(*) AS "messages!", min(enqueued_at) AS "oldest: time::Sql"
            FROM pgmq.q_gpu_reservations
            UNION ALL
            SELECT 'disk_operations', count(*), min(enqueued_at) FROM pgmq.q_disk_operations
            UNION ALL
            SELECT 'admin_operations', count(*), min(enqueued_at) FROM pgmq.q_admin_operations
            "#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                let queue = Queue::from_name(&row.queue)?;
                Some(Depth { queue, messages: row.messages.unsigned_abs(), oldest: row.oldest.map(time::Sql::to_jiff) })
            })
            .collect())
    }
}

/// Makes the messages of workers that no longer exist visible. Returns their number, or none if another worker is connected:
/// its messages must not be delivered twice, and those of a crashed one become visible after the visibility timeout.
///
/// The connection then marks this worker as connected until it is closed.
pub(crate) async fn recover(connection: &mut PgListener) -> sqlx::Result<Option<u64>> {
    let alone = sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "locked!""#, WORKER_LOCK)
        .fetch_one(&mut *connection)
        .await?;
    let released = if alone {
        let released = sqlx::query_scalar!(
            r#"
            WITH reservation AS (
                UPDATE pgmq.q_gpu_reservations SET vt = clock_timestamp() WHERE vt > clock_timestamp() RETURNING msg_id
            ), disk_operation AS (
                UPDATE pgmq.q_disk_operations SET vt = clock_timestamp() WHERE vt > clock_timestamp() RETURNING msg_id
            ), admin_operation AS (
                UPDATE pgmq.q_admin_operations SET vt = clock_timestamp() WHERE vt > clock_timestamp() RETURNING msg_id
            )
            SELECT (SELECT count(*) FROM reservation) + (SELECT count(*) FROM disk_operation)
                + (SELECT count(*) FROM admin_operation) AS "released!"
            "#
        )
        .fetch_one(&mut *connection)
        .await?;
        Some(released.unsigned_abs())
    } else {
        None
    };
    mark_connected(connection).await?;
    if alone {
        sqlx::query!("SELECT pg_advisory_unlock($1)", WORKER_LOCK).fetch_one(&mut *connection).await?;
    }
    Ok(released)
}

/// Marks this worker as connected until the connection is closed.
pub(crate) async fn mark_connected(connection: &mut PgListener) -> sqlx::Result<()> {
    sqlx::query!("SELECT pg_advisory_lock_shared($1)", WORKER_LOCK).fetch_one(connection).await?;
    Ok(())
}

/// The advisory lock that every worker holds as shared.
const WORKER_LOCK: i64 = 0x006f_6463_776f_726b;

/// A row of [`Store::read_messages`].
struct Row {
    queue: String,
    msg_id: i64,
    read_ct: i32,
    enqueued_at: Timestamp,
    delays: i32,
    returns: i32,
    body: Value,
    work: Option<Work>,
}

/// Codes of failed requests, which are stored.
const STATUS_CODES: std::ops::RangeInclusive<u16> = 400..=599;

/// Columns of the parameters of [`Store::finish_messages`].
#[derive(Default)]
struct FinishColumns {
    queues: Vec<&'static str>,
    msg_ids: Vec<i64>,
    read_cts: Vec<i32>,
    request_ids: Vec<Option<Uuid>>,
    states: Vec<&'static str>,
    reasons: Vec<Option<String>>,
    messages: Vec<Option<String>>,
    status_codes: Vec<Option<i16>>,
}

impl FinishColumns {
    fn push(&mut self, finish: &Finish) {
        let (reason, message, status_code) = match &finish.result {
            FinishResult::Succeeded => (None, None, None),
            FinishResult::Rejected { status_code, message } => {
                let code = Some(*status_code).filter(|code| STATUS_CODES.contains(code));
                (Some("Rejected"), Some(message.as_str()), code.and_then(|code| i16::try_from(code).ok()))
            }
            FinishResult::Failed { reason, message } => (Some(reason.as_str()), Some(message.as_str()), None),
        };
        self.queues.push(finish.delivery.queue.as_str());
        self.msg_ids.push(finish.delivery.msg_id);
        self.read_cts.push(finish.delivery.read_ct);
        self.request_ids.push(finish.request_id);
        self.states.push(finish.result.state().as_str());
        self.reasons.push(reason.map(|reason| storable(reason, MAX_REASON_LENGTH)));
        self.messages.push(message.map(|message| storable(message, MAX_MESSAGE_LENGTH)));
        self.status_codes.push(status_code);
    }
}

/// Returns a text that PostgreSQL can store in a column of this length. One that it cannot store would fail all messages
/// that are finished together.
fn storable(text: &str, max_length: usize) -> String {
    text.chars().filter(|character| *character != '\0').take(max_length).collect()
}
