//! The start of a server with a disk and of a Browse operation, compared with a server with an ephemeral home.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::fixture::Fixture;
use super::{Times, row};

const ROUNDS: usize = 8;
const KEPT_DISK: &str = "kept";

/// Kinds of homes.
#[derive(Clone, Copy)]
enum Home {
    Ephemeral,
    /// A disk whose claim is created for the server.
    NewDisk,
    /// A disk that servers have used before.
    KeptDisk,
}

/// Measures the time from the creation of a server until it is running. A server with each kind of home is started in each
/// round.
pub(super) async fn measure_servers(fixture: &Fixture, report: &mut String) -> anyhow::Result<()> {
    fixture.create_disk(KEPT_DISK, "1Gi").await?;
    let (mut ephemeral, mut new_disk, mut kept_disk) = (Times::default(), Times::default(), Times::default());
    // The first round is not counted: nodes pull images, and the kept disk gets its claim.
    for round in 0..=ROUNDS {
        if round == 1 {
            (ephemeral, new_disk, kept_disk) = Default::default();
        }
        let disk = format!("new-{round}");
        fixture.create_disk(&disk, "1Gi").await?;
        let mut order = [Home::Ephemeral, Home::NewDisk, Home::KeptDisk];
        order.rotate_left(round % 3);
        for home in order {
            match home {
                Home::Ephemeral => measure_start(fixture, &mut ephemeral, &json!({"ephemeral": "1Gi"})).await?,
                Home::NewDisk => measure_start(fixture, &mut new_disk, &json!({"disk": disk})).await?,
                Home::KeptDisk => measure_start(fixture, &mut kept_disk, &json!({"disk": KEPT_DISK})).await?,
            }
        }
    }
    writeln!(
        report,
        "From the creation of a server until it is running with its home mounted, {ROUNDS} of each, alternating. The agent is \
         probed once per second.\n"
    )?;
    writeln!(report, "| home | median | range | ratio |\n|---|--:|--:|--:|")?;
    row(report, "ephemeral (emptyDir)", &ephemeral, &ephemeral)?;
    row(report, "new disk", &new_disk, &ephemeral)?;
    row(report, "disk that was used before", &kept_disk, &ephemeral)?;
    writeln!(report)?;
    Ok(())
}

async fn measure_start(fixture: &Fixture, times: &mut Times, home: &Value) -> anyhow::Result<()> {
    times.measure(fixture.start_server("box", home)).await?;
    fixture.delete_server("box").await?;
    if let Some(disk) = home["disk"].as_str() {
        fixture.wait_released(disk).await?;
    }
    Ok(())
}

/// Measures the time until a command over SSH has ended, with devctl: in a restore point of the disk `small`, and in a new
/// server with an ephemeral home.
pub(super) async fn measure_browse(fixture: &Fixture, point: &str, report: &mut String) -> anyhow::Result<()> {
    let (mut browse, mut server) = (Times::default(), Times::default());
    for round in 0..ROUNDS {
        let name = format!("ssh-{round}");
        if round % 2 == 0 {
            browse.measure(run_in_point(fixture, point)).await?;
            server.measure(run_in_server(fixture, &name)).await?;
        } else {
            server.measure(run_in_server(fixture, &name)).await?;
            browse.measure(run_in_point(fixture, point)).await?;
        }
        fixture.delete_operations().await?;
        fixture.delete_server(&name).await?;
    }
    writeln!(
        report,
        "From the start of devctl until a command over SSH has ended, {ROUNDS} of each, alternating: `devctl disk browse`, and \
         `devctl create --ephemeral` with `devctl ssh`.\n"
    )?;
    writeln!(report, "| command in | median | range | ratio |\n|---|--:|--:|--:|")?;
    row(report, "new server with an ephemeral home", &server, &server)?;
    row(report, "restore point (Browse)", &browse, &server)?;
    writeln!(report)?;
    Ok(())
}

async fn run_in_point(fixture: &Fixture, point: &str) -> anyhow::Result<()> {
    // `--keep` leaves the deletion of the pod out of the measurement.
    let words = ["disk", "browse", "small", point, "--keep", "--", "test -e tree/d000/f00"];
    fixture.user.success(&words).await.map(drop)
}

async fn run_in_server(fixture: &Fixture, name: &str) -> anyhow::Result<()> {
    fixture.user.success(&["create", name, "-t", "cpu", "--ephemeral", "--wait", "--yes"]).await?;
    fixture.user.success(&["ssh", name, "--", "test -d ."]).await.map(drop)
}
