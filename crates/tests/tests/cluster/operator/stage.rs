//! A stage for the operator: a control plane with ODC installed, nodes, flavors and the user ada.

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
use odc_api::v1alpha1::{DevServer, DevServerUser, Phase};
use odc_tests::audit::Request;
use odc_tests::odc::{self, Operator};
use odc_tests::{ControlPlane, wait, with_control_plane};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub const LIMIT: Duration = Duration::from_secs(60);
pub const NAMESPACE: &str = "dev-ada";
/// The name of what operators lead by.
pub const LEASE: &str = "odc-operator";
/// Who the operator is to the API server.
pub const OPERATOR: &str = "system:serviceaccount:odc-system:odc-operator";

pub struct Stage<'a> {
    pub plane: &'a ControlPlane,
    pub directory: PathBuf,
    /// With the operator's own rights.
    pub kubeconfig: PathBuf,
    pub servers: Api<DevServer>,
    pub pods: Api<Pod>,
}

/// Two nodes with eight GPUs each, the flavors `cpu` (default) and `gpu`, the user `ada`; the operator is not started.
pub async fn with_stage<T>(test: impl AsyncFnOnce(&Stage<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_control_plane(async |plane| {
        let directory = tempfile::tempdir()?;
        odc::install(&plane.client).await?;
        for node in ["node-1", "node-2"] {
            let resources = [("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti"), ("nvidia.com/gpu", "8")];
            plane.add_node(node, &resources).await?;
        }
        for object in [flavor("cpu", true), flavor("gpu", false), user("ada")] {
            odc::apply(&plane.client, &object).await?;
        }
        let kubeconfig = directory.path().join("operator.kubeconfig");
        odc::with_token(&plane.kubeconfig, &odc::token(&plane.client).await?, &kubeconfig)?;
        let stage = Stage {
            plane,
            directory: directory.path().to_owned(),
            kubeconfig,
            servers: Api::namespaced(plane.client.clone(), NAMESPACE),
            pods: Api::namespaced(plane.client.clone(), NAMESPACE),
        };
        test(&stage).await
    })
    .await
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

/// A server with an ephemeral home, changed as a test likes.
pub fn server(name: &str, changes: &Value) -> anyhow::Result<DevServer> {
    let mut spec = json!({"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}});
    if let (Some(spec), Some(changes)) = (spec.as_object_mut(), changes.as_object()) {
        spec.extend(changes.clone());
    }
    let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
    Ok(serde_json::from_value(object)?)
}

/// Waits until an object of any kind, or that there is none, is as it should be; gives it.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> anyhow::Result<Option<K>>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    let Ok(object) = tokio::time::timeout(LIMIT, await_condition(api.clone(), name, holds)).await else {
        let mut now = api.get_opt(name).await?;
        if let Some(object) = &mut now {
            object.meta_mut().managed_fields = None;
        }
        anyhow::bail!("{name} is not {what}: {}", serde_json::to_string_pretty(&now)?)
    };
    Ok(object?)
}

/// Waits until there is none of that name.
pub async fn until_none<K>(api: &Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
{
    until(api, name, "gone", |object| object.is_none()).await.map(drop)
}

impl Stage<'_> {
    /// Everything the operator wrote since so many requests, but for the Lease, which it renews as long as it lives.
    pub fn written_since(&self, mark: usize) -> anyhow::Result<Vec<String>> {
        let requests = self.plane.requests()?;
        let of_operator =
            |request: &&Request| request.user == OPERATOR && request.is_write() && request.resource != "leases";
        let line = |request: &Request| {
            format!("{} {} {}/{} {}", request.verb, request.resource, request.namespace, request.name, request.code)
        };
        Ok(requests[mark..].iter().filter(of_operator).map(line).collect())
    }

    /// Waits until the operator has written nothing for two seconds; gives the place in the record.
    pub async fn quiet(&self) -> anyhow::Result<usize> {
        wait::until("quiet", LIMIT, async || {
            let mark = self.plane.requests()?.len();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let written = self.written_since(mark)?;
            anyhow::ensure!(written.is_empty(), "the operator still writes: {written:#?}");
            Ok(mark)
        })
        .await
    }

    /// As if the time of a dead leader were over, so that nobody has to wait for that. Its number stays.
    pub async fn forget_leader(&self) -> anyhow::Result<()> {
        self.leases()
            .patch(LEASE, &PatchParams::default(), &Patch::Merge(json!({"spec": {"holderIdentity": null}})))
            .await?;
        Ok(())
    }

    /// Where the one Lease of the operators is.
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.plane.client.clone(), "odc-system")
    }

    /// A claim of ada's that is bound to a volume of its own, which any node reaches.
    pub async fn claim(&self, name: &str) -> anyhow::Result<()> {
        self.claim_of(name, &json!({"hostPath": {"path": "/nowhere"}})).await
    }

    /// The same with a volume of this source.
    pub async fn claim_of(&self, name: &str, source: &Value) -> anyhow::Result<()> {
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
            odc::apply(&self.plane.client, &object).await?;
        }
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.plane.client.clone(), NAMESPACE);
        let bound = |claim: Option<&PersistentVolumeClaim>| {
            claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
        };
        tokio::time::timeout(LIMIT, await_condition(claims, name, bound)).await.context("the claim is not bound")??;
        Ok(())
    }

    /// Stores an object of ours under other rules, by which the API server checks nothing but that it is an object.
    pub async fn store_by_other_rules(&self, object: &Value) -> anyhow::Result<()> {
        let client = &self.plane.client;
        let mut ours = odc_api::crd::crds().into_iter();
        let ours = ours.find(|definition| object["kind"] == definition.spec.names.kind).context("it is ours")?;
        let ours = serde_json::to_value(ours)?;
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut others = ours.clone();
        let version = &mut others["spec"]["versions"][0];
        version["schema"] = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}});
        if let Some(version) = version.as_object_mut() {
            version.remove("selectableFields");
        }
        odc::apply(client, &others).await.context("relaxing the definition")?;
        wait::until("the API server takes it", LIMIT, async || odc::apply(client, object).await).await?;
        odc::apply(client, &ours).await.context("restoring the definition")?;
        let mut other = object.clone();
        other["metadata"]["name"] = "other".into();
        wait::until("the API server takes no other", LIMIT, async || {
            let Ok(stored) = odc::apply(client, &other).await else { return Ok(()) };
            let types = stored.types.clone().context("an object has a kind")?;
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
            let api: Api<DynamicObject> = match &stored.metadata.namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            api.delete("other", &DeleteParams::default()).await?;
            anyhow::bail!("it still takes what it should refuse")
        })
        .await
    }

    pub async fn until_gone(&self, name: &str) -> anyhow::Result<()> {
        let gone = |server: Option<&DevServer>| server.is_none();
        tokio::time::timeout(LIMIT, await_condition(self.servers.clone(), name, gone))
            .await
            .context("still there")??;
        Ok(())
    }

    pub async fn until_pod(&self, name: &str, what: &str, holds: impl Fn(Option<&Pod>) -> bool) -> anyhow::Result<()> {
        let waiting = await_condition(self.pods.clone(), name, holds);
        tokio::time::timeout(LIMIT, waiting).await.with_context(|| format!("pod {name} is not {what}"))??;
        Ok(())
    }

    pub async fn operator(&self) -> anyhow::Result<Operator> {
        let operator = Operator::start(&self.kubeconfig, &self.directory, &odc::short_times()).await?;
        self.user_ready("ada").await.with_context(|| operator.words())?;
        Ok(operator)
    }

    pub async fn user_ready(&self, name: &str) -> anyhow::Result<()> {
        let users: Api<DevServerUser> = Api::all(self.plane.client.clone());
        let ready = |user: Option<&DevServerUser>| {
            let conditions = user.and_then(|user| user.status.as_ref()).map(|status| status.conditions.as_slice());
            odc_api::v1alpha1::condition::holds(
                conditions.unwrap_or_default(),
                odc_api::v1alpha1::condition::Type::Ready,
            )
        };
        tokio::time::timeout(LIMIT, await_condition(users, name, ready)).await.context("the user is not ready")??;
        odc_local::cluster::takes_pods(&self.plane.client, &format!("dev-{name}")).await
    }

    pub async fn create(&self, name: &str, changes: Value) -> anyhow::Result<DevServer> {
        Ok(self.servers.create(&PostParams::default(), &server(name, &changes)?).await?)
    }

    pub async fn change(&self, name: &str, spec: Value) -> anyhow::Result<DevServer> {
        let patch = json!({"spec": spec});
        Ok(self.servers.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?)
    }

    pub async fn until(&self, name: &str, what: &str, holds: impl Fn(&DevServer) -> bool) -> anyhow::Result<DevServer> {
        let holds = |server: Option<&DevServer>| server.is_some_and(&holds);
        until(&self.servers, name, what, holds).await?.with_context(|| format!("{name} is gone"))
    }

    pub async fn until_phase(&self, name: &str, phase: Phase) -> anyhow::Result<DevServer> {
        let holds = |server: &DevServer| server.status.as_ref().and_then(|status| status.phase) == Some(phase);
        self.until(name, phase.as_str(), holds).await
    }
}
