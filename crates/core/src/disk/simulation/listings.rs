//! The agents of servers, and the `ConfigMap`s with listings.

use std::sync::Arc;

use odc_api::annotation;
use odc_api::v1alpha1::Disk;
use odc_control::Listing;
use serde_json::{Value, json};

use super::{ConfigMap, Crash, FlushBehavior, Namespace};
use crate::cluster::{Pod, Snapshot};
use crate::devserver::agent_requests::AgentCall;
use crate::disk::{ListingPlan, NewListing, RecordedListing};
use crate::manifest::{Kind, Object};
use crate::plan::Write;

impl Namespace {
    /// Answers a request to flush a disk.
    pub(super) fn flush(&mut self, disk: &Disk, call: &AgentCall) {
        let now = self.now;
        let state = self.disk_states.entry(disk.metadata.uid.clone().unwrap()).or_default();
        state.start_flush(&call.pod, now);
        if self.flush == FlushBehavior::Hangs {
            return;
        }
        state.finish_flush(&call.pod, now);
        let pod = self.pods.iter().find(|pod| pod.uid == call.pod).unwrap().clone();
        if self.flush == FlushBehavior::Succeeds {
            self.record_listing(&pod);
        }
    }

    /// Records the listing that the agent of a pod returns. The usage is the length of the data.
    pub(super) fn record_listing(&mut self, pod: &Pod) {
        if self.flush != FlushBehavior::Succeeds {
            return;
        }
        let is_mounted = |name: &str| pod.claims.iter().any(|mounted| &**mounted == name);
        for claim in self.claims.iter().filter(|claim| is_mounted(&claim.name)) {
            let used_bytes = self.data.get(&claim.uid).map_or(0, |data| data.len() as u64) << 20;
            let home = Arc::new(Listing { used_bytes, files: 1, ..Listing::default() }.compress());
            let listing = RecordedListing { claim: claim.name.clone(), at: self.now, home };
            self.disk_states.entry(claim.disk_uid.clone().unwrap()).or_default().listing = Some(listing);
        }
    }

    pub(super) fn execute_listings(&mut self, disk: &Disk, plan: ListingPlan) -> Result<(), Crash> {
        let ListingPlan { store, remove, forget } = plan;
        for listing in store {
            self.store(&listing)?;
        }
        for write in remove {
            self.write(&write);
            self.count()?;
        }
        let state = self.disk_states.entry(disk.metadata.uid.clone().unwrap()).or_default();
        if let Some(at) = forget {
            state.forget_listing(at);
        }
        Ok(())
    }

    fn store(&mut self, listing: &NewListing) -> Result<(), Crash> {
        let Object { kind, name, body, .. } = &listing.config_map;
        assert_eq!(*kind, Kind::ConfigMap);
        let owner = body["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap().to_owned();
        assert!(self.snapshots.iter().flatten().any(|snapshot| snapshot.uid == owner && snapshot.name == *name));
        // An existing one was created before a crash.
        let existing = self.config_maps.iter().find(|config_map| config_map.name == *name);
        let uid = if let Some(existing) = existing {
            existing.uid.clone()
        } else {
            let uid = self.uid("config-map-");
            self.config_maps.push(ConfigMap { name: name.clone(), uid: uid.clone(), owner });
            self.count()?;
            uid
        };
        let Write::Apply(patch) = listing.record(&uid) else { panic!("the point is not patched") };
        self.annotate(&patch);
        self.count()
    }

    /// Server-side apply: annotations that are not given are removed, except those of the creation.
    pub(super) fn annotate(&mut self, patch: &Object) {
        let metadata = &patch.body["metadata"];
        let mut snapshots = self.snapshots.iter_mut().flatten();
        let snapshot = snapshots.find(|snapshot| metadata["uid"] == json!(snapshot.uid)).unwrap();
        let given = Snapshot::from_api(&patch.body);
        assert!(given.listing.is_some() || metadata["annotations"][annotation::LISTING] == Value::Null);
        snapshot.listing = given.listing;
    }
}
