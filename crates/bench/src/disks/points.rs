//! The time of a restore point of a disk with much and with little data.

use std::fmt::Write as _;

use odc_tests::pod;
use odc_tests::tree::Tree;
use serde_json::json;

use super::fixture::Fixture;
use super::{Times, row};

const ROUNDS: usize = 10;
const LARGE: Tree = Tree { directories: 250, ..Tree::SMALL };
/// Name, size and data of the disks.
const DISKS: [(&str, &str, Tree); 2] = [("large", "8Gi", LARGE), ("small", "1Gi", Tree::SMALL)];

/// Returns a restore point of the disk `small`.
pub(super) async fn measure(fixture: &Fixture, report: &mut String) -> anyhow::Result<String> {
    for (disk, size, tree) in DISKS {
        fixture.create_disk(disk, size).await?;
        fixture.start_server(disk, &json!({"disk": disk})).await?;
        write(fixture, &format!("{disk}-0"), tree).await?;
    }
    let used = measure_both(fixture).await?;
    for (disk, ..) in DISKS {
        fixture.delete_server(disk).await?;
        fixture.wait_released(disk).await?;
    }
    let unused = measure_both(fixture).await?;
    writeln!(
        report,
        "Restore points, from the creation of the DiskOperation until it has succeeded and the point is verified, {ROUNDS} of \
         each, alternating. Random data in files of {} KB; the ratio is that to the small disk.\n",
        Tree::SMALL.file_bytes / 1000
    )?;
    writeln!(report, "| restore point of | median | range | ratio |\n|---|--:|--:|--:|")?;
    for (state, [large, small]) in [("used by a server", &used), ("not in use", &unused)] {
        row(report, &format!("{:.1} GiB, {state}", gib(Tree::SMALL)), small, small)?;
        row(report, &format!("{:.1} GiB, {state}", gib(LARGE)), large, small)?;
    }
    writeln!(report)?;
    fixture.take_point("small").await
}

/// Writes the data of a disk and checks that it occupies space.
async fn write(fixture: &Fixture, pod: &str, tree: Tree) -> anyhow::Result<()> {
    let script = format!("cd $HOME && ({}) && du -sB1 tree | cut -f1", tree.write_script());
    let used: usize = pod::exec(&fixture.namespace, pod, &["sh", "-c", &script]).await?.trim().parse()?;
    anyhow::ensure!(used >= tree.bytes(), "the tree occupies {used} bytes instead of {}", tree.bytes());
    Ok(())
}

/// Takes restore points of both disks in the order A B B A, and so on. Returns the times of the large and the small disk.
async fn measure_both(fixture: &Fixture) -> anyhow::Result<[Times; 2]> {
    let mut times = [Times::default(), Times::default()];
    for round in 0..ROUNDS {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for index in order {
            let disk = DISKS[index].0;
            let point = times[index].measure(fixture.take_point(disk)).await?;
            fixture.check_point(disk, &point).await?;
        }
    }
    Ok(times)
}

fn gib(tree: Tree) -> f64 {
    tree.bytes() as f64 / f64::from(1 << 30)
}
