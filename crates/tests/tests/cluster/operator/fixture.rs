//! Fixture of the operator tests: a control plane with ODC installed, nodes, flavors and the user ada.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Resource;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DevServer, DevServerStatus, DevServerUser, Phase};
use odc_tests::audit::Request;
use odc_tests::operator::{self, Operator};
use odc_tests::{ControlPlane, manifests, namespace, wait, with_control_plane, with_new_control_plane};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use odc_tests::operator::LEASE;

pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Namespace of the user ada.
pub const NAMESPACE: &str = "dev-ada";
/// User name of the operator's service account.
pub const OPERATOR: &str = "system:serviceaccount:odc-system:odc-operator";
/// Without a write in this time the operator counts as idle.
const IDLE_WINDOW: Duration = Duration::from_secs(2);

pub struct Fixture<'a> {
    pub plane: &'a ControlPlane,
    pub directory: PathBuf,
    /// Kubeconfig with the permissions of the operator.
    pub kubeconfig: PathBuf,
    pub servers: Api<DevServer>,
    pub pods: Api<Pod>,
}

/// Provides two nodes with eight GPUs each, the flavors `cpu` (default) and `gpu`, and the user `ada`. The operator does not
/// run yet.
pub async fn with_fixture<T>(test: impl AsyncFnOnce(&Fixture<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_control_plane(async |plane| prepare(plane, test).await).await
}

/// As [`with_fixture`], on a control plane whose components are child processes of the test, which may stop them.
pub async fn with_own_control_plane<T>(test: impl AsyncFnOnce(&Fixture<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_new_control_plane(async |plane| {
        manifests::install(&plane.client).await?;
        prepare(plane, test).await
    })
    .await
}

async fn prepare<T>(
    plane: &ControlPlane,
    test: impl AsyncFnOnce(&Fixture<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let directory = tempfile::tempdir()?;
    for node in ["node-1", "node-2"] {
        let resources = [("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti"), ("nvidia.com/gpu", "8")];
        plane.add_node(node, &resources).await?;
    }
    for object in [flavor("cpu", true), flavor("gpu", false), user("ada")] {
        manifests::apply(&plane.client, &object).await?;
    }
    let kubeconfig = directory.path().join("operator.kubeconfig");
    let token = operator::service_account_token(&plane.client).await?;
    operator::write_token_kubeconfig(&plane.kubeconfig, &token, &kubeconfig)?;
    let fixture = Fixture {
        plane,
        directory: directory.path().to_owned(),
        kubeconfig,
        servers: Api::namespaced(plane.client.clone(), NAMESPACE),
        pods: Api::namespaced(plane.client.clone(), NAMESPACE),
    };
    test(&fixture).await
}

pub fn flavor(name: &str, default: bool) -> Value {
    let mut spec = json!({
        "default": default,
        "privilege": "Sudo",
        "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"},
    });
    if name == "gpu" {
        spec["device"] = json!({"resource": "nvidia.com/gpu", "perNode": 8});
    }
    json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": name}, "spec": spec})
}

pub fn user(name: &str) -> Value {
    json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": name}, "spec": {}})
}

/// Returns a server with an ephemeral home and these changes to its spec.
pub fn server(name: &str, changes: &Value) -> anyhow::Result<DevServer> {
    let mut spec = json!({"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}});
    if let (Some(spec), Some(changes)) = (spec.as_object_mut(), changes.as_object()) {
        spec.extend(changes.clone());
    }
    let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
    Ok(serde_json::from_value(object)?)
}

/// Returns the status of a server, empty if it has none.
pub fn status(server: &DevServer) -> DevServerStatus {
    server.status.clone().unwrap_or_default()
}

/// Returns the message of a condition of a server, empty if it lacks the condition.
pub fn condition_message(server: &DevServer, kind: Type) -> String {
    condition::find(&status(server).conditions, kind).map(|condition| condition.message.to_string()).unwrap_or_default()
}

/// Reports whether a pod is bound to a node.
pub fn is_bound(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
}

/// Waits until an object, or its absence, meets `condition`, which failures report as `expected`.
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    expected: &str,
    condition: impl Fn(Option<&K>) -> bool,
) -> anyhow::Result<Option<K>>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    let Ok(object) = tokio::time::timeout(TIMEOUT, await_condition(api.clone(), name, condition)).await else {
        let mut current = api.get_opt(name).await?;
        if let Some(object) = &mut current {
            object.meta_mut().managed_fields = None;
        }
        anyhow::bail!("{name} is not {expected}: {}", serde_json::to_string_pretty(&current)?)
    };
    Ok(object?)
}

/// Waits until an object does not exist.
pub async fn wait_absent<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    wait_for(api, name, "deleted", |object| object.is_none()).await.map(drop)
}

impl Fixture<'_> {
    /// Returns the writes of the operator after the first `mark` requests, without the renewals of its Lease.
    pub fn writes_since(&self, mark: usize) -> anyhow::Result<Vec<String>> {
        let requests = self.plane.requests()?;
        let by_operator =
            |request: &&Request| request.user == OPERATOR && request.is_write() && request.resource != "leases";
        let line = |request: &Request| {
            format!("{} {} {}/{} {}", request.verb, request.resource, request.namespace, request.name, request.code)
        };
        Ok(requests[mark..].iter().filter(by_operator).map(line).collect())
    }

    /// Waits until the operator has written nothing for [`IDLE_WINDOW`]. Returns the number of requests before that window.
    pub async fn wait_idle(&self) -> anyhow::Result<usize> {
        wait::until("operator idle", TIMEOUT, async || {
            let mark = self.plane.requests()?.len();
            tokio::time::sleep(IDLE_WINDOW).await;
            let written = self.writes_since(mark)?;
            anyhow::ensure!(written.is_empty(), "the operator is still writing: {written:#?}");
            Ok(mark)
        })
        .await
    }

    /// Releases the Lease of a killed leader, so that the next one need not wait for its expiry. The epoch stays.
    pub async fn release_lease(&self) -> anyhow::Result<()> {
        operator::release_lease(&self.plane.client).await
    }

    /// Returns the API of the leader election Lease.
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.plane.client.clone(), "odc-system")
    }

    /// Creates a claim of ada, bound to a volume that every node can mount.
    pub async fn create_claim(&self, name: &str) -> anyhow::Result<()> {
        self.create_claim_with_source(name, &json!({"hostPath": {"path": "/nowhere"}})).await
    }

    /// Creates a claim of ada, bound to a volume with this source.
    pub async fn create_claim_with_source(&self, name: &str, source: &Value) -> anyhow::Result<()> {
        let common = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": ""});
        let (mut volume, mut claim) = (common.clone(), common);
        volume["capacity"] = json!({"storage": "1Gi"});
        if let (Some(volume), Some(source)) = (volume.as_object_mut(), source.as_object()) {
            volume.extend(source.clone());
        }
        volume["persistentVolumeReclaimPolicy"] = "Retain".into();
        volume["claimRef"] = json!({"namespace": NAMESPACE, "name": name});
        claim["resources"] = json!({"requests": {"storage": "1Gi"}});
        claim["volumeName"] = format!("volume-{name}").into();
        for object in [
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("volume-{name}")}, "spec": volume}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": claim}),
        ] {
            manifests::apply(&self.plane.client, &object).await?;
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.plane.client.clone(), NAMESPACE);
        let bound = |claim: Option<&PersistentVolumeClaim>| {
            claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
        };
        tokio::time::timeout(TIMEOUT, await_condition(claims, name, bound))
            .await
            .with_context(|| format!("claim {name} is not bound"))??;
        Ok(())
    }

    /// Stores an object that its schema rejects: relaxes the CRD, applies the object, and restores the CRD.
    pub async fn store_invalid(&self, object: &Value) -> anyhow::Result<()> {
        let client = &self.plane.client;
        let mut crds = odc_api::crd::crds().into_iter();
        let crd = crds.find(|crd| object["kind"] == crd.spec.names.kind).context("the kind has no CRD")?;
        let crd = serde_json::to_value(crd)?;
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut relaxed = crd.clone();
        let version = &mut relaxed["spec"]["versions"][0];
        version["schema"] = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}});
        if let Some(version) = version.as_object_mut() {
            version.remove("selectableFields");
        }
        manifests::apply(client, &relaxed).await.context("relaxing the CRD")?;
        wait::until("relaxed schema", TIMEOUT, async || manifests::apply(client, object).await).await?;
        manifests::apply(client, &crd).await.context("restoring the CRD")?;
        let mut probe = object.clone();
        probe["metadata"]["name"] = "probe".into();
        wait::until("restored schema", TIMEOUT, async || {
            let Ok(stored) = manifests::apply(client, &probe).await else { return Ok(()) };
            let types = stored.types.clone().context("the object has no kind")?;
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
            let api: Api<DynamicObject> = match &stored.metadata.namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            api.delete("probe", &DeleteParams::default()).await?;
            anyhow::bail!("the API server still accepts the invalid object")
        })
        .await
    }

    /// Returns the name of the Secret of an existing server.
    pub async fn secret_name(&self, server: &str) -> anyhow::Result<String> {
        let uid = self.servers.get(server).await?.metadata.uid.unwrap_or_default();
        Ok(format!("{server}-keys-{}", uid.get(..8).unwrap_or_default()))
    }

    pub async fn wait_deleted(&self, name: &str) -> anyhow::Result<()> {
        wait_absent(&self.servers, name).await
    }

    pub async fn wait_for_pod(
        &self,
        name: &str,
        expected: &str,
        condition: impl Fn(Option<&Pod>) -> bool,
    ) -> anyhow::Result<()> {
        wait_for(&self.pods, name, expected, condition).await.map(drop)
    }

    pub async fn wait_pod_deleted(&self, name: &str) -> anyhow::Result<()> {
        wait_absent(&self.pods, name).await
    }

    /// Starts an operator and waits until the user ada is ready.
    pub async fn start_operator(&self) -> anyhow::Result<Operator> {
        let operator = Operator::start(&self.kubeconfig, &self.directory, &operator::fast_timeouts()).await?;
        self.wait_user_ready("ada").await.with_context(|| operator.log_tail())?;
        Ok(operator)
    }

    pub async fn wait_user_ready(&self, name: &str) -> anyhow::Result<()> {
        let users: Api<DevServerUser> = Api::all(self.plane.client.clone());
        let ready = |user: Option<&DevServerUser>| {
            let conditions = user.and_then(|user| user.status.as_ref()).map(|status| status.conditions.as_slice());
            condition::is_true(conditions.unwrap_or_default(), Type::Ready)
        };
        tokio::time::timeout(TIMEOUT, await_condition(users, name, ready))
            .await
            .with_context(|| format!("user {name} is not ready"))??;
        namespace::wait_ready(&self.plane.client, &format!("dev-{name}")).await
    }

    pub async fn create(&self, name: &str, changes: Value) -> anyhow::Result<DevServer> {
        Ok(self.servers.create(&PostParams::default(), &server(name, &changes)?).await?)
    }

    /// Creates a server and waits until it runs.
    pub async fn create_running(&self, name: &str, changes: Value) -> anyhow::Result<DevServer> {
        self.create(name, changes).await?;
        self.wait_for_phase(name, Phase::Running).await
    }

    /// Creates a claim and a server that mounts it as its home, and waits until the server runs.
    pub async fn create_running_with_claim(&self, name: &str, claim: &str) -> anyhow::Result<DevServer> {
        self.create_claim(claim).await?;
        self.create_running(name, json!({"home": {"claim": claim}})).await
    }

    /// Kills the operator and starts the next one without waiting for the Lease to expire.
    pub async fn replace_operator(&self, operator: &mut Operator) -> anyhow::Result<()> {
        operator.kill().await?;
        self.release_lease().await?;
        *operator = self.start_operator().await?;
        Ok(())
    }

    /// Merges fields into the spec of a server.
    pub async fn patch_spec(&self, name: &str, spec: Value) -> anyhow::Result<DevServer> {
        let patch = json!({"spec": spec});
        Ok(self.servers.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?)
    }

    /// Waits until a server meets `condition`, which failures report as `expected`.
    pub async fn wait_for(
        &self,
        name: &str,
        expected: &str,
        condition: impl Fn(&DevServer) -> bool,
    ) -> anyhow::Result<DevServer> {
        let condition = |server: Option<&DevServer>| server.is_some_and(&condition);
        let server = wait_for(&self.servers, name, expected, condition).await?;
        server.with_context(|| format!("server {name} does not exist"))
    }

    pub async fn wait_for_phase(&self, name: &str, phase: Phase) -> anyhow::Result<DevServer> {
        self.wait_for(name, phase.as_str(), |server| status(server).phase == Some(phase)).await
    }
}
