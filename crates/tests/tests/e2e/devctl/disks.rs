//! The default home on a disk, through devctl.

#[cfg(feature = "full")]
mod drill;
#[cfg(feature = "full")]
mod pools;

use anyhow::Context as _;
use odc_tests::tree::{DAMAGE, DAMAGED_FILES, DAMAGED_PATHS, MANIFEST, Manifest, Tree};
use odc_tests::user::wait_ready;
use odc_tests::wait;
use serde_json::Value;

use super::user::{User, output};
use crate::tenant::{TIMEOUT, with_tenant};

#[tokio::test]
async fn home_on_the_default_disk_survives_hibernation_and_can_be_rolled_back() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        wait_ready(&tenant.cluster.namespace.client, &tenant.user).await?;
        ada.success(&["config", "set", "create.diskSize", "512Mi"]).await?;
        let created = ada.run(&["create", "box", "-t", "cpu", "--wait", "--yes"]).await?;
        assert_eq!(created.code, Some(0), "{created:#?}");
        assert!(created.err.contains("Created disk home (512Mi)"), "{created:#?}");
        ada.success(&["ssh", "box", "--", &Tree::SMALL.write_script()]).await?;
        ada.success(&["ssh", "box", "--", "echo first > file"]).await?;
        let before = manifest(&ada, "box", Tree::SMALL).await?;
        ada.success(&["hibernate", "box"]).await?;
        ada.success(&["config-ssh"]).await?;
        let woken = output(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "cat file"])).await?;
        assert_eq!((woken.out.as_str(), woken.code), ("first\n", Some(0)), "{woken:#?}");

        let second = ada.run(&["create", "second", "-t", "cpu", "--yes"]).await?;
        assert_eq!(second.code, Some(5), "{second:#?}");
        assert!(second.err.contains("--disk NAME") && second.err.contains("--ephemeral"), "{second:#?}");

        let point = newest_point(&ada).await?;
        check_listing(&ada, &point).await?;
        damage(&ada, "box", &point, &before).await?;
        let refused = ada.run(&["disk", "rollback", "home", &point, "--yes"]).await?;
        assert_eq!((refused.code, refused.err.contains("--stop")), (Some(5), true), "{refused:#?}");
        ada.success(&["disk", "rollback", "home", &point, "--yes", "--stop"]).await?;
        before.check_equal(&manifest(&ada, "box", Tree::SMALL).await?)
    })
    .await
}

/// Lists the tree of a server with its hashes. Wakes the server if it is hibernated.
async fn manifest(user: &User, server: &str, tree: Tree) -> anyhow::Result<Manifest> {
    Manifest::parse(&user.success(&["ssh", server, "--", MANIFEST]).await?, tree)
}

/// Waits until the newest restore point of the disk is verified, and returns its name.
async fn newest_point(user: &User) -> anyhow::Result<String> {
    wait::until("the newest restore point is verified", TIMEOUT, async || {
        let points: Value = serde_json::from_str(&user.success(&["disk", "points", "home", "-o", "json"]).await?)?;
        anyhow::ensure!(points[0]["ready"] == true && points[0]["at"].is_string(), "{points}");
        Ok(points[0]["name"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

/// Checks that the restore point has a listing with the file that was written before.
async fn check_listing(user: &User, point: &str) -> anyhow::Result<()> {
    wait::until("the restore point has a listing", TIMEOUT, async || {
        let points: Value = serde_json::from_str(&user.success(&["disk", "points", "home", "-o", "json"]).await?)?;
        anyhow::ensure!(points[0]["listing"].is_object(), "{points}");
        Ok(())
    })
    .await?;
    let files: Value = serde_json::from_str(&user.success(&["disk", "files", "home", point, "-o", "json"]).await?)?;
    let mut entries = files["entries"].as_array().into_iter().flatten();
    assert!(entries.any(|entry| entry["path"] == "file" && entry["files"] == 1), "{files}");
    let shown = user.run(&["disk", "files", "home"]).await?;
    assert!(shown.out.contains("file") && shown.err.contains(&format!("Restore point {point}")), "{shown:#?}");
    let disks: Value = serde_json::from_str(&user.success(&["disk", "list", "-o", "json"]).await?)?;
    assert!(disks[0]["used"].is_string(), "{disks}");
    Ok(())
}

/// Damages the tree of a server. Checks that the diff lists exactly the damage, and that the point has the files of before.
async fn damage(user: &User, server: &str, point: &str, before: &Manifest) -> anyhow::Result<()> {
    user.success(&["ssh", server, "--", DAMAGE]).await?;
    let diff = user.success(&["disk", "diff", "home", point, "--name-status"]).await?;
    assert_eq!(diff.lines().collect::<Vec<_>>(), DAMAGED_PATHS);
    let command = format!("b2sum {}", DAMAGED_FILES.join(" "));
    let hashes = user.success(&["disk", "browse", "home", point, "--", &command]).await?;
    let expected = DAMAGED_FILES.map(|path| before.hash_line(path).context("the file has no hash"));
    assert_eq!(hashes.lines().collect::<Vec<_>>(), expected.into_iter().collect::<anyhow::Result<Vec<_>>>()?);
    Ok(())
}
