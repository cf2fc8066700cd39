//! Use of devices and of language models.

use jiff::Timestamp;

use crate::page::Visible;
use crate::time::to_sql;
use crate::{Result, Store};

/// The use of one flavor by one user in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub user: String,
    pub team: Option<String>,
    pub flavor: String,
    /// Time in which servers of the flavor held devices, summed over the servers.
    pub server_seconds: u64,
    pub device_seconds: u64,
    /// In millionths of the currency of the cluster.
    pub cost_millionths: u64,
}

/// A request to a language model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUsage<'a> {
    pub provider: &'a str,
    pub provider_request_id: &'a str,
    pub user: &'a str,
    pub model: &'a str,
    pub input_tokens: i64,
    pub output_tokens: i64,
}

/// The tokens of one model that a user used in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSum {
    pub user: String,
    pub provider: String,
    pub model: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// The maximum number of rows of a report.
const MAX_ROWS: i64 = 10_000;

impl Store {
    /// Returns the use of devices between two times, by user, team and flavor. Current use counts up to now.
    pub async fn usage(&self, visible: &Visible, from: Timestamp, until: Timestamp) -> Result<Vec<Usage>> {
        let rows = sqlx::query!(
            r#"
            WITH part AS (
                SELECT user_name, team, flavor, devices, price_per_device_hour_millionths AS price,
                    EXTRACT(EPOCH FROM LEAST(COALESCE(ended_at, now()), $3) - GREATEST(started_at, $2)) AS seconds
                FROM usage_intervals
                WHERE ($1::text IS NULL OR user_name = $1) AND started_at < $3
                    -- Also false for a period that ends before it starts.
                    AND GREATEST(started_at, $2) < LEAST(COALESCE(ended_at, now()), $3)
            )
            SELECT user_name AS "user_name!", team, flavor AS "flavor!",
                round(sum(seconds))::bigint AS "server_seconds!",
                round(sum(seconds * devices))::bigint AS "device_seconds!",
                LEAST(round(sum(seconds * devices * price) / 3600), 9223372036854775807)::bigint AS "cost_millionths!"
            FROM part GROUP BY user_name, team, flavor ORDER BY user_name, team, flavor LIMIT $4
            "#,
            visible.user(),
            to_sql(from) as _,
            to_sql(until) as _,
            MAX_ROWS
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Usage {
                user: row.user_name,
                team: row.team,
                flavor: row.flavor,
                server_seconds: row.server_seconds.unsigned_abs(),
                device_seconds: row.device_seconds.unsigned_abs(),
                cost_millionths: row.cost_millionths.unsigned_abs(),
            })
            .collect())
    }

    /// Records a request to a language model. Returns whether it was not recorded before. Fails with the constraint
    /// `token_usage_user_name_fkey` if the user is unknown.
    pub async fn record_tokens(&self, usage: &TokenUsage<'_>) -> Result<bool> {
        let inserted = sqlx::query!(
            r#"
            INSERT INTO token_usage (provider, provider_request_id, user_name, model, input_tokens, output_tokens)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (provider, provider_request_id) DO NOTHING
            "#,
            usage.provider,
            usage.provider_request_id,
            usage.user,
            usage.model,
            usage.input_tokens,
            usage.output_tokens
        )
        .execute(&self.pool)
        .await?;
        Ok(inserted.rows_affected() == 1)
    }

    /// Returns the tokens used between two times, by user and model.
    pub async fn token_usage(&self, visible: &Visible, from: Timestamp, until: Timestamp) -> Result<Vec<TokenSum>> {
        let rows = sqlx::query!(
            r#"
            SELECT user_name, provider, model, count(*) AS "requests!",
                -- The numbers are those of the reporters. An overflow of one user would fail the report of all.
                LEAST(sum(input_tokens), 9223372036854775807)::bigint AS "input_tokens!",
                LEAST(sum(output_tokens), 9223372036854775807)::bigint AS "output_tokens!"
            FROM token_usage WHERE ($1::text IS NULL OR user_name = $1) AND at >= $2 AND at < $3
            GROUP BY user_name, provider, model ORDER BY user_name, provider, model LIMIT $4
            "#,
            visible.user(),
            to_sql(from) as _,
            to_sql(until) as _,
            MAX_ROWS
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| TokenSum {
                user: row.user_name,
                provider: row.provider,
                model: row.model,
                requests: row.requests.unsigned_abs(),
                input_tokens: row.input_tokens.unsigned_abs(),
                output_tokens: row.output_tokens.unsigned_abs(),
            })
            .collect())
    }
}
