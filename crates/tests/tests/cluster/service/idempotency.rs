//! Requests that are repeated with an idempotency key.

use futures_util::future::try_join_all;
use http::Method;
use odc_tests::sql::{administrator, count};
use odc_tests::with_service;
use serde_json::json;

use super::fixture::{check_requests_ended_once, create_objects, create_server, server, servers};

const POSTS: usize = 100;

#[tokio::test]
async fn parallel_posts_with_one_idempotency_key_create_one_server() -> anyhow::Result<()> {
    with_service(async |service| {
        let (api, _worker) = tokio::try_join!(service.api().start(), service.worker().start())?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        let headers = [("idempotency-key", "create-box")];
        let body = server("box");
        let posts = (0..POSTS).map(|_| create_server(&ada, "box"));
        let responses = try_join_all(posts).await?;
        let location = responses[0].header("location").to_owned();
        for response in &responses {
            assert_eq!((response.status, response.header("location")), (202, location.as_str()), "{response:?}");
            assert_eq!(response.body, responses[0].body);
        }
        let id = responses[0].body["requestId"].as_str().unwrap_or_default();
        assert_eq!(ada.wait_executed(id).await?["state"], "Succeeded");

        // Also after the request has ended.
        let repeated = ada.send(Method::POST, "/devservers", Some(&body), &headers).await?;
        assert_eq!((repeated.status, repeated.header("location")), (202, location.as_str()), "{repeated:?}");
        let mut other = body.clone();
        other["lifetime"] = json!("2h");
        let problem = ada.send(Method::POST, "/devservers", Some(&other), &headers).await?;
        assert_eq!(problem.header("content-type"), "application/problem+json");
        assert_eq!((problem.status, &problem.body["status"]), (422, &json!(422)), "{problem:?}");

        assert_eq!(servers(service).await?.len(), 1);
        let creates = service.plane.requests()?;
        let creates = creates.iter().filter(|request| request.verb == "create" && request.resource == "devservers");
        assert_eq!(creates.count(), 1, "the worker sends one create");
        let sql = &mut administrator(service.database).await?;
        assert_eq!(count(sql, "requests").await?, 1);
        check_requests_ended_once(sql).await
    })
    .await
}
