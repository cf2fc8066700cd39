//! Failures between devctl and the server.

use anyhow::Context as _;
use odc_tests::wait;
use tokio::io::AsyncReadExt as _;

use super::user::User;
use crate::faults::{component_pid, kill};
use crate::tenant::{TIMEOUT, with_exclusive_tenant};

#[tokio::test]
async fn connection_reports_the_loss_of_the_api_server() -> anyhow::Result<()> {
    with_exclusive_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.create("box").await?;
        let mut session = ada.devctl(&["ssh", "box", "--", "echo in; exec sleep 1000"]).spawn()?;
        let mut out = session.stdout.take().context("a pipe")?;
        out.read_exact(&mut [0; 3]).await?;

        kill(component_pid(tenant.cluster, "apiserver").await?)?;
        let finished = tokio::time::timeout(TIMEOUT, session.wait_with_output()).await.context("session exits")??;
        let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
        assert_eq!(finished.status.code(), Some(255), "{stderr}");
        assert!(stderr.contains("lost the connection to server box"), "{stderr}");

        // The supervisor restarts the API server.
        wait::until("a new connection", TIMEOUT, async || ada.success(&["ssh", "box", "--", "true"]).await.map(drop))
            .await
    })
    .await
}
