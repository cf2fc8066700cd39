//! Each command prints the same, and exits with the same code, through the Kubernetes API and through the HTTP API.
//!
//! Ada uses a kubeconfig and bea an API key. They have the same servers and run the same commands; in the output of bea, her
//! name is replaced. The test writes the statuses that an operator would write.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use odc_api::v1alpha1::{DevServer, DiskOperation};
use odc_tests::service::{Service, ServiceProcess, with_service};
use odc_tests::{manifests, wait};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use super::fake_queue_api::FakeQueueApi;
use super::fixture::{CommandOutput, Fixture, after, normalize};
use super::queue::serve_three_pending_servers;

const TIMEOUT: Duration = Duration::from_secs(60);
const OPERATOR_INTERVAL: Duration = Duration::from_millis(50);

/// Commands of users. A line is a command; words in quotes stay together.
const COMMANDS: &str = r#"
list
list -o json
list --all -o wide
list --user all
list --phase idle
show box
show box -o json
show notes -o yaml
show broken
show refused
show bix
show secret
show b
show
status
status -o json
avail
avail h100 -o json
avail h10
flavors
flavors -o json
queue
queue --all
queue -o json
queue --calibration
debug refused
debug broken -o json
debug box --logs
logs broken
logs train
logs box --node 3
ssh long-gone
ssh broken -- true
ssh notes --no-wake
ssh bix
create box --no-persist
create new --flavor h10
create new --flavor h100 --gpus 3
create new --flavor h100 --gpus 16
create new --lifetime 1m
create new --no-persist --env ODC_X=1
create 42
create new --no-persist -t cpu --dry-run
create new --no-persist -t cpu --dry-run -o json
create new --no-persist -t cpu --no-wait -o json
create long-gone --no-persist -t cpu --no-wait
create disked -t cpu --no-wait
create disked2 -t cpu --no-wait
edit box
edit box --remove-user eve
edit box --add-port ssh=2222
edit box --add-port ssh=2222 --dry-run
edit box --add-user eve --idle 2h -o json
edit box --priority high --dry-run -o json
extend box
extend box 0s
extend box 1h --dry-run -o json
extend box 1h
extend long-gone 2h
extend broken 2h
hibernate box
hibernate bix
wake long-gone
wake notes --dry-run
wake notes --no-wait -o json
delete --all
delete bo
delete refused --dry-run
delete refused -o json
delete broken
delete notes --purge --yes
delete notes
disk create data --size 5Gi --dry-run
disk create data --size 5Gi -o json
disk create data
disk create none
disk create Bad_name
disk list
disk list -o json
disk show data
disk show datum
disk points data
disk files data
disk rename data "My data"
disk resize data 1Gi
disk resize data 20Gi
disk snapshot data --note "before the upgrade"
disk snapshot datum
disk rollback data data-1 --yes
disk unlock data --yes
disk delete home
disk delete data
disk delete data
disk undelete data
disk delete data --purge
disk delete data --purge --yes
config contexts -o name
"#;

/// Commands of administrators.
const ADMIN_COMMANDS: &str = r#"
admin user create zoe --display Zoe --dry-run
admin user create zoe --display Zoe
admin user create zoe --weight 2
admin user create Zoe
admin user list
admin team create vision --weight 3 --devices 8 -o name
admin team add vision zoe
admin team add ghost zoe
admin team list -o wide
admin team remove vision zoe
admin team create vision --priority high --priority-ceiling low
admin flavor apply -f FLAVOR --dry-run
admin flavor apply -f FLAVOR
admin flavor list
admin flavor maintenance big "New drivers"
admin flavor apply -f CONFLICT
admin flavor apply -f CONFLICT --force
admin flavor default big
admin flavor default cpu
admin flavor default bigger
admin flavor delete big --dry-run
admin flavor delete big --yes
admin flavor delete big --yes
admin team delete vision --yes
admin team delete vision --yes
admin user delete zoe --yes
list --user all
list --namespace dev-ada
"#;

/// Parameters of the API backend.
struct ApiBackend {
    url: String,
    ca: String,
}

/// A user of one backend.
struct Person<'a> {
    fixture: &'a Fixture<'a>,
    user: &'a str,
    /// The API and the key, for the backend `api`.
    api: Option<(&'a ApiBackend, String)>,
}

impl Person<'_> {
    async fn run(&self, words: &[String]) -> anyhow::Result<String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = Command::from(self.fixture.machine.command(self.user, &words)?);
        if let Some((api, key)) = &self.api {
            command.env_remove("KUBECONFIG");
            command.env("DEVCTL_API_URL", &api.url).env("DEVCTL_API_CA", &api.ca).env("DEVCTL_API_KEY", key);
        }
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(anyhow::Error::from);
        format(&CommandOutput { out: text(output.stdout)?, err: text(output.stderr)?, code: output.status.code() })
    }
}

/// Formats what must not depend on the backend.
fn format(output: &CommandOutput) -> anyhow::Result<String> {
    let text = format!("exit code {:?}\n{}{}", output.code, output.err, output.out);
    let text = text.replace("bea", "ada").replace("DEVCTL_API_URL", "ada").replace("odc-worker", "devctl");
    let mask = |text: &str, pattern: &str, by: &str| {
        Ok::<_, anyhow::Error>(regex::Regex::new(pattern)?.replace_all(text, by).into_owned())
    };
    // Names that the API server or the API generates.
    let text = mask(&text, "(data-snapshot-|snapshot-)[0-9a-z]+", "<operation>")?;
    let text = mask(&text, "(data-unlock-|unlock-)[0-9a-z]+", "<operation>")?;
    // The test can write the status of an operation before devctl reads it.
    let text = mask(&text, "(?m)^disk .*: created, waiting for the operator\n", "")?;
    // The servers of the two users are not created in the same second.
    let text = mask(&text, "\"createdAt\":\"[^\"]*\"", "\"createdAt\":\"<time>\"")?;
    normalize(&text)
}

/// Splits a command into words.
fn words(line: &str, files: &[(&str, String)]) -> anyhow::Result<Vec<String>> {
    let words = shlex::split(line).with_context(|| format!("invalid command {line}"))?;
    let file =
        |word: String| files.iter().find(|(name, _)| *name == word).map_or(word.clone(), |(_, path)| path.clone());
    Ok(words.into_iter().map(file).collect())
}

/// Writes the statuses that commands wait for.
fn act_as_operator(fixture: &Fixture<'_>, users: [&'static str; 2]) -> AbortOnDropHandle<()> {
    let client = fixture.plane.client.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            for user in users {
                let namespace = format!("dev-{user}");
                if let Err(error) = write_statuses(&client, &namespace).await {
                    // The commands that wait for a status fail by their own limits.
                    let _ = writeln!(std::io::stderr(), "{namespace}: {error:#}");
                }
            }
            tokio::time::sleep(OPERATOR_INTERVAL).await;
        }
    }))
}

async fn write_statuses(client: &kube::Client, namespace: &str) -> anyhow::Result<()> {
    let servers: Api<DevServer> = Api::namespaced(client.clone(), namespace);
    for server in servers.list(&ListParams::default()).await? {
        let granted = server.status.as_ref().and_then(|status| status.lifetime.as_ref());
        if granted.is_some_and(|granted| granted.requested != server.spec.lifetime) {
            let lifetime = json!({"requested": server.spec.lifetime, "granted": server.spec.lifetime});
            let status = json!({"status": {"lifetime": lifetime, "expiresAt": after(8 * 3600)}});
            servers.patch_status(&server.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
    }
    let operations: Api<DiskOperation> = Api::namespaced(client.clone(), namespace);
    for operation in
        operations.list(&ListParams::default()).await?.iter().filter(|operation| operation.status.is_none())
    {
        let status = json!({"status": {"phase": "Succeeded", "result": {"point": "data-2"}}});
        operations.patch_status(&operation.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(())
}

async fn create_key(service: &Service<'_>, api: &ServiceProcess, user: &str) -> anyhow::Result<String> {
    let key = service.create_key(user, &[], "1h").await?;
    let client = service.client(api, &key)?;
    wait::until("user known to the API", TIMEOUT, async || {
        let response = client.get("/me").await?;
        anyhow::ensure!(response.status == 200, "{} {}", response.status, response.body);
        Ok(())
    })
    .await?;
    Ok(key)
}

/// Waits until reads of the API have the state that the test has written.
async fn wait_for_servers(service: &Service<'_>, api: &ServiceProcess, key: &str) -> anyhow::Result<()> {
    let client = service.client(api, key)?;
    wait::until("servers known to the API", TIMEOUT, async || {
        let response = client.get("/devservers/refused").await?;
        anyhow::ensure!(response.body.pointer("/status/phase").is_some(), "{}", response.body);
        Ok(())
    })
    .await
}

/// Appends a difference.
fn compare(differences: &mut String, line: &str, kube: &str, api: &str) {
    if kube != api {
        let diff = similar::TextDiff::from_lines(kube, api);
        let _ = writeln!(differences, "$ devctl {line}\n{}", diff.unified_diff().header("kube", "api"));
    }
}

#[tokio::test]
async fn commands_print_the_same_with_both_backends() -> anyhow::Result<()> {
    with_service(async |service| {
        let users = ["ada", "bea"];
        let fixture = Fixture::new(service.plane, &users).await?;
        for (user, role) in [("ada", "User"), ("bea", "User"), ("root", "Admin")] {
            let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": user},
                "spec": {"role": role}});
            manifests::apply(&service.plane.client, &object).await?;
        }
        for user in users {
            fixture.create_servers_of(user).await?;
        }
        let (api, _worker) = tokio::try_join!(service.api().start(), service.worker().start())?;
        let ca = service.directory.join("ca.crt");
        std::fs::write(&ca, &service.authority)?;
        let backend = ApiBackend { url: api.url(), ca: ca.display().to_string() };
        let (key, root_key) = (create_key(service, &api, "bea").await?, create_key(service, &api, "root").await?);
        wait_for_servers(service, &api, &key).await?;
        let queue_api = FakeQueueApi::start(&service.plane.client).await?;
        for user in &users {
            serve_three_pending_servers(&queue_api, user);
        }
        let _operator = act_as_operator(&fixture, users);

        let mut differences = String::new();
        let ada = Person { fixture: &fixture, user: "ada", api: None };
        let bea = Person { fixture: &fixture, user: "bea", api: Some((&backend, key)) };
        for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
            let words = words(line, &[])?;
            let (kube, api) = tokio::try_join!(ada.run(&words), bea.run(&words))?;
            compare(&mut differences, line, &kube, &api);
        }

        let files = write_flavors(service)?;
        let [mut kube, mut api] = [vec![], vec![]];
        // One after the other, because both change the same objects.
        for (person, outputs) in [
            (Person { fixture: &fixture, user: "admin", api: None }, &mut kube),
            (Person { fixture: &fixture, user: "root", api: Some((&backend, root_key)) }, &mut api),
        ] {
            for line in ADMIN_COMMANDS.lines().filter(|line| !line.is_empty()) {
                outputs.push(person.run(&words(line, &files)?).await?);
            }
        }
        for ((line, kube), api) in ADMIN_COMMANDS.lines().filter(|line| !line.is_empty()).zip(&kube).zip(&api) {
            compare(&mut differences, line, kube, api);
        }
        anyhow::ensure!(differences.is_empty(), "{differences}");
        Ok(())
    })
    .await
}

/// Writes manifests of a flavor: one, and one that conflicts with a change of it.
fn write_flavors(service: &Service<'_>) -> anyhow::Result<[(&'static str, String); 2]> {
    let manifest = |maintenance: Option<&str>| -> Value {
        let mut spec = json!({"resources": {"per": "Server", "cpu": "2", "memory": "4Gi"}});
        if let Some(message) = maintenance {
            spec["maintenance"] = json!({"message": message});
        }
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor",
            "metadata": {"name": "big", "labels": {"tier": "large"}}, "spec": spec})
    };
    let write = |name: &'static str, value: &Value| -> anyhow::Result<(&'static str, String)> {
        let path = service.directory.join(format!("{name}.json"));
        std::fs::write(&path, value.to_string())?;
        Ok((name, path.display().to_string()))
    };
    Ok([write("FLAVOR", &manifest(None))?, write("CONFLICT", &manifest(Some("Other drivers")))?])
}
