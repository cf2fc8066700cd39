//! What devctl does, answered by the real operator on simulated nodes.

use odc_api::duration::Duration;
use odc_api::v1alpha1::{Desired, DevServer, DevServerUser, Phase, Team};
use odc_tests::{odc, person};
use serde_json::{Value, json};

use super::scene::{Machine, Said, with_scene};
use crate::operator::stage::{NAMESPACE, Stage, with_stage};

/// The operator at work, and ada at her machine.
async fn with_ada(test: impl AsyncFnOnce(&Stage<'_>, &Machine) -> anyhow::Result<()>) -> anyhow::Result<()> {
    with_stage(async |stage| {
        let _operator = stage.operator().await?;
        let machine = Machine::new()?;
        let client = &stage.plane.client;
        person::join(client, &stage.plane.kubeconfig, "ada", &machine.kubeconfig("ada")).await?;
        test(stage, &machine).await
    })
    .await
}

async fn ada(machine: &Machine, words: &[&str]) -> anyhow::Result<Said> {
    machine.devctl("ada", words).await
}

fn status_lifetime(server: &DevServer) -> Option<Duration> {
    server.status.as_ref().and_then(|status| status.lifetime).map(|lifetime| lifetime.granted)
}

#[tokio::test]
async fn a_server_from_the_first_word_to_the_last() -> anyhow::Result<()> {
    with_ada(async |stage, machine| {
        stage.claim("home").await?;
        let limits = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "gpu"},
            "spec": {"limits": {"lifetime": "8h", "extension": "4h", "total": "10h"}, "privilege": "Sudo", "default": false,
                "device": {"resource": "nvidia.com/gpu", "perNode": 8}, "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}});
        odc::apply(&stage.plane.client, &limits).await?;

        let words = ["create", "box", "-t", "GPU", "-g", "2", "--home-claim", "home", "--wait", "-o", "json", "--user", "bob"];
        let made = ada(machine, &words).await?;
        assert!(made.err.contains("box: granted on node-"), "{}", made.err);
        assert!(made.err.contains("Only you reach your servers through the Kubernetes API"), "bob has no way in: {}", made.err);
        let made: Value = serde_json::from_str(&made.good()?)?;
        assert_eq!((&made["phase"], &made["gpus"], &made["home"]["claim"]), (&json!("Running"), &json!(2), &json!("home")));
        let server = stage.servers.get("box").await?;
        assert_eq!(server.spec.access.keys.len(), 1, "the person's own key goes along");
        let managers = server.metadata.managed_fields.unwrap_or_default();
        assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("devctl")), "{managers:?}");

        // What the limits leave is what is printed.
        let said = ada(machine, &["extend", "box", "1h"]).await?;
        assert_eq!(status_lifetime(&stage.servers.get("box").await?), Some(Duration::hours(9)));
        assert!(said.good()?.contains("box runs until "));
        let said = ada(machine, &["extend", "b", "4h"]).await?;
        assert!(said.err.contains("gpu allows no more than 10h, so box got 60m more."), "{}", said.err);
        said.good()?;
        let said = ada(machine, &["extend", "box", "1h"]).await?;
        assert_eq!(said.code, Some(5));
        assert!(said.err.contains("box cannot be extended: gpu allows no more than the 10h it has"), "{}", said.err);

        let said = ada(machine, &["hibernate", "box"]).await?;
        assert!(said.err.contains("box sleeps; its home is kept"), "{}", said.err);
        assert_eq!(stage.servers.get("box").await?.spec.desired, Desired::Hibernated);
        let said = ada(machine, &["wake", "box"]).await?;
        assert!(said.good()?.contains("box is ready: gpu, 2 GPUs on node-"));
        assert_eq!(stage.servers.get("box").await?.spec.desired, Desired::Running);

        let words = ["edit", "box", "--enable-jupyter", "--add-user", "eve", "--remove-user", "bob", "--add-port", "app=8000", "--idle", "1h"];
        ada(machine, &words).await?.good()?;
        let access = stage.servers.get("box").await?.spec.access;
        assert!(access.jupyter && access.users.len() == 1 && access.users[0].as_str() == "eve" && access.ports[0].port == 8000);
        assert_eq!(access.keys.len(), 1, "what was not said stays");

        let said = ada(machine, &["create", "box", "--no-persist"]).await?;
        assert_eq!(said.code, Some(5), "a living namesake is in the way: {}", said.err);
        ada(machine, &["delete", "box", "--wait"]).await?.good()?;
        let ended = stage.until_phase("box", Phase::Cancelled).await?;
        let said = ada(machine, &["create", "box", "--no-persist", "-t", "cpu"]).await?;
        assert_eq!(said.good()?, "box\n");
        let new = stage.until_phase("box", Phase::Running).await?;
        assert_ne!(new.metadata.uid, ended.metadata.uid, "an ended namesake is replaced");
        ada(machine, &["delete", "box", "--purge", "--wait", "--yes"]).await?.good()?;
        assert_eq!(stage.servers.get_opt("box").await?, None);
        Ok(())
    })
    .await
}

/// What a program reads after each change, in the documented shape.
#[tokio::test]
async fn programs_are_told_what_every_change_made() -> anyhow::Result<()> {
    with_ada(async |stage, machine| {
        stage.claim("home").await?;
        let json = async |words: &[&str]| -> anyhow::Result<Value> {
            let said = ada(machine, &[words, &["-o", "json"]].concat()).await?.good();
            Ok(serde_json::from_str(&said.map_err(|error| error.context(words.join(" ")))?)?)
        };
        let about = |server: &Value| (server["name"].clone(), server["phase"].clone(), server["desired"].clone());
        let is = |phase: &str, desired: &str| (json!("box"), json!(phase), json!(desired));
        let made = json(&["create", "box", "-t", "cpu", "--home-claim", "home", "--wait", "--user", "bob"]).await?;
        assert_eq!(about(&made), is("Running", "Running"));
        assert_eq!(made["access"]["keys"].as_array().map(Vec::len), Some(1), "{made}");
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
            assert_eq!(ada(machine, &[words, &["-o", "name"]].concat()).await?.good()?, name);
        }
        let yaml = ada(machine, &["extend", "box", "1h", "-o", "yaml"]).await?.good()?;
        assert!(yaml.contains("grantedLifetime: 10h"), "{yaml}");

        let planned = {
            let words = ["submit", "--dry-run", "-o", "json", "--no-persist", "--name", "job", "--", "true"];
            serde_json::from_str::<Value>(&ada(machine, &words).await?.good()?)?
        };
        assert_eq!(
            (&planned["kind"], &planned["spec"]["lifetime"]),
            (&json!("DevServer"), &json!("1h")),
            "a job has an hour"
        );

        assert_eq!(about(&json(&["delete", "box", "--dry-run"]).await?[0]).2, "Ended");
        let ended = json(&["delete", "box", "--wait"]).await?;
        assert_eq!((about(&ended[0]), ended.as_array().map(Vec::len)), (is("Cancelled", "Ended"), Some(1)));
        assert_eq!(json(&["delete", "box"]).await?[0]["phase"], "Deleted");
        assert_eq!(json(&["delete", "--all", "--yes"]).await?, json!([]));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_namesake_that_is_about_to_end_is_waited_for() -> anyhow::Result<()> {
    with_ada(async |stage, machine| {
        let words = ["create", "box", "-t", "cpu", "--no-persist", "--wait"];
        let first = ada(machine, &["create", "box", "-t", "cpu", "--wait"]).await?;
        assert!(first.err.contains("Its home is 10Gi on the node and is gone when the server ends."), "{}", first.err);
        first.good()?;
        let old = stage.servers.get("box").await?;
        // What its host key was is of no use to the next one.
        let hosts = machine.home("ada").join(".ssh/odc/known_hosts");
        std::fs::create_dir_all(hosts.parent().unwrap_or(&hosts))?;
        std::fs::write(&hosts, "box.odc ssh-ed25519 OLD\nother.odc ssh-ed25519 KEPT\n")?;
        ada(machine, &["delete", "box"]).await?.good()?;
        assert_eq!(std::fs::read_to_string(&hosts)?, "other.odc ssh-ed25519 KEPT\n");
        assert_eq!(
            ada(machine, &["list", "-s", "running", "-o", "name"]).await?.good()?,
            "",
            "it does not count as running"
        );
        ada(machine, &[&words[..], &["--dry-run"]].concat()).await?.good()?;
        ada(machine, &words).await?.good()?;
        let new = stage.servers.get("box").await?;
        assert_ne!(old.metadata.uid, new.metadata.uid);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn flags_win_over_variables_and_those_over_files() -> anyhow::Result<()> {
    with_ada(async |stage, machine| {
        let with = async |words: &[&str], variables: &[(&str, &str)]| -> anyhow::Result<Said> {
            let mut command = machine.command("ada", words)?;
            command.envs(variables.iter().copied());
            let output = tokio::process::Command::from(command).stdin(std::process::Stdio::null()).output().await?;
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(anyhow::Error::from);
            Ok(Said { out: text(output.stdout)?, err: text(output.stderr)?, code: output.status.code() })
        };
        std::fs::create_dir_all(machine.home("ada"))?;
        let variables = [
            ("DEVCTL_LIFETIME", "2h"),
            ("DEVCTL_HOME_CLAIM", "home"),
            ("DEVCTL_FLAVOR", "gpu"),
            ("DEVCTL_IMAGE", "mine:1"),
        ];
        std::fs::write(
            machine.home("ada").join(".devctl.yaml"),
            "create: {flavor: cpu, jupyter: true, image: 'theirs:1'}\n",
        )?;
        let said = with(&["create", "one"], &variables).await?;
        assert!(!said.err.contains(".devctl.yaml"), "{}", said.err);
        said.good()?;
        let one = stage.servers.get("one").await?.spec;
        assert_eq!((one.lifetime, one.access.jupyter), (Duration::hours(2), true));
        assert_eq!(one.flavor.map(String::from).as_deref(), Some("gpu"));
        assert_eq!(serde_json::to_value(&one.home)?, json!({"claim": "home"}));

        let words = ["create", "two", "--hours", "3", "--home-size", "2Gi", "--no-jupyter", "-t", "cpu"];
        with(&words, &variables[..3]).await?.good()?;
        let two = stage.servers.get("two").await?.spec;
        assert_eq!((two.lifetime, two.access.jupyter), (Duration::hours(3), false));
        assert_eq!(serde_json::to_value(&two.home)?, json!({"ephemeral": "2Gi"}));

        // Where a project decides, that is said.
        let said = with(&["create", "three", "--no-persist"], &[]).await?;
        assert!(
            said.err.contains("The image theirs:1 comes from ") && said.err.contains(".devctl.yaml"),
            "{}",
            said.err
        );
        std::fs::write(machine.home("ada").join(".devctl.yaml"), "context: ada\n")?;
        let said = with(&["list", "-o", "name"], &[]).await?;
        assert!(said.err.starts_with("The context ada comes from "), "{}", said.err);
        // A connection that another program asked for has nothing to do with where that runs.
        let said = with(&["ssh", "--stdio", "nothing.odc"], &[]).await?;
        assert!(!said.err.contains("comes from"), "{}", said.err);
        let said = with(&["list"], &[("DEVCTL_CONTEXT", "ada")]).await?;
        assert_eq!((said.code, said.err.contains("comes from")), (Some(0), false), "{}", said.err);

        let said = with(&["create", "four"], &[("DEVCTL_LIFETIME", "soon")]).await?;
        assert_eq!((said.code, said.err.contains("DEVCTL_LIFETIME")), (Some(2), true), "{}", said.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_only_tried_changes_nothing() -> anyhow::Result<()> {
    with_ada(async |stage, machine| {
        stage.create("box", json!({"home": {"claim": "home"}, "idle": {"action": "Hibernate"}})).await?;
        let before = stage.until("box", "looked at", |server| server.status.is_some()).await?.spec;
        for words in [
            &["create", "new", "--no-persist", "--dry-run", "-t", "cpu"][..],
            &["extend", "box", "2h", "--dry-run"],
            &["hibernate", "box", "--dry-run"],
            &["edit", "box", "--add-user", "bob", "--extend", "1h", "--dry-run"],
            &["delete", "box", "--dry-run"],
            &["delete", "box", "--purge", "--dry-run"],
        ] {
            ada(machine, words).await?.good().map_err(|error| error.context(words.join(" ")))?;
        }
        assert_eq!(stage.servers.get("box").await?.spec, before);
        assert_eq!(stage.servers.get_opt("new").await?, None);
        // The cluster looks at it all the same.
        let said = ada(machine, &["create", "new", "--no-persist", "--dry-run", "-e", "ODC_X=1"]).await?;
        assert_eq!(said.code, Some(2), "{}", said.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn settings_stand_in_for_flags() -> anyhow::Result<()> {
    with_ada(async |stage, machine| {
        for (key, value) in
            [("create.flavor", "gpu"), ("create.gpus", "4"), ("create.lifetime", "2h"), ("create.homeSize", "3Gi")]
        {
            ada(machine, &["config", "set", key, value]).await?.good()?;
        }
        ada(machine, &["create", "one"]).await?.good()?;
        let one = stage.servers.get("one").await?.spec;
        assert_eq!(
            (one.flavor.map(String::from).as_deref(), one.count, one.lifetime),
            (Some("gpu"), Some(4), Duration::hours(2))
        );
        std::fs::write(machine.home("ada").join(".devctl.yaml"), "create: {flavor: cpu, lifetime: 1h}\n")?;
        ada(machine, &["create", "two", "--time", "30m"]).await?.good()?;
        let two = stage.servers.get("two").await?.spec;
        assert_eq!(
            (two.flavor.map(String::from).as_deref(), two.count, two.lifetime),
            (Some("cpu"), None, Duration::minutes(30))
        );

        let view: Value = serde_json::from_str(&ada(machine, &["config", "view", "-o", "json"]).await?.good()?)?;
        let row = |key: &str| {
            view.as_array().into_iter().flatten().find(|row| row["key"] == key).cloned().unwrap_or_default()
        };
        assert!(row("create.flavor")["from"].as_str().unwrap_or_default().ends_with(".devctl.yaml"), "{view}");
        assert_eq!(row("create.homeSize")["value"], "3Gi");
        ada(machine, &["config", "unset", "create.homeSize"]).await?.good()?;

        let kubeconfig = machine.kubeconfig("ada");
        let words =
            ["config", "set-context", "work", "--from", kubeconfig.to_str().unwrap_or_default(), "--in", NAMESPACE];
        ada(machine, &words).await?.good()?;
        ada(machine, &["config", "use", "work"]).await?.good()?;
        let contexts = ada(machine, &["config", "contexts"]).await?.good()?;
        assert!(contexts.lines().any(|line| line.starts_with("*   work")), "{contexts}");
        // The context alone is enough now.
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
    with_ada(async |stage, machine| {
        std::fs::copy(&stage.plane.kubeconfig, machine.kubeconfig("admin"))?;
        let admin = async |words: &[&str]| {
            let said = machine.devctl("admin", words).await?;
            said.good().map_err(|error| error.context(words.join(" ")))
        };
        let key = machine.home("admin").join(".ssh/id_ed25519.pub");
        let key = key.to_str().unwrap_or_default();
        admin(&["admin", "user", "create", "carl", "--display", "Carl", "--devices", "8", "--key", key]).await?;
        stage.user_ready("carl").await?;
        admin(&["admin", "user", "create", "carl", "--role", "auditor"]).await?;
        let users: kube::Api<DevServerUser> = kube::Api::all(stage.plane.client.clone());
        let carl = users.get("carl").await?.spec;
        assert_eq!((carl.quota.devices, carl.keys.len(), carl.role), (Some(8), 1, odc_api::v1alpha1::Role::Auditor));
        let made = admin(&["admin", "user", "create", "carl", "--role", "user", "-o", "json"]).await?;
        assert_eq!(serde_json::from_str::<Value>(&made)?["spec"]["role"], "User", "{made}");
        stage.user_ready("carl").await?;

        admin(&["admin", "team", "create", "vision", "--weight", "3"]).await?;
        // Limits that are not there are no trouble to take away.
        admin(&["admin", "team", "create", "sound", "--memory", "none", "--devices-of", "gpu=none"]).await?;
        let twice = ["admin", "team", "set", "sound", "--devices-of", "gpu=1", "--devices-of", "gpu=2"];
        let said = machine.devctl("admin", &twice).await?;
        assert_eq!((said.code, said.err.contains("--devices-of gpu is there twice")), (Some(2), true), "{}", said.err);
        let limits = ["--devices", "16", "--devices-of", "gpu=8", "--devices-of", "cpu=2", "--memory", "1Ti"];
        let rights = ["--borrow", "4", "--priority-ceiling", "high"];
        admin(&[&["admin", "team", "set", "vision"], &limits[..], &rights[..]].concat()).await?;
        admin(&["admin", "team", "set", "vision", "--memory", "none", "--devices-of", "cpu=none"]).await?;
        let wide = admin(&["admin", "team", "list", "-o", "wide"]).await?;
        assert!(wide.contains("gpu=8") && wide.contains("up to 4") && wide.contains("Normal, up to High"), "{wide}");
        admin(&["admin", "user", "set", "carl", "--weight", "3", "--priority-ceiling", "high"]).await?;
        let wide = admin(&["admin", "user", "list", "-o", "wide"]).await?;
        let carl: Vec<&str> =
            wide.lines().find(|line| line.starts_with("carl")).unwrap_or_default().split_whitespace().collect();
        assert!(carl.windows(2).any(|words| words == ["3", "High"]), "{wide}");
        admin(&["admin", "user", "set", "carl", "--priority-ceiling", "none"]).await?;
        let users: kube::Api<DevServerUser> = kube::Api::all(stage.plane.client.clone());
        let carl = users.get("carl").await?.spec;
        assert_eq!((carl.weight, carl.priority_ceiling), (3, None));
        let said = machine.devctl("admin", &["admin", "user", "set", "carl", "--priority-ceiling", "top"]).await?;
        assert_eq!((said.code, said.err.contains("low, normal, high, or none")), (Some(2), true), "{}", said.err);
        admin(&["admin", "team", "add", "vision", "carl", "ada"]).await?;
        admin(&["admin", "team", "remove", "vision", "ada"]).await?;
        let teams: kube::Api<Team> = kube::Api::all(stage.plane.client.clone());
        let vision = teams.get("vision").await?.spec;
        assert_eq!((vision.weight, vision.members.len()), (3, 1));
        assert_eq!((vision.quota.devices, vision.quota.memory), (Some(16), None));
        assert_eq!(vision.quota.flavors, [("gpu".to_owned(), 8)].into());
        assert_eq!((vision.borrow_limit, vision.priority.ceiling), (Some(4), odc_api::v1alpha1::Priority::High));
        let said = machine.devctl("admin", &["admin", "team", "set", "vision", "--devices", "many"]).await?;
        assert_eq!((said.code, said.err.contains("or none for no limit")), (Some(2), true), "{}", said.err);
        assert!(admin(&["admin", "team", "list"]).await?.contains("carl"));

        admin(&["admin", "flavor", "maintenance", "gpu", "--message", "New drivers.", "--allow", "ada"]).await?;
        assert!(admin(&["avail"]).await?.contains("MAINTENANCE: New drivers."));
        admin(&["admin", "flavor", "maintenance", "gpu", "--end"]).await?;
        admin(&["admin", "flavor", "default", "gpu"]).await?;
        let flavors = admin(&["flavors"]).await?;
        assert!(flavors.contains("gpu (default)") && !flavors.contains("cpu (default)"), "{flavors}");
        let manifest = machine.home("admin").join("flavors.yaml");
        std::fs::write(&manifest, "apiVersion: odc.dev/v1alpha1\nkind: DevServerFlavor\nmetadata: {name: tiny}\nspec: {resources: {per: Server, cpu: 100m, memory: 1Gi}}\n")?;
        admin(&["admin", "flavor", "apply", "-f", manifest.to_str().unwrap_or_default()]).await?;
        std::fs::write(&manifest, "apiVersion: odc.dev/v1alpha1\nkind: DevServerFlavor\nmetadata: {name: tiny}\nspec: {resources: {per: Device, cpu: 100m, memory: 1Gi}}\n")?;
        let said = machine.devctl("admin", &["admin", "flavor", "apply", "-f", manifest.to_str().unwrap_or_default()]).await?;
        assert_eq!((said.code, said.err.contains("resources.per")), (Some(2), true), "{}", said.err);
        applied_flavors(stage, machine).await?;

        // What is written is printed for programs.
        let made: Value = serde_json::from_str(&admin(&["admin", "team", "create", "vision", "--weight", "2", "-o", "json"]).await?)?;
        assert_eq!(made["spec"]["weight"], 2, "{made}");
        let made: Value = serde_json::from_str(&admin(&["admin", "team", "add", "vision", "ada", "-o", "json"]).await?)?;
        assert_eq!(made["spec"]["members"], json!(["carl", "ada"]), "{made}");
        admin(&["admin", "team", "remove", "vision", "ada"]).await?;

        // With what it prints, the new user can work; the old one may not manage anybody.
        let file = machine.kubeconfig("carl");
        let words = ["admin", "user", "kubeconfig", "carl", "--duration", "2h", "--file", file.to_str().unwrap_or_default()];
        let said = machine.devctl("admin", &words).await?;
        assert!(said.err.contains("lets carl in until ") && said.err.contains(" (in "), "{}", said.err);
        machine.devctl("carl", &["create", "mine", "--no-persist", "-t", "cpu"]).await?.good()?;
        assert_eq!(machine.devctl("carl", &["list", "-o", "name"]).await?.good()?, "mine\n");
        assert_eq!(machine.devctl("carl", &["admin", "user", "list"]).await?.code, Some(4));

        let said = machine.devctl("admin", &["admin", "user", "delete", "carl"]).await?;
        assert_eq!((said.code, said.err.contains("--yes")), (Some(2), true), "{}", said.err);
        admin(&["admin", "user", "delete", "carl", "--yes"]).await?;
        assert_eq!(admin(&["admin", "flavor", "delete", "tiny", "--yes", "-o", "name"]).await?, "tiny\n");
        admin(&["admin", "team", "delete", "vision", "--yes"]).await?;
        Ok(())
    })
    .await
}

/// A manifest says all there is of what it said before, and nothing of what others say.
async fn applied_flavors(stage: &Stage<'_>, machine: &Machine) -> anyhow::Result<()> {
    use odc_api::v1alpha1::DevServerFlavor;
    let manifest = machine.home("admin").join("flavors.yaml");
    let apply = async |spec: &str, more: &[&str]| {
        let text =
            format!("apiVersion: odc.dev/v1alpha1\nkind: DevServerFlavor\nmetadata: {{name: tiny}}\nspec: {spec}\n");
        std::fs::write(&manifest, text)?;
        let words = ["admin", "flavor", "apply", "-f", manifest.to_str().unwrap_or_default()];
        machine.devctl("admin", &[&words[..], more].concat()).await
    };
    let flavors: kube::Api<DevServerFlavor> = kube::Api::all(stage.plane.client.clone());
    apply("{displayName: Tiny, resources: {per: Server, cpu: 100m, memory: 1Gi}}", &[]).await?.good()?;
    machine.devctl("admin", &["admin", "flavor", "maintenance", "tiny", "--message", "Later."]).await?.good()?;
    let said = apply("{resources: {per: Server, cpu: 200m, memory: 1Gi}}", &["-o", "json"]).await?.good()?;
    let made: Value = serde_json::from_str(&said)?;
    assert_eq!(made["spec"]["resources"]["cpu"], "200m", "{made}");
    let tiny = flavors.get("tiny").await?.spec;
    assert!(tiny.display_name.is_none(), "what it said no longer is gone");
    assert!(tiny.maintenance.is_some(), "what others said stays");

    let other =
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "spec": {"resources": {"cpu": "300m"}}});
    let how =
        kube::api::PatchParams { field_manager: Some("somebody".to_owned()), ..kube::api::PatchParams::default() };
    flavors.patch("tiny", &how, &kube::api::Patch::Merge(&other)).await?;
    let mine = "{resources: {per: Server, cpu: 400m, memory: 1Gi}}";
    let said = apply(mine, &[]).await?;
    assert_eq!(said.code, Some(5), "{}", said.err);
    assert!(said.err.contains("spec.resources.cpu is set by somebody") && said.err.contains("--force"), "{}", said.err);
    apply(mine, &["--force"]).await?.good()?;
    assert_eq!(flavors.get("tiny").await?.spec.resources.cpu.to_string(), "400m");
    Ok(())
}

#[tokio::test]
async fn names_complete_as_they_are_now() -> anyhow::Result<()> {
    with_scene(async |scene| {
        scene.every_state().await?;
        let complete = |words: &[&str]| -> anyhow::Result<String> {
            let mut command = scene.machine.command("ada", &[])?;
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
        odc::apply(&scene.plane.client, &claim).await?;
        assert_eq!(complete(&["devctl", "create", "--home-claim", "h"])?.lines().collect::<Vec<_>>(), ["home"]);
        assert_eq!(complete(&["devctl", "avail", "h"])?.lines().collect::<Vec<_>>(), ["h100"]);
        assert!(complete(&["devctl", "hib"])?.contains("hibernate"));
        assert!(complete(&["devctl", "config", "set", "create.f"])?.contains("create.flavor"));
        for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
            let script = scene.machine.devctl("ada", &["completion", shell]).await?.good()?;
            assert!(script.contains("COMPLETE"), "{shell}: {script}");
        }
        Ok(())
    })
    .await
}
