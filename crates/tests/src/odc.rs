//! ODC itself in a test: installed from the files users install it from, with the operator as a child process under
//! exactly the rights those files give it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::bed::executable;
use crate::wait;

const LIMIT: Duration = Duration::from_secs(60);
const MANAGER: &str = "odc-tests";

/// Where this clone's manifests are.
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Applies `deploy/base` and the definitions, without the Deployment: the operator runs beside the test.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    for directory in ["crds", "base"] {
        let mut files: Vec<PathBuf> = std::fs::read_dir(deploy().join(directory))?
            .map(|entry| Ok(entry?.path()))
            .collect::<anyhow::Result<_>>()?;
        // The namespace before what is in it.
        files.sort_by_key(|file| (file.file_name() != Some("namespace.yaml".as_ref()), file.clone()));
        for file in files {
            for object in
                documents(&std::fs::read_to_string(&file)?).with_context(|| format!("reading {}", file.display()))?
            {
                // While nobody answers a registered API, no namespace can be deleted; tests of it register it themselves.
                if !matches!(object["kind"].as_str(), Some("Kustomization" | "Deployment" | "APIService")) {
                    apply(client, &object).await.with_context(|| format!("applying {}", file.display()))?;
                }
            }
        }
        if directory == "crds" {
            let definitions = Api::all(client.clone());
            for definition in odc_api::crd::crds() {
                let served = conditions::is_crd_established();
                let waiting = await_condition(
                    definitions.clone(),
                    definition.metadata.name.as_deref().unwrap_or_default(),
                    served,
                );
                tokio::time::timeout(LIMIT, waiting).await.context("the definitions are not served")??;
            }
        }
    }
    Ok(())
}

/// The objects of a manifest.
pub fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}

/// Server-side apply of any object.
pub async fn apply(client: &Client, object: &Value) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("an object has a kind")?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let how = PatchParams::apply(MANAGER).force();
    Ok(api.patch(&object.name_any(), &how, &Patch::Apply(&object)).await?)
}

/// A token of the operator's own account.
pub async fn token(client: &Client) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "odc-system");
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request("odc-operator", &PostParams::default(), &request).await?;
    Ok(answer.status.context("a token was asked for")?.token)
}

/// A kubeconfig that reaches the same API server with this token only.
pub fn with_token(kubeconfig: &Path, token: &str, into: &Path) -> anyhow::Result<()> {
    let mut config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    for user in &mut config.auth_infos {
        user.auth_info = Some(serde_json::from_value(json!({"token": token})).context("a token is all a user needs")?);
    }
    std::fs::write(into, serde_json::to_string(&config)?)?;
    Ok(())
}

/// The operator, dead when this is dropped.
pub struct Operator {
    pub child: Child,
    pub address: String,
    pub log: PathBuf,
}

/// Short times, so that tests see what takes hours elsewhere.
pub fn short_times() -> Vec<(&'static str, &'static str)> {
    vec![
        ("ODC_EXPIRY_GRACE", "1s"),
        ("ODC_NODE_LOST_AFTER", "3s"),
        ("ODC_UNPLACED_AFTER", "5s"),
        ("ODC_IDLE_GRACE", "5s"),
    ]
}

impl Operator {
    /// Starts one and waits until it answers. `directory` gets its log.
    pub async fn start(kubeconfig: &Path, directory: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let operator = Self::spawn(kubeconfig, directory, settings)?;
        operator.until_ready().await?;
        Ok(operator)
    }

    pub fn spawn(kubeconfig: &Path, directory: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let log = directory.join(format!("operator-{port}.log"));
        // A benchmark brings an optimised one.
        let program = std::env::var_os("ODC_OPERATOR").map_or_else(|| executable("odc"), |named| Ok(named.into()))?;
        let child = Command::new(program)
            .arg("operator")
            .env("ODC_KUBECONFIG", kubeconfig)
            .env("ODC_METRICS_ADDRESS", &address)
            .env("ODC_AGENT_IMAGE", "agent")
            .env("ODC_DEFAULT_IMAGE", "base")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("starting odc operator")?;
        Ok(Self { child, address, log })
    }

    /// Until it leads and has seen everything.
    pub async fn until_ready(&self) -> anyhow::Result<()> {
        wait::until("the operator", LIMIT, async || {
            let metrics = self.get("/metrics").await?;
            anyhow::ensure!(metrics.contains("odc_leading 1"), "it does not lead:\n{}", self.words());
            let ready = self.get("/readyz").await?;
            anyhow::ensure!(ready.contains("200 OK"), "it is not ready:\n{}", self.words());
            Ok(())
        })
        .await
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut connection = tokio::net::TcpStream::connect(&self.address).await?;
        connection
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: operator\r\nconnection: close\r\n\r\n").as_bytes())
            .await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// The end of its log.
    pub fn words(&self) -> String {
        odc_local::artifact::tail(&std::fs::read_to_string(&self.log).unwrap_or_default(), 30)
    }

    /// SIGKILL, as by the kernel.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}
