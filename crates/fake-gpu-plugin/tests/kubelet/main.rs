//! Tests of the plugin against a fake kubelet, over real sockets.

mod device_manager;
mod node;

use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};
use odc_fake_gpu_plugin::proto::{ContainerPreferredAllocationRequest, PreferredAllocationRequest};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixListener;
use tokio::time::timeout;
use tonic::Code;

use crate::node::{Node, SOCKET};

#[tokio::test]
async fn registers_and_lists_all_devices() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;

    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.request.version, "v1beta1");
    assert_eq!(plugin.request.resource_name, "nvidia.com/gpu");
    assert_eq!(plugin.request.endpoint, SOCKET);
    assert!(plugin.options.get_preferred_allocation_available);
    assert!(!plugin.options.pre_start_required);
    assert_eq!(plugin.request.options, Some(plugin.options));
    assert_eq!(plugin.next_list().await?, ["GPU-n1-00", "GPU-n1-01", "GPU-n1-02", "GPU-n1-03"]);
    Ok(())
}

#[tokio::test]
async fn device_becomes_unhealthy_and_recovers() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.next_list().await?.len(), 4);

    // The directory did not exist before; names of other nodes are ignored.
    fs::create_dir_all(node.unhealthy_dir())?;
    fs::write(node.unhealthy_dir().join("GPU-n2-00"), "")?;
    fs::write(node.unhealthy_dir().join("GPU-n1-02"), "")?;
    assert_eq!(plugin.next_list().await?, ["GPU-n1-00", "GPU-n1-01", "GPU-n1-02 unhealthy", "GPU-n1-03"]);

    fs::remove_file(node.unhealthy_dir().join("GPU-n1-02"))?;
    assert_eq!(plugin.next_list().await?, ["GPU-n1-00", "GPU-n1-01", "GPU-n1-02", "GPU-n1-03"]);

    fs::write(node.unhealthy_dir().join("GPU-n1-00"), "")?;
    assert_eq!(plugin.next_list().await?[0], "GPU-n1-00 unhealthy");
    fs::remove_dir_all(node.unhealthy_dir())?;
    assert_eq!(plugin.next_list().await?[0], "GPU-n1-00");
    Ok(())
}

#[tokio::test]
async fn first_list_contains_unhealthy_devices() -> Result<()> {
    let node = Node::new()?;
    fs::create_dir_all(node.unhealthy_dir())?;
    fs::write(node.unhealthy_dir().join("GPU-n1-03"), "")?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    assert_eq!(kubelet.registered().await?.next_list().await?[3], "GPU-n1-03 unhealthy");
    Ok(())
}

#[tokio::test]
async fn registers_again_after_a_kubelet_restart() -> Result<()> {
    let node = Node::new()?;
    let _plugin = node.plugin()?;
    for _ in 0..3 {
        let mut kubelet = node.kubelet()?;
        let mut plugin = kubelet.registered().await?;
        assert_eq!(plugin.next_list().await?.len(), 4);
        assert_eq!(plugin.allocate(&["GPU-n1-00"]).await?.container_responses.len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn plugin_waits_for_the_kubelet() -> Result<()> {
    let node = Node::new()?;
    fs::create_dir_all(node.kubelet_dir())?;
    let _plugin = node.plugin()?;
    node.wait_for_socket().await?;

    let mut kubelet = node.kubelet()?;
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn plugin_waits_for_the_kubelet_directory_and_survives_its_recreation() -> Result<()> {
    let node = Node::new()?;
    let _plugin = node.plugin()?;
    let mut kubelet = node.kubelet()?;
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    drop(kubelet);

    fs::remove_dir_all(node.root.path().join("kubelet"))?;
    let mut kubelet = node.kubelet()?;
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn allocation_sets_visible_devices() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;

    let response = plugin.allocate(&["GPU-n1-03", "GPU-n1-01"]).await?;
    let envs = &response.container_responses[0].envs;
    assert_eq!(envs.len(), 1);
    assert_eq!(envs["NVIDIA_VISIBLE_DEVICES"], "GPU-n1-01,GPU-n1-03");
    Ok(())
}

#[tokio::test]
async fn allocation_of_unknown_and_unhealthy_devices_is_rejected() -> Result<()> {
    let node = Node::new()?;
    fs::create_dir_all(node.unhealthy_dir())?;
    fs::write(node.unhealthy_dir().join("GPU-n1-01"), "")?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;

    let unknown = plugin.allocate(&["GPU-n1-00", "GPU-n2-00"]).await.expect_err("the device belongs to another node");
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("GPU-n2-00 not found on this node"), "{unknown}");
    let unhealthy = plugin.allocate(&["GPU-n1-00", "GPU-n1-01"]).await.expect_err("the device is unhealthy");
    assert_eq!(unhealthy.code(), Code::FailedPrecondition);
    assert!(unhealthy.message().contains("GPU-n1-01 is unhealthy"), "{unhealthy}");
    Ok(())
}

#[tokio::test]
async fn preferred_devices_have_the_lowest_indexes() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;

    let container = ContainerPreferredAllocationRequest {
        available_ids: strings(&["GPU-n1-03", "GPU-n1-02", "GPU-n1-00"]),
        must_include_ids: strings(&["GPU-n1-03"]),
        allocation_size: 2,
    };
    let request = PreferredAllocationRequest { container_requests: vec![container] };
    let response = within(plugin.client.get_preferred_allocation(request)).await??.into_inner();
    assert_eq!(response.container_responses[0].device_ids, ["GPU-n1-00", "GPU-n1-03"]);
    Ok(())
}

#[tokio::test]
async fn rejected_registration_is_retried() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet_rejecting(3)?;
    let _plugin = node.plugin()?;
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn plugin_registers_again_when_the_stream_closes() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin_with_list_watch_timeout(Duration::from_millis(50))?;
    drop(kubelet.registered().await?);
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn removed_socket_is_recreated() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.next_list().await?.len(), 4);

    fs::remove_file(node.own_socket())?;
    assert!(plugin.next_list().await.is_err(), "the stream of the old socket is closed");
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn stale_socket_is_replaced() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    drop(UnixListener::bind(node.own_socket())?);
    let _plugin = node.plugin()?;
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn socket_of_a_running_plugin_is_not_replaced() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let first = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.next_list().await?.len(), 4);

    let _second = node.plugin()?;
    assert_eq!(plugin.allocate(&["GPU-n1-00"]).await?.container_responses.len(), 1);
    first.stop().await?;
    assert_eq!(kubelet.registered().await?.next_list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn shutdown_closes_the_stream_and_removes_the_socket() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let running = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.next_list().await?.len(), 4);

    running.stop().await?;
    assert!(plugin.next_list().await.is_err());
    assert!(!node.own_socket().exists());
    assert!(node.kubelet_dir().join("kubelet.sock").exists());
    Ok(())
}

#[tokio::test]
async fn signals_stop_the_process_cleanly() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let node = Node::new()?;
        let mut kubelet = node.kubelet()?;
        let mut process = node.process(&[])?;
        let mut plugin = kubelet.registered().await?;
        assert_eq!(plugin.next_list().await?.len(), 4);

        let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("the process is running")?;
        kill_process(id, signal)?;
        assert_eq!(within(process.wait()).await??.code(), Some(0));
        assert!(!node.own_socket().exists());
    }
    Ok(())
}

#[tokio::test]
async fn invalid_arguments_are_usage_errors() -> Result<()> {
    let node = Node::new()?;
    let process = node.process(&["--resource", "gpu"])?;
    let output = within(process.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let message = String::from_utf8(output.stderr)?;
    assert!(message.contains("invalid value 'gpu' for '--resource <RESOURCE>'"), "{message}");
    assert!(message.contains("expected DOMAIN/NAME"), "{message}");
    Ok(())
}

/// Fails instead of hanging if the plugin is broken.
async fn within<T>(work: impl Future<Output = T>) -> io::Result<T> {
    Ok(timeout(Duration::from_secs(60), work).await?)
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
