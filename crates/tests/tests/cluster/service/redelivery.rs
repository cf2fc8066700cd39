//! Messages that are delivered again while they are executed.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use odc_api::annotation;
use odc_tests::apifault::{Action, Apifault, Fault, Pattern, Plan, Verb};
use odc_tests::service::ServiceProcess;
use odc_tests::sql::{administrator, count, value};
use odc_tests::{Service, wait, with_service};

use super::fixture::{TIMEOUT, check_requests_ended_once, create_objects, create_server, servers, wait_requests_ended};

const REQUESTS: usize = if cfg!(feature = "full") { 2_000 } else { 100 };
const WORKERS: usize = 4;
/// Every 25th create of a worker takes three visibility timeouts.
const SLOW_INTERVAL: u64 = 25;
const SLOW_MILLISECONDS: u64 = 3_000;
const CONCURRENT_POSTS: usize = 32;

#[tokio::test]
async fn requests_are_executed_once_by_workers_slower_than_the_visibility_timeout() -> anyhow::Result<()> {
    with_service(async |service| {
        let api = service.api().start().await?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        let creates = || Pattern::verb(Verb::Create, "devservers.odc.dev");
        // After the write: the next delivery finds the server.
        let slow = |index: u64| {
            let fault = Fault::request(SLOW_INTERVAL * index + 2).matching(creates());
            fault.after(Action::Delay { milliseconds: SLOW_MILLISECONDS })
        };
        let slow: Vec<Fault> = (0..REQUESTS as u64 / SLOW_INTERVAL).map(slow).collect();

        // The first worker is stopped after its first write. What it has read is delivered to the others.
        let first_proxy = Apifault::start(&service.plane.kubeconfig, Plan::new(slow.clone())).await?;
        first_proxy.add(Fault::write(1).matching(creates()).after(Action::Stop));
        let first = start_worker(service, &first_proxy).await?;
        first_proxy.set_client(first.pid().unwrap_or_default())?;
        let mut posts = stream::iter(0..REQUESTS)
            .map(async |index| create_server(&ada, &format!("box-{index}")).await)
            .buffer_unordered(CONCURRENT_POSTS);
        posts.next().await.transpose()?;
        first_proxy.wait_fired(1, TIMEOUT).await?;
        let mut others = vec![];
        for _ in 1..WORKERS {
            let proxy = Apifault::start(&service.plane.kubeconfig, Plan::new(slow.clone())).await?;
            others.push((start_worker(service, &proxy).await?, proxy));
        }
        posts.try_collect::<Vec<_>>().await?;
        let sql = &mut administrator(service.database).await?;
        wait::until("end of a request of the stopped worker", TIMEOUT, async || {
            let stopped = "requests WHERE object_name = 'box-0' AND state = 'Succeeded'";
            anyhow::ensure!(count(sql, stopped).await? == 1, "box-0 is pending");
            Ok(())
        })
        .await?;
        first.resume()?;
        wait_requests_ended(sql).await?;

        check_requests_ended_once(sql).await?;
        assert_eq!(count(sql, "requests WHERE state = 'Succeeded'").await?, REQUESTS as u64);
        assert_eq!(count(sql, "pgmq.a_gpu_reservations").await?, 0, "archived messages");
        assert_eq!(servers(service).await?.len(), REQUESTS);
        for server in servers(service).await? {
            let request = server.metadata.annotations.as_ref().and_then(|all| all.get(annotation::REQUEST_ID));
            let name = server.metadata.name.as_deref().unwrap_or_default();
            let id = value(sql, &format!("SELECT id FROM requests WHERE object_name = '{name}'")).await?;
            assert_eq!(request, Some(&id), "{name}");
        }
        let requests = service.plane.requests()?;
        let creates = requests.iter().filter(|request| request.resource == "devservers" && request.verb == "create");
        assert_eq!(creates.filter(|request| request.is_write()).count(), REQUESTS, "each server is created once");
        let stale = r#"odc_worker_stale_deliveries_total{queue="gpu_reservations"}"#;
        assert!(first.metric(stale).await? >= 1.0, "results of deliveries that are not current are ignored");
        assert!(others.iter().map(|(_, proxy)| proxy.fired()).sum::<u64>() > 0, "no create was slow");
        Ok(())
    })
    .await
}

async fn start_worker(service: &Service<'_>, proxy: &Apifault) -> anyhow::Result<ServiceProcess> {
    service.worker().api_server(proxy)?.setting("VISIBILITY_TIMEOUT_SECONDS", "1").start().await
}
