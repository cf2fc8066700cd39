//! The audit log.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::page::{Page, Visible};
use crate::time::{self, to_sql};
use crate::{Result, Store};

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub name: String,
    pub kind: ActorKind,
    pub key_id: Option<String>,
}

/// How an actor was identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorKind {
    ApiKey,
    /// A Kubernetes token.
    Kubernetes,
    /// The field manager of a change that was observed in the cluster.
    FieldManager,
    System,
}

impl ActorKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "ApiKey",
            Self::Kubernetes => "Kubernetes",
            Self::FieldManager => "FieldManager",
            Self::System => "System",
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub client_ip: Option<IpAddr>,
    /// At most 256 characters.
    pub user_agent: Option<String>,
}

/// The result of an audited action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request was accepted and is executed later.
    Accepted,
    Succeeded,
    /// The API server rejected an accepted request.
    Rejected,
    Failed,
    /// The caller lacks permission.
    Denied,
    /// A change was made in the cluster, not through the API.
    Observed,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Succeeded => "Succeeded",
            Self::Rejected => "Rejected",
            Self::Failed => "Failed",
            Self::Denied => "Denied",
            Self::Observed => "Observed",
        }
    }
}

/// An entry to append.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub actor: &'a Actor,
    pub origin: &'a Origin,
    /// The user whose object is affected.
    pub user: Option<&'a str>,
    /// Such as `devserver.create`.
    pub action: &'a str,
    pub object_kind: &'a str,
    pub object_name: &'a str,
    pub result: Outcome,
    pub request_id: Option<Uuid>,
    pub details: Value,
}

/// The values of an entry as parameters of a statement.
pub(crate) struct Columns<'a> {
    pub actor: &'a str,
    pub actor_kind: &'static str,
    pub key_id: Option<&'a str>,
    pub user: Option<&'a str>,
    pub action: &'a str,
    pub object_kind: &'a str,
    pub object_name: &'a str,
    pub result: &'static str,
    pub request_id: Option<Uuid>,
    pub client_ip: Option<String>,
    pub user_agent: Option<&'a str>,
    pub details: &'a Value,
}

impl Entry<'_> {
    pub(crate) fn columns(&self) -> Columns<'_> {
        Columns {
            actor: &self.actor.name,
            actor_kind: self.actor.kind.as_str(),
            key_id: self.actor.key_id.as_deref(),
            user: self.user,
            action: self.action,
            object_kind: self.object_kind,
            object_name: self.object_name,
            result: self.result.as_str(),
            request_id: self.request_id,
            client_ip: self.origin.client_ip.map(|address| address.to_string()),
            user_agent: self.origin.user_agent.as_deref(),
            details: &self.details,
        }
    }
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub actor_kind: String,
    pub key_id: Option<String>,
    pub user: Option<String>,
    pub action: String,
    pub object_kind: String,
    pub object_name: String,
    pub object_uid: Option<Uuid>,
    pub result: String,
    pub request_id: Option<Uuid>,
    pub client_ip: Option<String>,
    pub user_agent: Option<String>,
    pub details: Value,
}

/// Which entries to return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub actor: Option<String>,
    pub action: Option<String>,
    pub object_name: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Store {
    /// Appends an entry for an action that changes nothing else in the database, such as a denial.
    pub async fn record(&self, entry: &Entry<'_>) -> Result<()> {
        let entry = entry.columns();
        sqlx::query!(
            r#"
            INSERT INTO audit_log (actor, actor_kind, key_id, user_name, action, object_kind, object_name, result,
                request_id, client_ip, user_agent, details)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::inet, $11, $12)
            "#,
            entry.actor,
            entry.actor_kind,
            entry.key_id,
            entry.user,
            entry.action,
            entry.object_kind,
            entry.object_name,
            entry.result,
            entry.request_id,
            entry.client_ip,
            entry.user_agent,
            entry.details
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Returns entries about the objects of the visible users, newest first.
    pub async fn list_audit(&self, visible: &Visible, filter: &Filter, page: &Page<i64>) -> Result<Vec<Recorded>> {
        let rows = sqlx::query!(
            r#"
            SELECT id, at AS "at: time::Sql", actor, actor_kind, key_id, user_name, action, object_kind, object_name,
                object_uid, result, request_id, host(client_ip) AS client_ip, user_agent, details
            FROM audit_log
            WHERE ($1::text IS NULL OR user_name = $1)
                AND ($2::text IS NULL OR actor = $2)
                AND ($3::text IS NULL OR action = $3)
                AND ($4::text IS NULL OR object_name = $4)
                AND ($5::timestamptz IS NULL OR at >= $5)
                AND ($6::timestamptz IS NULL OR at < $6)
                AND ($7::timestamptz IS NULL OR (at, id) < ($7, $8::bigint))
            ORDER BY at DESC, id DESC LIMIT $9
            "#,
            visible.user(),
            filter.actor.as_deref(),
            filter.action.as_deref(),
            filter.object_name.as_deref(),
            filter.since.map(to_sql) as _,
            filter.until.map(to_sql) as _,
            page.after.map(|(at, _)| to_sql(at)) as _,
            page.after.map(|(_, id)| id),
            page.limit()
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Recorded {
                id: row.id,
                at: row.at.to_jiff(),
                actor: row.actor,
                actor_kind: row.actor_kind,
                key_id: row.key_id,
                user: row.user_name,
                action: row.action,
                object_kind: row.object_kind,
                object_name: row.object_name,
                object_uid: row.object_uid,
                result: row.result,
                request_id: row.request_id,
                client_ip: row.client_ip,
                user_agent: row.user_agent,
                details: row.details,
            })
            .collect())
    }
}
