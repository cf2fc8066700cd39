//! Validated requests on caches without an API server.

use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Lookup};
use kube::runtime::watcher::Event;
use odc_api::v1alpha1::{DevServerUser, Disk, Team};
use odc_core::cluster;
use odc_core::manifest::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::cache::key;

const CLAIMS: usize = 17;

/// Caches with the user ada, her team and the flavors `cpu` and `gpu`.
struct Caches {
    cluster: ClusterCache,
    servers: Writer<DevServer>,
    users: Writer<DevServerUser>,
    disks: Writer<Disk>,
    validated: ValidatedServers,
    settings: Settings,
    version: u64,
}

fn synced<K: Lookup + Clone + 'static>() -> (reflector::Store<K>, Writer<K>)
where
    K::DynamicType: Default + Eq + std::hash::Hash + Clone,
{
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitDone);
    (store, writer)
}

impl Caches {
    fn new() -> Self {
        let ((server_store, servers), (user_store, users), (disk_store, disks)) = (synced(), synced(), synced());
        let ctx = crate::fake::context(crate::fake::api_server(|_| (404, Value::Null)).client);
        let mut caches = Self {
            cluster: ClusterCache::new(server_store, user_store, disk_store),
            servers,
            users,
            disks,
            validated: ValidatedServers::default(),
            settings: ctx.config.server.clone(),
            version: 0,
        };
        let namespace = json!({"metadata": {"name": "dev-ada", "labels": {"odc.dev/owner": "ada"}}});
        let namespace = cluster::ManagedObject::from_api(Kind::Namespace, namespace);
        caches.cluster.namespaces.insert_listed((String::new(), "dev-ada".into()), namespace, 1);
        caches.set_user("ada", &json!({}));
        caches.set_team(&json!({"members": ["ada"]}));
        caches.set_flavor("cpu", &json!({}));
        caches.set_flavor("gpu", &json!({"device": {"resource": "nvidia.com/gpu", "perNode": 8}}));
        caches
    }

    fn object<K: DeserializeOwned>(&mut self, kind: &str, namespace: &str, name: &str, fields: &Value) -> K {
        self.version += 1;
        let mut object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": self.version,
                "resourceVersion": self.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z"}});
        if namespace.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        }
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    fn set_user(&mut self, name: &str, spec: &Value) {
        let user = self.object("DevServerUser", "", name, &json!({"spec": spec}));
        self.users.apply_watcher_event(&Event::Apply(user));
    }

    fn set_team(&mut self, spec: &Value) {
        let team: Team = self.object("Team", "", "vision", &json!({"spec": spec}));
        self.cluster.teams.insert((String::new(), "vision".into()), team, self.version);
    }

    fn set_flavor(&mut self, name: &str, changes: &Value) {
        let mut spec = json!({"default": name == "cpu", "resources": {"per": "Server", "cpu": "1", "memory": "1Gi"}});
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let flavor: DevServerFlavor = self.object("DevServerFlavor", "", name, &json!({"spec": spec}));
        self.cluster.flavors.objects.insert((String::new(), name.into()), flavor, self.version);
        self.cluster.flavors.rebuild();
    }

    fn set_server(&mut self, name: &str, spec: &Value, status: &Value) -> DevServer {
        let server: DevServer = self.object("DevServer", "dev-ada", name, &json!({"spec": spec, "status": status}));
        self.servers.apply_watcher_event(&Event::Apply(server.clone()));
        self.cluster.namespace_index.insert(key(&server));
        self.cluster.index_server(&server);
        self.validated.insert(server.metadata.uid.as_deref().unwrap());
        server
    }

    fn set_disk(&mut self, claim: &str) {
        let fields = json!({"spec": {"size": "1Gi"}, "status": {"claim": claim}});
        let disk: Disk = self.object("Disk", "dev-ada", "work", &fields);
        self.disks.apply_watcher_event(&Event::Apply(disk));
    }

    fn set_claim(&mut self, name: &str, phase: &str) {
        self.version += 1;
        let claim = json!({"metadata": {"name": name, "namespace": "dev-ada"}, "spec": {"volumeName": "volume"},
            "status": {"phase": phase}});
        let claim = cluster::Claim::from_api(&serde_json::from_value(claim).unwrap());
        self.cluster.claims.insert(("dev-ada".into(), name.into()), claim, self.version);
    }

    fn get(&self, server: &DevServer) -> Arc<ValidatedServer> {
        self.validated.get(&self.cluster, server, &self.settings)
    }

    /// Validates all servers. Returns the CPU time.
    fn validate_all(&self) -> Duration {
        let started = crate::scheduler::thread_cpu_time();
        for server in self.cluster.servers.state() {
            let validated = self.get(&server);
            let mut keep = |_: &DevServer, _| None;
            assert!(validated.queue_entry(&self.cluster, &server, &self.settings, Timestamp::MIN, &mut keep).is_some());
        }
        crate::scheduler::thread_cpu_time().saturating_sub(started)
    }
}

fn with_claims(count: usize) -> Value {
    let volumes: Vec<Value> =
        (1..count).map(|number| json!({"claim": format!("c{number}"), "path": format!("/v{number}")})).collect();
    json!({"flavor": "cpu", "home": {"claim": "c0"}, "volumes": volumes})
}

/// A change of the cached objects.
type Change = fn(&mut Caches);

#[tokio::test]
async fn request_is_validated_again_only_after_a_change_of_what_it_depends_on() {
    let mut caches = Caches::new();
    caches.set_user("bob", &json!({}));
    caches.set_disk("c9");
    let spec = json!({"team": "vision", "home": {"claim": "c0"}, "access": {"users": ["bob"]}});
    let server = caches.set_server("box", &spec, &Value::Null);
    let on_disk = caches.set_server("other", &json!({"home": {"disk": "work"}}), &Value::Null);
    let changes: [(&str, Change); 11] = [
        ("owner", |caches| caches.set_user("ada", &json!({"defaults": {"flavor": "gpu"}}))),
        ("guest", |caches| caches.set_user("bob", &json!({"weight": 2}))),
        ("team", |caches| caches.set_team(&json!({"members": []}))),
        ("flavor", |caches| caches.set_flavor("cpu", &json!({"limits": {"lifetime": "1h"}}))),
        ("claim", |caches| caches.set_claim("c0", "Pending")),
        ("claim, bound", |caches| caches.set_claim("c0", "Bound")),
        ("volume", |caches| {
            let volume = json!({"metadata": {"name": "volume"}, "spec": {}});
            let volume = cluster::Volume::from_api(&serde_json::from_value(volume).unwrap());
            caches.cluster.volumes.insert((String::new(), "volume".into()), volume, 1);
        }),
        ("storage class", |caches| {
            let class: StorageClass =
                serde_json::from_value(json!({"metadata": {"name": "fast"}, "provisioner": "example.org"})).unwrap();
            let class = cluster::StorageClass::from_api(&class);
            caches.cluster.storage_classes.insert((String::new(), "fast".into()), class, 1);
        }),
        ("attach limits", |caches| {
            let node: CSINode = serde_json::from_value(json!({"metadata": {"name": "n1"},
                "spec": {"drivers": [{"name": "example.org", "nodeID": "n1", "allocatable": {"count": 8}}]}}))
            .unwrap();
            let limits = cluster::NodeVolumeLimits::from_api(&node).unwrap();
            caches.cluster.attach_limits.insert((String::new(), "n1".into()), limits, 1);
        }),
        ("another server of the claim", |caches| {
            caches.set_server("third", &json!({"home": {"claim": "c0"}}), &Value::Null);
        }),
        ("a pod on the claim", |caches| {
            let pod: k8s::Pod = serde_json::from_value(json!({"metadata": {"name": "third-0", "namespace": "dev-ada",
                "uid": "p", "labels": {"odc.dev/server": "third"}, "annotations": {"odc.dev/server-uid": "uid-third"}},
                "spec": {"containers": [], "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "c0"}}]}}))
            .unwrap();
            let key = ("dev-ada".to_owned(), "third-0".to_owned());
            caches.cluster.pods.insert(key.clone(), Pod::from_api(&pod), 1);
            caches.cluster.index_pod(&key);
        }),
    ];
    for (what, change) in changes {
        let before = caches.get(&server);
        assert!(Arc::ptr_eq(&before, &caches.get(&server)), "{what}: validated twice");
        change(&mut caches);
        assert!(!Arc::ptr_eq(&before, &caches.get(&server)), "{what}: not validated again");
    }
    let (before, before_on_disk) = (caches.get(&server), caches.get(&on_disk));
    caches.set_disk("c8");
    assert!(Arc::ptr_eq(&before, &caches.get(&server)), "the disk of another server");
    assert!(!Arc::ptr_eq(&before_on_disk, &caches.get(&on_disk)), "its disk");
    // A server that uses another claim does not matter.
    let before = caches.get(&server);
    caches.set_server("fourth", &json!({"home": {"claim": "c1"}}), &Value::Null);
    assert!(Arc::ptr_eq(&before, &caches.get(&server)));
    let newer = caches.set_server("box", &spec, &json!({"restarts": 1}));
    assert!(!Arc::ptr_eq(&before, &caches.get(&newer)));
}

#[tokio::test]
async fn planner_input_is_a_new_object_only_if_it_differs() {
    let mut caches = Caches::new();
    let server = caches.set_server("box", &json!({"home": {"ephemeral": "1Gi"}}), &Value::Null);
    let at = |second| Timestamp::from_second(second).unwrap();
    let entry = |caches: &Caches, since: Option<Timestamp>| {
        let validated = caches.get(&server);
        validated.queue_entry(&caches.cluster, &server, &caches.settings, at(0), &mut |_, _| since).unwrap().0
    };
    let first = entry(&caches, Some(at(5)));
    assert_eq!((first.intent, first.queued_at), (QueueIntent::Run, at(5)));
    // The flavor loop does not know the time in the queue.
    assert!(Arc::ptr_eq(&first, &entry(&caches, None)));
    assert!(Arc::ptr_eq(&first, &entry(&caches, Some(at(5)))));
    assert_eq!(entry(&caches, Some(at(6))).queued_at, at(6));
}

#[tokio::test]
async fn removed_server_leaves_no_request() {
    let mut caches = Caches::new();
    let server = caches.set_server("box", &json!({"home": {"ephemeral": "1Gi"}}), &Value::Null);
    caches.get(&server);
    caches.validated.remove("uid-box");
    // A scheduling cycle that started before the deletion.
    caches.get(&server);
    assert_eq!(caches.validated.len(), 0);
}

/// Returns the CPU time of the first validation of this many servers, and of the next one.
fn validation_cost(servers: usize) -> (Duration, Duration) {
    let mut caches = Caches::new();
    let spec = with_claims(CLAIMS);
    for number in 0..servers {
        caches.set_server(&format!("server-{number}"), &spec, &Value::Null);
    }
    (0..CLAIMS).for_each(|number| caches.set_claim(&format!("c{number}"), "Bound"));
    (caches.validate_all(), caches.validate_all())
}

#[tokio::test]
async fn cost_of_servers_with_the_same_claims_is_linear() {
    let (few, _) = validation_cost(100);
    let (many, again) = validation_cost(1_600);
    // Sixteen times as many; a comparison of all servers with each other would cost 256 times as much.
    assert!(many < few * 48, "{few:?} for 100 servers, {many:?} for 1,600");
    assert!(again * 2 < many, "{many:?}, then {again:?}");
}
