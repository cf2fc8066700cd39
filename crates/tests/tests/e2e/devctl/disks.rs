//! The default home on a disk, through devctl.

use odc_tests::wait;
use serde_json::Value;

use super::user::{User, output};
use crate::tenant::{TIMEOUT, with_tenant};

#[tokio::test]
async fn home_on_the_default_disk_survives_hibernation_and_can_be_rolled_back() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let ada = User::new(tenant.cluster, &tenant.user).await?;
        ada.success(&["config", "set", "create.diskSize", "64Mi"]).await?;
        let created = ada.run(&["create", "box", "-t", "cpu", "--wait", "--yes"]).await?;
        assert_eq!(created.code, Some(0), "{created:#?}");
        assert!(created.err.contains("Created disk home (64Mi)"), "{created:#?}");
        ada.success(&["ssh", "box", "--", "echo first > file"]).await?;
        ada.success(&["hibernate", "box"]).await?;
        ada.success(&["config-ssh"]).await?;
        let woken = output(ada.openssh("ssh").args(["-oControlPersist=no", "box.odc", "cat file"])).await?;
        assert_eq!((woken.out.as_str(), woken.code), ("first\n", Some(0)), "{woken:#?}");

        let second = ada.run(&["create", "second", "-t", "cpu", "--yes"]).await?;
        assert_eq!(second.code, Some(5), "{second:#?}");
        assert!(second.err.contains("--disk NAME") && second.err.contains("--ephemeral"), "{second:#?}");

        let point = wait::until("the restore point of the stop is verified", TIMEOUT, async || {
            let points: Value = serde_json::from_str(&ada.success(&["disk", "points", "home", "-o", "json"]).await?)?;
            anyhow::ensure!(points[0]["ready"] == true && points[0]["at"].is_string(), "{points}");
            anyhow::ensure!(points[0]["listing"].is_object(), "{points}");
            Ok(points[0]["name"].as_str().unwrap_or_default().to_owned())
        })
        .await?;
        let files: Value = serde_json::from_str(&ada.success(&["disk", "files", "home", &point, "-o", "json"]).await?)?;
        let entries = files["entries"].as_array().into_iter().flatten();
        assert!(entries.clone().any(|entry| entry["path"] == "file" && entry["files"] == 1), "{files}");
        let shown = ada.run(&["disk", "files", "home"]).await?;
        assert!(shown.out.contains("file") && shown.err.contains(&format!("Restore point {point}")), "{shown:#?}");
        let disks: Value = serde_json::from_str(&ada.success(&["disk", "list", "-o", "json"]).await?)?;
        assert!(disks[0]["used"].is_string(), "{disks}");

        ada.success(&["ssh", "box", "--", "echo second > file"]).await?;
        let refused = ada.run(&["disk", "rollback", "home", &point, "--yes"]).await?;
        assert_eq!((refused.code, refused.err.contains("--stop")), (Some(5), true), "{refused:#?}");
        ada.success(&["disk", "rollback", "home", &point, "--yes", "--stop"]).await?;
        assert_eq!(ada.success(&["ssh", "box", "--", "cat file"]).await?, "first\n");
        Ok(())
    })
    .await
}
