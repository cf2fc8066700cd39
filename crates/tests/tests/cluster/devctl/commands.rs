//! Commands that change the cluster, with the real operator and simulated nodes.

use odc_api::duration::Duration;
use odc_api::v1alpha1::{Desired, DevServer, DevServerUser, Phase, Team};
use odc_tests::{manifests, user};
use serde_json::{Value, json};

use super::fixture::{CommandOutput, Machine, with_fixture};
use crate::operator::fixture::{self as operator_fixture, Fixture, NAMESPACE};

/// Runs a test with the operator and the workstation of ada.
async fn with_operator(test: impl AsyncFnOnce(&Fixture<'_>, &Machine) -> anyhow::Result<()>) -> anyhow::Result<()> {
    operator_fixture::with_fixture(async |fixture| {
        let _operator = fixture.start_operator().await?;
        let machine = Machine::new()?;
        let client = &fixture.plane.client;
        user::create_user(client, &fixture.plane.kubeconfig, "ada", &machine.kubeconfig("ada")).await?;
        test(fixture, &machine).await
    })
    .await
}

async fn ada(machine: &Machine, words: &[&str]) -> anyhow::Result<CommandOutput> {
    machine.devctl("ada", words).await
}

fn status_lifetime(server: &DevServer) -> Option<Duration> {
    server.status.as_ref().and_then(|status| status.lifetime).map(|lifetime| lifetime.granted)
}

#[tokio::test]
async fn commands_change_the_stored_server() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        fixture.create_claim("home").await?;
        let limits = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "gpu"},
            "spec": {"limits": {"lifetime": "8h", "extension": "4h", "total": "10h"}, "privilege": "Sudo", "default": false,
                "device": {"resource": "nvidia.com/gpu", "perNode": 8}, "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}});
        manifests::apply(&fixture.plane.client, &limits).await?;

        let words = ["create", "box", "-t", "GPU", "-g", "2", "--home-claim", "home", "--wait", "-o", "json", "--user", "bob"];
        let created = ada(machine, &words).await?;
        assert!(created.err.contains("box: scheduled on node-"), "{}", created.err);
        assert!(created.err.contains("other users cannot reach this server through the Kubernetes API"), "{}", created.err);
        let created: Value = serde_json::from_str(&created.success()?)?;
        assert_eq!((&created["phase"], &created["gpus"], &created["home"]["claim"]), (&json!("Running"), &json!(2), &json!("home")));
        let server = fixture.servers.get("box").await?;
        assert_eq!(server.spec.access.keys.len(), 1, "the user's own key is added");
        let managers = server.metadata.managed_fields.unwrap_or_default();
        assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("devctl")), "{managers:?}");

        // The output has the lifetime within the limits.
        let output = ada(machine, &["extend", "box", "1h"]).await?;
        assert_eq!(status_lifetime(&fixture.servers.get("box").await?), Some(Duration::hours(9)));
        assert!(output.err.contains("it expires at "), "{}", output.err);
        assert_eq!(output.success()?, "");
        let output = ada(machine, &["extend", "b", "4h"]).await?;
        assert!(output.err.contains("flavor gpu limits the lifetime to 10h; extended server box by 1h"), "{}", output.err);
        output.success()?;
        let output = ada(machine, &["extend", "box", "1h"]).await?;
        assert_eq!(output.code, Some(5));
        assert!(output.err.contains("cannot extend server box: flavor gpu limits the lifetime to 10h"), "{}", output.err);

        let output = ada(machine, &["edit", "box", "--lifetime", "6h"]).await?;
        assert!(output.err.contains("Lifetime of server box is now 6h; it expires at "), "{}", output.err);
        output.success()?;
        assert_eq!(status_lifetime(&fixture.servers.get("box").await?), Some(Duration::hours(6)));

        let output = ada(machine, &["hibernate", "box"]).await?;
        assert!(output.err.contains("Hibernated server box. Its home is kept"), "{}", output.err);
        assert_eq!(fixture.servers.get("box").await?.spec.desired, Desired::Hibernated);
        let output = ada(machine, &["wake", "box"]).await?;
        assert!(output.success()?.contains("Server box is ready: gpu, 2 GPUs on node-"));
        assert_eq!(fixture.servers.get("box").await?.spec.desired, Desired::Running);

        let words = ["edit", "box", "--enable-jupyter", "--add-user", "eve", "--remove-user", "bob", "--add-port", "app=8000", "--idle", "1h"];
        ada(machine, &words).await?.success()?;
        let access = fixture.servers.get("box").await?.spec.access;
        assert!(access.jupyter && access.users.len() == 1 && access.users[0].as_str() == "eve" && access.ports[0].port == 8000);
        assert_eq!(access.keys.len(), 1, "other fields are kept");

        let output = ada(machine, &["create", "box", "--no-persist"]).await?;
        assert_eq!(output.code, Some(5), "the name is taken: {}", output.err);
        ada(machine, &["delete", "box", "--wait"]).await?.success()?;
        let finished = fixture.wait_for_phase("box", Phase::Cancelled).await?;
        let output = ada(machine, &["create", "box", "--no-persist", "-t", "cpu"]).await?;
        assert_eq!(output.success()?, "box\n");
        let new = fixture.wait_for_phase("box", Phase::Running).await?;
        assert_ne!(new.metadata.uid, finished.metadata.uid, "the finished server is replaced");
        ada(machine, &["delete", "box", "--purge", "--wait", "--yes"]).await?.success()?;
        assert_eq!(fixture.servers.get_opt("box").await?, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn structured_output_after_each_change() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        fixture.create_claim("home").await?;
        let json = async |words: &[&str]| -> anyhow::Result<Value> {
            let output = ada(machine, &[words, &["-o", "json"]].concat()).await?.success();
            Ok(serde_json::from_str(&output.map_err(|error| error.context(words.join(" ")))?)?)
        };
        let about = |server: &Value| (server["name"].clone(), server["phase"].clone(), server["desired"].clone());
        let is = |phase: &str, desired: &str| (json!("box"), json!(phase), json!(desired));
        let created = json(&["create", "box", "-t", "cpu", "--home-claim", "home", "--wait", "--user", "bob"]).await?;
        assert_eq!(about(&created), is("Running", "Running"));
        assert_eq!(created["access"]["keys"].as_array().map(Vec::len), Some(1), "{created}");
        assert_eq!(json(&["extend", "box", "1h"]).await?["grantedLifetime"], "9h");
        assert_eq!(json(&["extend", "box", "1h", "--dry-run"]).await?["lifetime"], "10h");
        assert_eq!(about(&json(&["hibernate", "box", "--dry-run"]).await?).2, "Hibernated");
        assert_eq!(about(&json(&["hibernate", "box"]).await?), is("Hibernated", "Hibernated"));
        assert_eq!(about(&json(&["hibernate", "box"]).await?), is("Hibernated", "Hibernated"));
        assert_eq!(about(&json(&["wake", "box", "--dry-run"]).await?).2, "Running");
        assert_eq!(about(&json(&["wake", "box"]).await?), is("Running", "Running"));
        assert_eq!(about(&json(&["wake", "box"]).await?), is("Running", "Running"));
        assert_eq!(json(&["edit", "box", "--add-port", "app=8000"]).await?["access"]["ports"][0]["port"], 8000);
        for (words, name) in
            [(&["hibernate", "box", "--dry-run"][..], "box\n"), (&["edit", "box", "--idle", "1h"], "box\n")]
        {
            assert_eq!(ada(machine, &[words, &["-o", "name"]].concat()).await?.success()?, name);
        }
        let yaml = ada(machine, &["extend", "box", "1h", "-o", "yaml"]).await?.success()?;
        assert!(yaml.contains("grantedLifetime: 10h"), "{yaml}");

        let planned = {
            let words = ["submit", "--dry-run", "-o", "json", "--no-persist", "--name", "job", "--", "true"];
            serde_json::from_str::<Value>(&ada(machine, &words).await?.success()?)?
        };
        assert_eq!(
            (&planned["kind"], &planned["spec"]["lifetime"]),
            (&json!("DevServer"), &json!("1h")),
            "default lifetime of a job"
        );

        assert_eq!(about(&json(&["delete", "box", "--dry-run"]).await?[0]).2, "Ended");
        let finished = json(&["delete", "box", "--wait"]).await?;
        assert_eq!((about(&finished[0]), finished.as_array().map(Vec::len)), (is("Cancelled", "Ended"), Some(1)));
        assert_eq!(json(&["delete", "box"]).await?[0]["phase"], "Deleted");
        assert_eq!(json(&["delete", "--all", "--yes"]).await?, json!([]));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn create_waits_for_a_stopping_server_of_the_same_name() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        let words = ["create", "box", "-t", "cpu", "--ephemeral", "--wait"];
        ada(machine, &words).await?.success()?;
        let old = fixture.servers.get("box").await?;
        // The next server has another host key.
        let hosts = machine.home("ada").join(".ssh/odc/known_hosts");
        std::fs::create_dir_all(hosts.parent().unwrap_or(&hosts))?;
        std::fs::write(&hosts, "box.odc ssh-ed25519 OLD\nother.odc ssh-ed25519 KEPT\n")?;
        ada(machine, &["delete", "box"]).await?.success()?;
        assert_eq!(std::fs::read_to_string(&hosts)?, "other.odc ssh-ed25519 KEPT\n");
        assert_eq!(
            ada(machine, &["list", "-s", "running", "-o", "name"]).await?.success()?,
            "",
            "a stopping server is not running"
        );
        ada(machine, &[&words[..], &["--dry-run"]].concat()).await?.success()?;
        ada(machine, &words).await?.success()?;
        let new = fixture.servers.get("box").await?;
        assert_ne!(old.metadata.uid, new.metadata.uid);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn flags_override_variables_which_override_files() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        let with = async |words: &[&str], variables: &[(&str, &str)]| -> anyhow::Result<CommandOutput> {
            let mut command = machine.command("ada", words)?;
            command.envs(variables.iter().copied());
            let output = tokio::process::Command::from(command).stdin(std::process::Stdio::null()).output().await?;
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(anyhow::Error::from);
            Ok(CommandOutput { out: text(output.stdout)?, err: text(output.stderr)?, code: output.status.code() })
        };
        std::fs::create_dir_all(machine.home("ada"))?;
        let variables = [
            ("DEVCTL_LIFETIME", "2h"),
            ("DEVCTL_HOME_CLAIM", "home"),
            ("DEVCTL_FLAVOR", "gpu"),
            ("DEVCTL_IMAGE", "user:1"),
        ];
        std::fs::write(
            machine.home("ada").join(".devctl.yaml"),
            "create: {flavor: cpu, jupyter: true, image: 'project:1'}\n",
        )?;
        let output = with(&["create", "one"], &variables).await?;
        assert!(!output.err.contains(".devctl.yaml"), "{}", output.err);
        output.success()?;
        let one = fixture.servers.get("one").await?.spec;
        assert_eq!((one.lifetime, one.access.jupyter), (Duration::hours(2), true));
        assert_eq!(one.flavor.map(String::from).as_deref(), Some("gpu"));
        assert_eq!(serde_json::to_value(&one.home)?, json!({"claim": "home"}));

        let words = ["create", "two", "--hours", "3", "--home-size", "2Gi", "--no-jupyter", "-t", "cpu"];
        with(&words, &variables[..3]).await?.success()?;
        let two = fixture.servers.get("two").await?.spec;
        assert_eq!((two.lifetime, two.access.jupyter), (Duration::hours(3), false));
        assert_eq!(serde_json::to_value(&two.home)?, json!({"ephemeral": "2Gi"}));

        // Values from a project file are announced.
        let output = with(&["create", "three", "--no-persist"], &[]).await?;
        assert!(
            output.err.contains("Using image project:1 from ") && output.err.contains(".devctl.yaml"),
            "{}",
            output.err
        );
        std::fs::write(machine.home("ada").join(".devctl.yaml"), "context: ada\n")?;
        let output = with(&["list", "-o", "name"], &[]).await?;
        assert!(output.err.starts_with("Using context ada from "), "{}", output.err);
        // A ProxyCommand ignores the project file.
        let output = with(&["ssh", "--stdio", "nothing.odc"], &[]).await?;
        assert!(!output.err.contains("Using context"), "{}", output.err);
        let output = with(&["list"], &[("DEVCTL_CONTEXT", "ada")]).await?;
        assert_eq!((output.code, output.err.contains("Using context")), (Some(0), false), "{}", output.err);

        let output = with(&["create", "four"], &[("DEVCTL_LIFETIME", "soon")]).await?;
        assert_eq!((output.code, output.err.contains("DEVCTL_LIFETIME")), (Some(2), true), "{}", output.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn dry_run_changes_nothing() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        fixture.create("box", json!({"home": {"claim": "home"}, "idle": {"action": "Hibernate"}})).await?;
        let before = fixture.wait_for("box", "reconciled", |server| server.status.is_some()).await?.spec;
        for words in [
            &["create", "new", "--no-persist", "--dry-run", "-t", "cpu"][..],
            &["extend", "box", "2h", "--dry-run"],
            &["hibernate", "box", "--dry-run"],
            &["edit", "box", "--add-user", "bob", "--extend", "1h", "--dry-run"],
            &["delete", "box", "--dry-run"],
            &["delete", "box", "--purge", "--dry-run"],
        ] {
            ada(machine, words).await?.success().map_err(|error| error.context(words.join(" ")))?;
        }
        assert_eq!(fixture.servers.get("box").await?.spec, before);
        assert_eq!(fixture.servers.get_opt("new").await?, None);
        // The API server validates it nevertheless.
        let output = ada(machine, &["create", "new", "--no-persist", "--dry-run", "-e", "ODC_X=1"]).await?;
        assert_eq!(output.code, Some(2), "{}", output.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn settings_are_defaults_of_flags() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        for (key, value) in
            [("create.flavor", "gpu"), ("create.gpus", "4"), ("create.lifetime", "2h"), ("create.homeSize", "3Gi")]
        {
            ada(machine, &["config", "set", key, value]).await?.success()?;
        }
        ada(machine, &["create", "one"]).await?.success()?;
        let one = fixture.servers.get("one").await?.spec;
        assert_eq!(
            (one.flavor.map(String::from).as_deref(), one.count, one.lifetime),
            (Some("gpu"), Some(4), Duration::hours(2))
        );
        std::fs::write(machine.home("ada").join(".devctl.yaml"), "create: {flavor: cpu, lifetime: 1h}\n")?;
        ada(machine, &["create", "two", "--lifetime", "30m"]).await?.success()?;
        let two = fixture.servers.get("two").await?.spec;
        assert_eq!(
            (two.flavor.map(String::from).as_deref(), two.count, two.lifetime),
            (Some("cpu"), None, Duration::minutes(30))
        );

        let view: Value = serde_json::from_str(&ada(machine, &["config", "view", "-o", "json"]).await?.success()?)?;
        let row = |key: &str| {
            view.as_array().into_iter().flatten().find(|row| row["key"] == key).cloned().unwrap_or_default()
        };
        assert!(row("create.flavor")["source"].as_str().unwrap_or_default().ends_with(".devctl.yaml"), "{view}");
        assert_eq!(row("create.homeSize")["value"], "3Gi");
        ada(machine, &["config", "unset", "create.homeSize"]).await?.success()?;

        let kubeconfig = machine.kubeconfig("ada");
        let words =
            ["config", "set-context", "work", "--kubeconfig", kubeconfig.to_str().unwrap_or_default(), "-n", NAMESPACE];
        ada(machine, &words).await?.success()?;
        ada(machine, &["config", "use", "work"]).await?.success()?;
        let contexts = ada(machine, &["config", "contexts"]).await?.success()?;
        assert!(contexts.lines().any(|line| line.starts_with("*         work")), "{contexts}");
        // The context replaces KUBECONFIG.
        let mut command = machine.command("ada", &["list", "-o", "name"])?;
        command.env_remove("KUBECONFIG");
        let output = tokio::process::Command::from(command).output().await?;
        assert_eq!(String::from_utf8(output.stdout)?, "one\ntwo\n");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn administrators_manage_users_teams_and_flavors() -> anyhow::Result<()> {
    with_operator(async |fixture, machine| {
        std::fs::copy(&fixture.plane.kubeconfig, machine.kubeconfig("admin"))?;
        let admin = async |words: &[&str]| {
            let output = machine.devctl("admin", words).await?;
            output.success().map_err(|error| error.context(words.join(" ")))
        };
        let key = machine.home("admin").join(".ssh/id_ed25519.pub");
        let key = key.to_str().unwrap_or_default();
        admin(&["admin", "user", "create", "carl", "--display", "Carl", "--devices", "8", "--ssh-public-key-file", key]).await?;
        fixture.wait_user_ready("carl").await?;
        admin(&["admin", "user", "create", "carl", "--role", "auditor"]).await?;
        let users: kube::Api<DevServerUser> = kube::Api::all(fixture.plane.client.clone());
        let carl = users.get("carl").await?.spec;
        assert_eq!((carl.quota.devices, carl.keys.len(), carl.role), (Some(8), 1, odc_api::v1alpha1::Role::Auditor));
        let created = admin(&["admin", "user", "create", "carl", "--role", "user", "-o", "json"]).await?;
        assert_eq!(serde_json::from_str::<Value>(&created)?["spec"]["role"], "User", "{created}");
        fixture.wait_user_ready("carl").await?;

        admin(&["admin", "team", "create", "vision", "--weight", "3"]).await?;
        // Removing limits that are not set succeeds.
        admin(&["admin", "team", "create", "sound", "--memory", "none", "--devices-of", "gpu=none"]).await?;
        let twice = ["admin", "team", "set", "sound", "--devices-of", "gpu=1", "--devices-of", "gpu=2"];
        let output = machine.devctl("admin", &twice).await?;
        assert_eq!((output.code, output.err.contains("duplicate --devices-of gpu")), (Some(2), true), "{}", output.err);
        let limits = ["--devices", "16", "--devices-of", "gpu=8", "--devices-of", "cpu=2", "--memory", "1Ti"];
        let rights = ["--borrow", "4", "--priority-ceiling", "high"];
        admin(&[&["admin", "team", "set", "vision"], &limits[..], &rights[..]].concat()).await?;
        admin(&["admin", "team", "set", "vision", "--memory", "none", "--devices-of", "cpu=none"]).await?;
        let wide = admin(&["admin", "team", "list", "-o", "wide"]).await?;
        assert!(wide.contains("gpu=8") && wide.contains("Normal (max High)"), "{wide}");
        admin(&["admin", "user", "set", "carl", "--weight", "3", "--priority-ceiling", "high"]).await?;
        let wide = admin(&["admin", "user", "list", "-o", "wide"]).await?;
        let carl: Vec<&str> =
            wide.lines().find(|line| line.starts_with("carl")).unwrap_or_default().split_whitespace().collect();
        assert!(carl.windows(2).any(|words| words == ["3", "High"]), "{wide}");
        admin(&["admin", "user", "set", "carl", "--priority-ceiling", "none"]).await?;
        let users: kube::Api<DevServerUser> = kube::Api::all(fixture.plane.client.clone());
        let carl = users.get("carl").await?.spec;
        assert_eq!((carl.weight, carl.priority_ceiling), (3, None));
        let output = machine.devctl("admin", &["admin", "user", "set", "carl", "--priority-ceiling", "top"]).await?;
        assert_eq!((output.code, output.err.contains("low, normal, high or none")), (Some(2), true), "{}", output.err);
        admin(&["admin", "team", "add", "vision", "carl", "ada"]).await?;
        admin(&["admin", "team", "remove", "vision", "ada"]).await?;
        let teams: kube::Api<Team> = kube::Api::all(fixture.plane.client.clone());
        let vision = teams.get("vision").await?.spec;
        assert_eq!((vision.weight, vision.members.len()), (3, 1));
        assert_eq!((vision.quota.devices, vision.quota.memory), (Some(16), None));
        assert_eq!(vision.quota.flavors, [("gpu".to_owned(), 8)].into());
        assert_eq!((vision.borrowing_limit, vision.priority.ceiling), (Some(4), odc_api::v1alpha1::Priority::High));
        let output = machine.devctl("admin", &["admin", "team", "set", "vision", "--devices", "many"]).await?;
        assert_eq!((output.code, output.err.contains("expected an amount or none")), (Some(2), true), "{}", output.err);
        assert!(admin(&["admin", "team", "list"]).await?.contains("carl"));

        admin(&["admin", "flavor", "maintenance", "gpu", "--message", "New drivers.", "--allow", "ada"]).await?;
        assert!(admin(&["avail"]).await?.contains("maintenance: New drivers."));
        admin(&["admin", "flavor", "maintenance", "gpu", "--end"]).await?;
        admin(&["admin", "flavor", "default", "gpu"]).await?;
        let flavors = admin(&["flavors"]).await?;
        assert!(flavors.contains("gpu (default)") && !flavors.contains("cpu (default)"), "{flavors}");
        let manifest = machine.home("admin").join("flavors.yaml");
        std::fs::write(&manifest, "apiVersion: odc.dev/v1alpha1\nkind: DevServerFlavor\nmetadata: {name: tiny}\nspec: {resources: {per: Server, cpu: 100m, memory: 1Gi}}\n")?;
        admin(&["admin", "flavor", "apply", "-f", manifest.to_str().unwrap_or_default()]).await?;
        std::fs::write(&manifest, "apiVersion: odc.dev/v1alpha1\nkind: DevServerFlavor\nmetadata: {name: tiny}\nspec: {resources: {per: Device, cpu: 100m, memory: 1Gi}}\n")?;
        let output = machine.devctl("admin", &["admin", "flavor", "apply", "-f", manifest.to_str().unwrap_or_default()]).await?;
        assert_eq!((output.code, output.err.contains("resources.per")), (Some(2), true), "{}", output.err);
        apply_manifests(fixture, machine).await?;

        // The written object is printed in a structured format.
        let created: Value = serde_json::from_str(&admin(&["admin", "team", "create", "vision", "--weight", "2", "-o", "json"]).await?)?;
        assert_eq!(created["spec"]["weight"], 2, "{created}");
        let created: Value = serde_json::from_str(&admin(&["admin", "team", "add", "vision", "ada", "-o", "json"]).await?)?;
        assert_eq!(created["spec"]["members"], json!(["carl", "ada"]), "{created}");
        admin(&["admin", "team", "remove", "vision", "ada"]).await?;

        // The new user can use the kubeconfig, but has no administrator rights.
        let file = machine.kubeconfig("carl");
        let words = ["admin", "user", "kubeconfig", "carl", "--duration", "2h", "--file", file.to_str().unwrap_or_default()];
        let output = machine.devctl("admin", &words).await?;
        assert!(output.err.contains("for user carl, valid until ") && output.err.contains(" (in "), "{}", output.err);
        machine.devctl("carl", &["create", "mine", "--no-persist", "-t", "cpu"]).await?.success()?;
        assert_eq!(machine.devctl("carl", &["list", "-o", "name"]).await?.success()?, "mine\n");
        assert_eq!(machine.devctl("carl", &["admin", "user", "list"]).await?.code, Some(4));

        let output = machine.devctl("admin", &["admin", "user", "delete", "carl"]).await?;
        assert_eq!((output.code, output.err.contains("--yes")), (Some(2), true), "{}", output.err);
        admin(&["admin", "user", "delete", "carl", "--yes"]).await?;
        assert_eq!(admin(&["admin", "flavor", "delete", "tiny", "--yes", "-o", "name"]).await?, "tiny\n");
        admin(&["admin", "team", "delete", "vision", "--yes"]).await?;
        Ok(())
    })
    .await
}

/// Fields that a manifest no longer sets are removed; fields of other managers are kept.
async fn apply_manifests(fixture: &Fixture<'_>, machine: &Machine) -> anyhow::Result<()> {
    use odc_api::v1alpha1::DevServerFlavor;
    let manifest = machine.home("admin").join("flavors.yaml");
    let apply = async |spec: &str, more: &[&str]| {
        let text =
            format!("apiVersion: odc.dev/v1alpha1\nkind: DevServerFlavor\nmetadata: {{name: tiny}}\nspec: {spec}\n");
        std::fs::write(&manifest, text)?;
        let words = ["admin", "flavor", "apply", "-f", manifest.to_str().unwrap_or_default()];
        machine.devctl("admin", &[&words[..], more].concat()).await
    };
    let flavors: kube::Api<DevServerFlavor> = kube::Api::all(fixture.plane.client.clone());
    apply("{displayName: Tiny, resources: {per: Server, cpu: 100m, memory: 1Gi}}", &[]).await?.success()?;
    machine.devctl("admin", &["admin", "flavor", "maintenance", "tiny", "--message", "Later."]).await?.success()?;
    let output = apply("{resources: {per: Server, cpu: 200m, memory: 1Gi}}", &["-o", "json"]).await?.success()?;
    let created: Value = serde_json::from_str(&output)?;
    assert_eq!(created["spec"]["resources"]["cpu"], "200m", "{created}");
    let tiny = flavors.get("tiny").await?.spec;
    assert!(tiny.display_name.is_none(), "fields missing from the manifest are removed");
    assert!(tiny.maintenance.is_some(), "fields of other managers are kept");

    let other =
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "spec": {"resources": {"cpu": "300m"}}});
    let how = kube::api::PatchParams { field_manager: Some("kubectl".to_owned()), ..kube::api::PatchParams::default() };
    flavors.patch("tiny", &how, &kube::api::Patch::Merge(&other)).await?;
    let mine = "{resources: {per: Server, cpu: 400m, memory: 1Gi}}";
    let output = apply(mine, &[]).await?;
    assert_eq!(output.code, Some(5), "{}", output.err);
    assert!(
        output.err.contains("spec.resources.cpu is owned by kubectl") && output.err.contains("--force"),
        "{}",
        output.err
    );
    apply(mine, &["--force"]).await?.success()?;
    assert_eq!(flavors.get("tiny").await?.spec.resources.cpu.to_string(), "400m");
    Ok(())
}

#[tokio::test]
async fn completion_lists_current_names() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        fixture.create_servers_in_all_phases().await?;
        let complete = |words: &[&str]| -> anyhow::Result<String> {
            let mut command = fixture.machine.command("ada", &[])?;
            command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
            command.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
            let output = command.arg("--").args(words).output()?;
            Ok(String::from_utf8(output.stdout)?)
        };
        let servers = complete(&["devctl", "ssh", "b"])?;
        assert_eq!(servers.lines().collect::<Vec<_>>(), ["box", "broken"]);
        assert!(complete(&["devctl", "cp", "bo"])?.lines().any(|word| word == "box:"));
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "home", "namespace": "dev-ada"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        manifests::apply(&fixture.plane.client, &claim).await?;
        assert_eq!(complete(&["devctl", "create", "--home-claim", "h"])?.lines().collect::<Vec<_>>(), ["home"]);
        assert_eq!(complete(&["devctl", "avail", "h"])?.lines().collect::<Vec<_>>(), ["h100"]);
        assert!(complete(&["devctl", "hib"])?.contains("hibernate"));
        assert!(complete(&["devctl", "config", "set", "create.f"])?.contains("create.flavor"));
        for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
            let script = fixture.machine.devctl("ada", &["completion", shell]).await?.success()?;
            assert!(script.contains("COMPLETE"), "{shell}: {script}");
        }
        Ok(())
    })
    .await
}
