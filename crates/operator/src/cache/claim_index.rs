//! Which servers and pods use each claim, so that neither a look-up nor a change compares all servers of a namespace.
//!
//! Like all caches it may lag behind the API server. It is updated on the runtime's thread right after the cache of the
//! kind that changed, and read on other threads.

use std::collections::{BTreeSet, HashMap};

use odc_api::v1alpha1::{DevServer, Home};
use odc_core::cluster::Pod;
use odc_core::volume_in_use::{ClaimUsers, VolumeUser};
use parking_lot::RwLock;

use super::Key;

#[derive(Default)]
pub struct ClaimIndex(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    namespaces: HashMap<String, Namespace>,
    /// The number of changes so far.
    changes: u64,
}

/// The servers and pods with claims in one namespace.
#[derive(Default)]
struct Namespace {
    servers: HashMap<String, ServerMounts>,
    /// The claims of each pod.
    pods: HashMap<String, Box<[Box<str>]>>,
    claims: HashMap<String, ClaimEntry>,
    /// The servers whose home is a disk, by disk.
    disks: HashMap<String, BTreeSet<String>>,
}

struct ServerMounts {
    uid: String,
    claims: Vec<String>,
    disk: Option<String>,
}

#[derive(Default)]
struct ClaimEntry {
    /// All servers that mount the claim, including ended ones.
    servers: BTreeSet<String>,
    users: ClaimUsers,
    /// The value of [`Inner::changes`] when `users` changed.
    revision: u64,
}

impl ClaimIndex {
    /// Adds or updates a server and the claims that it mounts.
    pub fn insert_server(&self, (namespace, name): &Key, server: &DevServer, claims: Vec<String>) {
        let disk = match &server.spec.home {
            Home::Disk(disk) => Some(disk.as_str().to_owned()),
            Home::Claim(_) | Home::Ephemeral(_) => None,
        };
        let uid = server.metadata.uid.clone().unwrap_or_default();
        let mut inner = self.0.write();
        let Inner { namespaces, changes } = &mut *inner;
        if claims.is_empty() && disk.is_none() {
            remove_server(namespaces, changes, namespace, name);
            return;
        }
        let entries = namespaces.entry(namespace.clone()).or_default();
        let is_same = |old: &ServerMounts| old.uid == uid && old.claims == claims && old.disk == disk;
        if !entries.servers.get(name).is_some_and(is_same) {
            entries.remove_server(name, changes);
        }
        for claim in &claims {
            let entry = entries.claims.entry(claim.clone()).or_default();
            entry.servers.insert(name.clone());
            if entry.users.insert_server(server) {
                entry.mark_changed(changes);
            }
        }
        if let Some(disk) = &disk {
            entries.disks.entry(disk.clone()).or_default().insert(name.clone());
        }
        entries.servers.insert(name.clone(), ServerMounts { uid, claims, disk });
    }

    pub fn remove_server(&self, (namespace, name): &Key) {
        let mut inner = self.0.write();
        let Inner { namespaces, changes } = &mut *inner;
        remove_server(namespaces, changes, namespace, name);
    }

    /// Adds, updates or removes a pod. Only pods of servers are kept.
    pub fn set_pod(&self, (namespace, name): &Key, pod: Option<&Pod>) {
        let pod = pod.filter(|pod| pod.server.is_some() && !pod.claims.is_empty());
        let mut inner = self.0.write();
        let Inner { namespaces, changes } = &mut *inner;
        if pod.is_none() && !namespaces.get(namespace).is_some_and(|entries| entries.pods.contains_key(name)) {
            return;
        }
        let entries = namespaces.entry(namespace.clone()).or_default();
        let mounted = pod.map(|pod| pod.claims.clone()).unwrap_or_default();
        let old = entries.pods.remove(name).unwrap_or_default();
        for claim in old.iter().filter(|claim| !mounted.contains(*claim)) {
            entries.update_claim(claim, changes, |entry| entry.users.remove_pod(name));
        }
        if let Some(pod) = pod {
            for claim in &mounted {
                entries.update_claim(claim, changes, |entry| entry.users.insert_pod(claim, pod));
            }
            entries.pods.insert(name.clone(), mounted);
        }
        if entries.is_empty() {
            namespaces.remove(namespace);
        }
    }

    /// Returns the names of the servers that mount a claim.
    pub fn servers_mounting(&self, namespace: &str, claim: &str) -> Vec<String> {
        let inner = self.0.read();
        let entry = inner.namespaces.get(namespace).and_then(|entries| entries.claims.get(claim));
        entry.into_iter().flat_map(|entry| &entry.servers).cloned().collect()
    }

    /// Returns the names of the servers whose home is the disk.
    pub fn servers_of_disk(&self, namespace: &str, disk: &str) -> Vec<String> {
        let inner = self.0.read();
        let servers = inner.namespaces.get(namespace).and_then(|entries| entries.disks.get(disk));
        servers.into_iter().flatten().cloned().collect()
    }

    /// Returns what prevents a server from using a claim; see [`ClaimUsers::user_before`].
    pub fn user_before(&self, namespace: &str, claim: &str, server: &DevServer) -> Option<VolumeUser> {
        self.0.read().namespaces.get(namespace)?.claims.get(claim)?.users.user_before(server)
    }

    /// Returns a pod of another server that uses a claim; see [`ClaimUsers::pod_before`].
    pub fn pod_before(&self, namespace: &str, claim: &str, server: &DevServer) -> Option<VolumeUser> {
        self.0.read().namespaces.get(namespace)?.claims.get(claim)?.users.pod_before(server)
    }

    /// Returns a number that changes with the users of a claim.
    pub fn revision(&self, namespace: &str, claim: &str) -> u64 {
        let inner = self.0.read();
        let entry = inner.namespaces.get(namespace).and_then(|entries| entries.claims.get(claim));
        entry.map_or(0, |entry| entry.revision)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.read().namespaces.is_empty()
    }
}

fn remove_server(namespaces: &mut HashMap<String, Namespace>, changes: &mut u64, namespace: &str, name: &str) {
    let Some(entries) = namespaces.get_mut(namespace) else { return };
    entries.remove_server(name, changes);
    if entries.is_empty() {
        namespaces.remove(namespace);
    }
}

impl Namespace {
    fn remove_server(&mut self, name: &str, changes: &mut u64) {
        let Some(old) = self.servers.remove(name) else { return };
        for claim in &old.claims {
            self.update_claim(claim, changes, |entry| {
                entry.servers.remove(name);
                entry.users.remove_server(&old.uid)
            });
        }
        if let Some(disk) = old.disk
            && let Some(servers) = self.disks.get_mut(&disk)
        {
            servers.remove(name);
            if servers.is_empty() {
                self.disks.remove(&disk);
            }
        }
    }

    /// Updates the entry of a claim. `update` reports whether its users changed. An empty entry is removed.
    fn update_claim(&mut self, claim: &str, changes: &mut u64, update: impl FnOnce(&mut ClaimEntry) -> bool) {
        let entry = match self.claims.get_mut(claim) {
            Some(entry) => entry,
            None => self.claims.entry(claim.to_owned()).or_default(),
        };
        if update(entry) {
            entry.mark_changed(changes);
        }
        if entry.servers.is_empty() && entry.users.is_empty() {
            self.claims.remove(claim);
        }
    }

    fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.pods.is_empty()
    }
}

impl ClaimEntry {
    fn mark_changed(&mut self, changes: &mut u64) {
        *changes += 1;
        self.revision = *changes;
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Phase;
    use serde_json::json;

    use super::*;

    fn server(name: &str, home: &serde_json::Value) -> DevServer {
        let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "spec": {"home": home},
            "metadata": {"name": name, "namespace": "dev-ada", "uid": format!("uid-{name}")}});
        serde_json::from_value(object).unwrap()
    }

    fn key(name: &str) -> Key {
        ("dev-ada".to_owned(), name.to_owned())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn servers_are_found_by_claim_and_disk_until_removed() {
        let index = ClaimIndex::default();
        let (a, b) = (server("a", &json!({"claim": "home"})), server("b", &json!({"disk": "work"})));
        index.insert_server(&key("a"), &a, names(&["home", "data"]));
        index.insert_server(&key("b"), &b, names(&["data"]));
        assert_eq!(index.servers_mounting("dev-ada", "data"), ["a", "b"]);
        assert_eq!(index.servers_mounting("dev-ada", "home"), ["a"]);
        assert_eq!(index.servers_mounting("dev-bob", "home"), [""; 0]);
        assert_eq!(index.servers_of_disk("dev-ada", "work"), ["b"]);
        assert_eq!(index.user_before("dev-ada", "data", &b), Some(VolumeUser::Server("a".into())));
        // The flavor of the server no longer has the volume.
        index.insert_server(&key("a"), &a, names(&["home"]));
        assert_eq!(index.servers_mounting("dev-ada", "data"), ["b"]);
        index.remove_server(&key("a"));
        index.insert_server(&key("b"), &server("b", &json!({"ephemeral": "1Gi"})), vec![]);
        assert_eq!(index.servers_of_disk("dev-ada", "work"), [""; 0]);
        assert!(index.is_empty());
    }

    #[test]
    fn revision_changes_only_with_the_users_of_the_claim() {
        let index = ClaimIndex::default();
        let mut a = server("a", &json!({"claim": "home"}));
        index.insert_server(&key("a"), &a, names(&["home"]));
        let first = index.revision("dev-ada", "home");
        a.status.get_or_insert_default().restarts = Some(1);
        index.insert_server(&key("a"), &a, names(&["home"]));
        index.insert_server(&key("b"), &server("b", &json!({"claim": "other"})), names(&["other"]));
        assert_eq!(index.revision("dev-ada", "home"), first);
        a.status.get_or_insert_default().phase = Some(Phase::Cancelled);
        index.insert_server(&key("a"), &a, names(&["home"]));
        let ended = index.revision("dev-ada", "home");
        assert!(ended > first);
        // A removed and added claim has another revision.
        index.remove_server(&key("a"));
        index.insert_server(&key("a"), &a, names(&["home"]));
        index.insert_server(&key("c"), &server("c", &json!({"claim": "home"})), names(&["home"]));
        assert!(index.revision("dev-ada", "home") > ended);
    }

    #[test]
    fn pod_uses_its_claims_until_it_is_removed() {
        let index = ClaimIndex::default();
        let a = server("a", &json!({"claim": "home"}));
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "b-0", "namespace": "dev-ada", "uid": "p", "annotations": {"odc.dev/server-uid": "uid-b"},
                "labels": {"odc.dev/server": "b"}},
            "spec": {"containers": [], "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]},
            "status": {"phase": "Running"}}));
        let pod = Pod::from_api(&pod.unwrap());
        index.set_pod(&key("b-0"), Some(&pod));
        index.insert_server(&key("a"), &a, names(&["home"]));
        assert_eq!(index.user_before("dev-ada", "home", &a), Some(VolumeUser::Pod("b-0".into())));
        index.set_pod(&key("b-0"), None);
        assert_eq!(index.user_before("dev-ada", "home", &a), None);
        index.remove_server(&key("a"));
        assert!(index.is_empty());
    }
}
