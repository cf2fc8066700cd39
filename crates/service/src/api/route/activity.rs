//! Requests, usage and the audit log, from the database.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::{Span, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::http::{AuditEntry, FlavorUsage, ModelUsage, Page, ProblemType, ReportTokens, Request};
use odc_core::access::Action;
use odc_store::audit::{Filter, Recorded};
use odc_store::usage::TokenUsage;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{CURSOR, LIMIT, LISTED_USER, OwnerQuery, USER, authorize_list, authorize_user};
use crate::api::App;
use crate::api::accept;
use crate::api::body::{Json, JsonBody, Name, Params, QueryTime};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Parameter, Routes, parameter};
use crate::api::error::{Error, Result};
use crate::api::page::{Cursor, rows};

const FROM: Parameter = parameter::<Time>("from", "Start of the period. Defaults to 30 days ago.");
const UNTIL: Parameter = parameter::<Time>("until", "End of the period. Defaults to now.");

pub(super) fn routes() -> Routes {
    let filters = [
        LISTED_USER,
        CURSOR,
        LIMIT,
        parameter::<String>("actor", "User who acted."),
        parameter::<String>("action", "Such as devserver.create."),
        parameter::<String>("object", "Name of the object."),
        parameter::<Time>("since", "Time of the oldest entry."),
        parameter::<Time>("until", "Time after the newest entry."),
    ];
    let tokens =
        json!({"provider": "bedrock", "providerRequestId": "r-1", "model": "m", "inputTokens": 10, "outputTokens": 5});
    Routes::default()
        .add(
            Operation::get("/requests/{id}", "getRequest", "Returns an accepted request and its result.")
                .requires(Action::ReadRequests)
                .returns::<Request>(),
            get_request,
        )
        .add(
            Operation::get("/usage", "getUsage", "Returns the use of devices, by user, team and flavor.")
                .requires(Action::ReadUsage)
                .query(&[LISTED_USER, FROM, UNTIL])
                .returns::<Page<FlavorUsage>>(),
            usage,
        )
        .add(
            Operation::get(
                "/usage/tokens",
                "getTokenUsage",
                "Returns the tokens of language models, by user and model.",
            )
            .requires(Action::ReadUsage)
            .query(&[LISTED_USER, FROM, UNTIL])
            .returns::<Page<ModelUsage>>(),
            token_usage,
        )
        .add(
            Operation::post("/usage/tokens", "reportTokens", "Reports a request to a language model.")
                .requires(Action::WriteUsage)
                .query(&[USER])
                .body::<ReportTokens>(tokens)
                .returns_nothing(204),
            report_tokens,
        )
        .add(
            Operation::get("/audit", "listAudit", "Lists the audit log, newest first.")
                .requires(Action::ReadAudit)
                .query(&filters)
                .returns::<Page<AuditEntry>>(),
            audit,
        )
}

/// Returns a request to its user and to its actor.
async fn get_request(State(app): State<App>, ctx: RequestContext, Name(id): Name) -> Result<Json<Request>> {
    let not_found = || Error::not_found("request", &id);
    let parsed: Uuid = id.parse().map_err(|_| not_found())?;
    let request = app.store.get_request(parsed).await?.ok_or_else(not_found)?;
    if request.actor != ctx.caller.user {
        authorize_user(&app, &ctx, Action::ReadRequests, &request.user, ("request", &id))?;
    }
    Ok(Json(accept::to_body(request)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeriodQuery {
    user: Option<String>,
    from: Option<QueryTime>,
    until: Option<QueryTime>,
}

impl PeriodQuery {
    fn period(&self) -> Result<(Timestamp, Timestamp)> {
        let until = self.until.map_or_else(Timestamp::now, QueryTime::get);
        let default = || until.checked_sub(Span::new().hours(30 * 24)).unwrap_or(Timestamp::MIN);
        let from = self.from.map_or_else(default, QueryTime::get);
        if from > until {
            return Err(Error::invalid("from must not be after until"));
        }
        Ok((from, until))
    }
}

async fn usage(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<PeriodQuery>,
) -> Result<Json<Page<FlavorUsage>>> {
    authorize_list(&app, &ctx, Action::ReadUsage, query.user.as_deref())?;
    let (from, until) = query.period()?;
    let rows = app.store.usage(&ctx.visible(query.user.as_deref()), from, until).await?;
    let items = rows.into_iter().map(|row| FlavorUsage {
        user: row.user,
        team: row.team,
        flavor: row.flavor,
        server_seconds: row.server_seconds,
        device_seconds: row.device_seconds,
        cost_millionths: row.cost_millionths,
    });
    Ok(Json(Page { items: items.collect(), next_cursor: None }))
}

async fn token_usage(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<PeriodQuery>,
) -> Result<Json<Page<ModelUsage>>> {
    authorize_list(&app, &ctx, Action::ReadUsage, query.user.as_deref())?;
    let (from, until) = query.period()?;
    let rows = app.store.token_usage(&ctx.visible(query.user.as_deref()), from, until).await?;
    let items = rows.into_iter().map(|row| ModelUsage {
        user: row.user,
        provider: row.provider,
        model: row.model,
        requests: row.requests,
        input_tokens: row.input_tokens,
        output_tokens: row.output_tokens,
    });
    Ok(Json(Page { items: items.collect(), next_cursor: None }))
}

async fn report_tokens(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<OwnerQuery>,
    body: JsonBody<ReportTokens>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteUsage, user, ("user", user))?;
    let report = &body.value;
    let is_name = |text: &str, max: usize| (1..=max).contains(&text.chars().count()) && !text.contains('\0');
    let is_valid = is_name(&report.provider, 64)
        && is_name(&report.provider_request_id, 128)
        && is_name(&report.model, 128)
        && report.input_tokens >= 0
        && report.output_tokens >= 0;
    if !is_valid {
        let detail = "provider, providerRequestId and model must not be empty or too long, and tokens not negative";
        return Err(Error::with_detail(ProblemType::InvalidObject, detail));
    }
    let usage = TokenUsage {
        provider: &report.provider,
        provider_request_id: &report.provider_request_id,
        user,
        model: &report.model,
        input_tokens: report.input_tokens,
        output_tokens: report.output_tokens,
    };
    match app.store.record_tokens(&usage).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(error) if error.violates("token_usage_user_name_fkey") => Err(Error::not_found("user", user)),
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    user: Option<String>,
    cursor: Option<Cursor>,
    limit: Option<u32>,
    actor: Option<String>,
    action: Option<String>,
    object: Option<String>,
    since: Option<QueryTime>,
    until: Option<QueryTime>,
}

async fn audit(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<AuditQuery>,
) -> Result<Json<Page<AuditEntry>>> {
    authorize_list(&app, &ctx, Action::ReadAudit, query.user.as_deref())?;
    let page = rows::<i64>(query.cursor.as_ref(), query.limit)?;
    let filter = Filter {
        actor: query.actor,
        action: query.action,
        object_name: query.object,
        since: query.since.map(QueryTime::get),
        until: query.until.map(QueryTime::get),
    };
    let entries = app.store.list_audit(&ctx.visible(query.user.as_deref()), &filter, &page).await?;
    let is_full = entries.len() == usize::try_from(page.limit).unwrap_or(usize::MAX);
    let last = entries.last().filter(|_| is_full);
    let next_cursor = last.map(|entry| Cursor::after(&[&entry.at.to_string(), &entry.id.to_string()]));
    Ok(Json(Page { items: entries.into_iter().map(to_body).collect(), next_cursor }))
}

fn to_body(entry: Recorded) -> AuditEntry {
    AuditEntry {
        id: entry.id,
        at: Time(entry.at),
        actor: entry.actor,
        actor_kind: entry.actor_kind,
        key_id: entry.key_id,
        user: entry.user,
        action: entry.action,
        object_kind: entry.object_kind,
        object_name: entry.object_name,
        object_uid: entry.object_uid.map(|uid| uid.to_string()),
        result: entry.result,
        request_id: entry.request_id.map(|id| id.to_string()),
        client_ip: entry.client_ip,
        user_agent: entry.user_agent,
        details: entry.details,
    }
}
