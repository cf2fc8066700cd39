//! Sends every route of the served document as every kind of caller. `authorization/matrix.txt` has the answers.

mod matrix;
mod objects;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use http::Method;
use odc_tests::api_client::{ApiClient, Response};
use odc_tests::with_service;
use serde_json::{Value, json};

use super::fixture::start_queue;
use matrix::{Actor, Expected, Row};
use objects::{Names, Objects};

/// The operation that a row is about.
struct Operation {
    id: String,
    method: Method,
    /// With variables, relative to the root of the API.
    path: String,
    scope: Option<String>,
    parameters: Vec<String>,
    body: Option<Value>,
}

#[tokio::test]
async fn callers_are_answered_by_role_scope_and_owner() -> anyhow::Result<()> {
    with_service(async |service| {
        let objects = Objects::create(service).await?;
        let document = objects.client(Actor::Anonymous).get("/openapi.json").await?.body;
        let (operations, rows) = (operations(&document)?, matrix::rows()?);
        let requests = requests(&operations, &rows)?;
        // Everything else has to be as created, which is not so while an operator runs.
        let (queue, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(|(operation, _)| {
            operation.path.starts_with("/queue") || operation.path.starts_with("/availability")
        });
        check_rows(&objects, others).await?;
        let _queue = start_queue(service).await?;
        objects.wait_until_queued().await?;
        check_rows(&objects, queue).await
    })
    .await
}

/// Returns the operations of the document.
fn operations(document: &Value) -> anyhow::Result<Vec<Operation>> {
    let mut operations = vec![];
    for (path, item) in document["paths"].as_object().context("paths")? {
        for (method, operation) in item.as_object().context("operations")? {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            operations.push(Operation {
                id: text(&operation["operationId"]).context("operationId")?,
                method: method.to_uppercase().parse()?,
                path: path.strip_prefix("/api/v1").context("the prefix")?.to_owned(),
                scope: text(&operation["x-odc-scope"]),
                parameters: parameters.filter_map(|parameter| text(&parameter["name"])).collect(),
                body: operation["requestBody"]["content"]["application/json"].get("example").cloned(),
            });
        }
    }
    Ok(operations)
}

/// Returns the rows with their operations. Fails if an operation has no row, or if it has a parameter for the objects of
/// another user or of all users and no row with it.
fn requests<'a>(operations: &'a [Operation], rows: &'a [Row]) -> anyhow::Result<Vec<(&'a Operation, &'a Row)>> {
    let has_row = |operation: &Operation, parameter: &str| {
        rows.iter().any(|row| row.operation == operation.id && row.query.contains(parameter))
    };
    for operation in operations {
        anyhow::ensure!(has_row(operation, ""), "matrix.txt has no row of {}", operation.id);
        for (name, parameter) in [("user", "user=ada"), ("all", "all=true")] {
            let is_missing = operation.parameters.iter().any(|other| other == name) && !has_row(operation, parameter);
            anyhow::ensure!(!is_missing, "matrix.txt has no row of {} with {parameter}", operation.id);
        }
    }
    let operation = |row: &'a Row| {
        let found = operations.iter().find(|operation| operation.id == row.operation);
        Ok((found.with_context(|| format!("matrix.txt: {} does not exist", row.operation))?, row))
    };
    rows.iter().map(operation).collect()
}

/// Sends the requests of rows, one row after the other, as all actors. Fails if any answer is wrong.
async fn check_rows(objects: &Objects, rows: Vec<(&Operation, &Row)>) -> anyhow::Result<()> {
    let mut wrong = vec![];
    for (operation, row) in rows {
        let cells = Actor::ALL.into_iter().zip(row.expected);
        let checks = cells.map(|(actor, expected)| check(objects, operation, row, actor, expected));
        wrong.extend(try_join_all(checks).await?.into_iter().flatten());
    }
    anyhow::ensure!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Sends one request. Returns what is wrong with the answer.
async fn check(
    objects: &Objects,
    operation: &Operation,
    row: &Row,
    actor: Actor,
    expected: Expected,
) -> anyhow::Result<Option<String>> {
    let client = if actor == Actor::Scope {
        let owner_may = row.expected_of(Actor::Owner).is_permitted();
        objects.client_without_scope(owner_may, operation.scope.as_deref())?
    } else {
        objects.client(actor)
    };
    let names = objects.names_for(operation.path.starts_with("/keys/")).await?;
    let answer = send(client, operation, &row.query, &names).await?;
    let wrong = |problem: &str| {
        let Row { operation, query, .. } = row;
        Some(format!("{operation} {query} as {actor:?}: {problem}: {} {}", answer.status, answer.body))
    };
    // Names of ada's objects begin with her name.
    let shows_objects = answer.body.to_string().contains("\"ada");
    let is_list_with_own = row.expected.contains(&Expected::Own);
    Ok(match expected {
        Expected::Status(404) => {
            let absent =
                send(client, operation, &row.query.replace("ada", Names::ABSENT_USER), &names.absent()).await?;
            let is_same = answer.status == 404 && names.describe(&answer)? == names.absent().describe(&absent)?;
            if is_same { None } else { wrong(&format!("expected 404 and the answer for absent objects, {absent:?}")) }
        }
        Expected::Status(status) if answer.status != status => wrong(&format!("expected {status}")),
        Expected::Status(200 | 101) if is_list_with_own && !shows_objects => wrong("the objects of ada are missing"),
        Expected::Own if !(200..300).contains(&answer.status) && answer.status != 101 => wrong("expected success"),
        Expected::Own if shows_objects => wrong("shows objects of ada"),
        Expected::Status(_) | Expected::Own => None,
    })
}

/// Sends an operation about objects of these names. Events are those of existing servers.
async fn send(client: &ApiClient, operation: &Operation, query: &str, names: &Names) -> anyhow::Result<Response> {
    let path = names.fill(&operation.path);
    let path = if query.is_empty() { path } else { format!("{path}?{query}") };
    let events =
        |events: Vec<Value>, status: u16| Response { status, headers: http::HeaderMap::new(), body: json!(events) };
    match operation.path.as_str() {
        "/events" => match client.try_events(&path).await? {
            Ok(mut stream) => Ok(events(existing(async || stream.next().await).await?, 200)),
            Err(response) => Ok(response),
        },
        "/events/ws" => match client.try_web_socket(&path).await? {
            Ok(mut socket) => Ok(events(existing(async || socket.next().await).await?, 101)),
            Err(response) => Ok(response),
        },
        _ => {
            let mut body = operation.body.clone();
            if let Some(body) = body.as_mut().filter(|_| operation.id == "createDevServer") {
                body["name"] = json!("new");
            }
            client.send(operation.method.clone(), &path, body.as_ref(), &[]).await
        }
    }
}

/// Reads the events of existing servers.
async fn existing(mut next: impl AsyncFnMut() -> anyhow::Result<Option<Value>>) -> anyhow::Result<Vec<Value>> {
    let mut events = vec![];
    while let Some(event) = next().await? {
        if event["type"] == "synced" {
            return Ok(events);
        }
        events.push(event);
    }
    anyhow::bail!("the stream ended after {events:?}")
}
