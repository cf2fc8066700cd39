//! The plugin against a kubelet of our own, over real sockets.

mod device_manager;
mod node;

use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};
use odc_gpu_plugin::proto::{ContainerPreferredAllocationRequest, PreferredAllocationRequest};
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
    assert_eq!(plugin.list().await?, ["GPU-n1-00", "GPU-n1-01", "GPU-n1-02", "GPU-n1-03"]);
    Ok(())
}

#[tokio::test]
async fn device_falls_ill_and_heals() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.list().await?.len(), 4);

    // The directory does not exist until now, and other names in it are not ours.
    fs::create_dir_all(node.ill_dir())?;
    fs::write(node.ill_dir().join("GPU-n2-00"), "")?;
    fs::write(node.ill_dir().join("GPU-n1-02"), "")?;
    assert_eq!(plugin.list().await?, ["GPU-n1-00", "GPU-n1-01", "GPU-n1-02 ill", "GPU-n1-03"]);

    fs::remove_file(node.ill_dir().join("GPU-n1-02"))?;
    assert_eq!(plugin.list().await?, ["GPU-n1-00", "GPU-n1-01", "GPU-n1-02", "GPU-n1-03"]);

    fs::write(node.ill_dir().join("GPU-n1-00"), "")?;
    assert_eq!(plugin.list().await?[0], "GPU-n1-00 ill");
    fs::remove_dir_all(node.ill_dir())?;
    assert_eq!(plugin.list().await?[0], "GPU-n1-00");
    Ok(())
}

#[tokio::test]
async fn first_list_knows_the_ill() -> Result<()> {
    let node = Node::new()?;
    fs::create_dir_all(node.ill_dir())?;
    fs::write(node.ill_dir().join("GPU-n1-03"), "")?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    assert_eq!(kubelet.registered().await?.list().await?[3], "GPU-n1-03 ill");
    Ok(())
}

#[tokio::test]
async fn registers_again_after_a_kubelet_restart() -> Result<()> {
    let node = Node::new()?;
    let _plugin = node.plugin()?;
    for _ in 0..3 {
        let mut kubelet = node.kubelet()?;
        let mut plugin = kubelet.registered().await?;
        assert_eq!(plugin.list().await?.len(), 4);
        assert_eq!(plugin.allocate(&["GPU-n1-00"]).await?.container_responses.len(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn late_kubelet_is_waited_for() -> Result<()> {
    let node = Node::new()?;
    fs::create_dir_all(node.kubelet_dir())?;
    let _plugin = node.plugin()?;
    node.served().await?;

    let mut kubelet = node.kubelet()?;
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn kubelet_directory_is_waited_for_and_may_come_again() -> Result<()> {
    let node = Node::new()?;
    let _plugin = node.plugin()?;
    let mut kubelet = node.kubelet()?;
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    drop(kubelet);

    fs::remove_dir_all(node.root.path().join("kubelet"))?;
    let mut kubelet = node.kubelet()?;
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn allocation_names_the_devices_to_the_container() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;

    let answer = plugin.allocate(&["GPU-n1-03", "GPU-n1-01"]).await?;
    let envs = &answer.container_responses[0].envs;
    assert_eq!(envs.len(), 1);
    assert_eq!(envs["NVIDIA_VISIBLE_DEVICES"], "GPU-n1-01,GPU-n1-03");
    Ok(())
}

#[tokio::test]
async fn allocation_of_unknown_and_ill_devices_is_refused() -> Result<()> {
    let node = Node::new()?;
    fs::create_dir_all(node.ill_dir())?;
    fs::write(node.ill_dir().join("GPU-n1-01"), "")?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;

    let unknown = plugin.allocate(&["GPU-n1-00", "GPU-n2-00"]).await.expect_err("the device is another node's");
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("GPU-n2-00 is not on this node"), "{unknown}");
    let ill = plugin.allocate(&["GPU-n1-00", "GPU-n1-01"]).await.expect_err("the device is ill");
    assert_eq!(ill.code(), Code::FailedPrecondition);
    assert!(ill.message().contains("GPU-n1-01 is ill"), "{ill}");
    Ok(())
}

#[tokio::test]
async fn preferred_devices_have_the_lowest_indexes() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;

    let asked = ContainerPreferredAllocationRequest {
        available_ids: strings(&["GPU-n1-03", "GPU-n1-02", "GPU-n1-00"]),
        must_include_ids: strings(&["GPU-n1-03"]),
        allocation_size: 2,
    };
    let request = PreferredAllocationRequest { container_requests: vec![asked] };
    let answer = within(plugin.client.get_preferred_allocation(request)).await??.into_inner();
    assert_eq!(answer.container_responses[0].device_ids, ["GPU-n1-00", "GPU-n1-03"]);
    Ok(())
}

#[tokio::test]
async fn refused_registration_is_tried_again() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet_that_refuses(3)?;
    let _plugin = node.plugin()?;
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn kubelet_that_stops_listening_is_registered_with_again() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin_that_bears(Duration::from_millis(50))?;
    drop(kubelet.registered().await?);
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn removed_socket_is_made_again() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let _plugin = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.list().await?.len(), 4);

    fs::remove_file(node.own_socket())?;
    assert!(plugin.list().await.is_err(), "the stream of the old socket ends");
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn socket_of_a_dead_plugin_is_replaced() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    drop(UnixListener::bind(node.own_socket())?);
    let _plugin = node.plugin()?;
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn socket_of_a_living_plugin_is_left_to_it() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let first = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.list().await?.len(), 4);

    let _second = node.plugin()?;
    assert_eq!(plugin.allocate(&["GPU-n1-00"]).await?.container_responses.len(), 1);
    first.stop().await?;
    assert_eq!(kubelet.registered().await?.list().await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn stopping_ends_the_stream_and_removes_the_socket() -> Result<()> {
    let node = Node::new()?;
    let mut kubelet = node.kubelet()?;
    let running = node.plugin()?;
    let mut plugin = kubelet.registered().await?;
    assert_eq!(plugin.list().await?.len(), 4);

    running.stop().await?;
    assert!(plugin.list().await.is_err());
    assert!(!node.own_socket().exists());
    assert!(node.kubelet_dir().join("kubelet.sock").exists());
    Ok(())
}

#[tokio::test]
async fn signals_end_the_process_cleanly() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let node = Node::new()?;
        let mut kubelet = node.kubelet()?;
        let mut process = node.process(&[])?;
        let mut plugin = kubelet.registered().await?;
        assert_eq!(plugin.list().await?.len(), 4);

        let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("the process runs")?;
        kill_process(id, signal)?;
        assert_eq!(within(process.wait()).await??.code(), Some(0));
        assert!(!node.own_socket().exists());
    }
    Ok(())
}

#[tokio::test]
async fn invalid_arguments_are_explained() -> Result<()> {
    let node = Node::new()?;
    let process = node.process(&["--resource", "gpu"])?;
    let output = within(process.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let message = String::from_utf8(output.stderr)?;
    assert!(message.contains("invalid value 'gpu' for '--resource <RESOURCE>'"), "{message}");
    assert!(message.contains("write DOMAIN/NAME"), "{message}");
    Ok(())
}

/// Nothing here takes long; the limit only keeps a broken plugin from hanging the test.
async fn within<T>(work: impl Future<Output = T>) -> io::Result<T> {
    Ok(timeout(Duration::from_secs(20), work).await?)
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
