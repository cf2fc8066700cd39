//! When something on the way breaks.

use anyhow::Context as _;
use odc_tests::wait;
use tokio::io::AsyncReadExt as _;

use super::person::Person;
use crate::demo::{LIMIT, with_demo};
use crate::faults::{kill, process};

#[tokio::test]
async fn a_connection_ends_and_says_so_when_the_api_server_dies() -> anyhow::Result<()> {
    with_demo(async |demo| {
        let ada = Person::new(demo.cluster, "demo").await?;
        ada.create("box").await?;
        let mut session = ada.devctl(&["ssh", "box", "--", "echo in; exec sleep 1000"]).spawn()?;
        let mut out = session.stdout.take().context("a pipe")?;
        out.read_exact(&mut [0; 3]).await?;

        kill(process(demo.cluster, "apiserver").await?)?;
        let ended = tokio::time::timeout(LIMIT, session.wait_with_output()).await.context("the session ends")??;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(255), "{said}");
        assert!(said.contains("the connection to box broke"), "{said}");

        // The supervisor starts it again, and people go on.
        wait::until("a new connection", LIMIT, async || ada.good(&["ssh", "box", "--", "true"]).await.map(drop)).await
    })
    .await
}
