//! Registration with the kubelet.

use odc_csi::proto::registration::registration_client::RegistrationClient;
use odc_csi::proto::registration::{InfoRequest, RegistrationStatus};
use tonic::transport::Endpoint;

use crate::harness::TestPool;

#[tokio::test]
async fn driver_registers_and_ends_when_the_kubelet_rejects_it() {
    let pool = TestPool::new();
    let driver = pool.start().await;
    let socket = pool.path("registry/csi.odc.dev-reg.sock");
    let channel = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect().await.unwrap();
    let mut kubelet = RegistrationClient::new(channel);
    let info = kubelet.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.odc.dev"));
    assert_eq!(info.endpoint, driver.endpoint.display().to_string());
    let registered = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(registered).await.unwrap();
    let rejected = RegistrationStatus { plugin_registered: false, error: "no".into() };
    kubelet.notify_registration_status(rejected).await.unwrap();
    drop(kubelet);
    assert_eq!(driver.wait().await.code(), Some(1));
    assert!(!socket.exists());
}
