//! Test fixtures: valid requests with their environment, to be changed by each test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerFlavorSpec, DevServerUser, Disk, Team, Volume};

use super::validate::{ClaimInput, Inputs, Valid, Violation, claims, validate};
use super::{Observed, Settings, SoftState};
use crate::cluster::{Claim, ClaimPhase, Node, Pod, PodPhase, Readiness, RuntimeClass, ServerPod, VolumeAffinity};
use crate::resources::Resources;
use crate::volume_in_use::{ClaimUsers, VolumeUser};

pub(crate) fn settings() -> Settings {
    Settings {
        agent_image: "registry.example.org/agent:1".into(),
        default_image: "registry.example.org/base:1".into(),
        expiry_grace: Duration::from_secs(120),
        node_lost_timeout: Duration::from_secs(600),
        start_timeout: Duration::from_secs(1_800),
        queue_timeout: Some(Duration::from_secs(48 * 3_600)),
        ttl_after_finished: Duration::from_secs(86_400),
        idle_grace: Duration::from_secs(300),
        banner: None,
    }
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn volume(claim: &str, path: &str) -> Volume {
    Volume { claim: claim.parse().unwrap(), path: path.parse().unwrap(), read_only: false }
}

/// Returns a ready node.
pub(super) fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: BTreeMap::new(),
        taints: vec![],
        cordoned: false,
        readiness: Readiness::Ready,
        allocatable: Resources::default(),
        user_namespaces: false,
    }
}

/// Returns a pod of run 3 of `server-1`, ready on `node-1`.
pub(crate) fn pod(name: &str) -> Pod {
    let details = ServerPod {
        owner: Some("uid-server-1".into()),
        created_for: Some("uid-server-1".into()),
        server: Some("server-1".into()),
        run: Some(3),
        host_key: None,
        ip: None,
        created_at: None,
        ready: true,
        reason: None,
        message: None,
        unschedulable_since: None,
        blocking_finalizers: Box::default(),
        containers: vec![],
    };
    Pod {
        namespace: "dev-ada".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        node: Some("node-1".into()),
        phase: PodPhase::Running,
        deletion_timestamp: None,
        requests: Resources::default(),
        claims: Box::default(),
        server: Some(Box::new(details)),
        operation: None,
    }
}

/// Returns a cluster with only these pods and nodes.
pub(super) fn observed<'a>(pods: &'a [Pod], nodes: &'a [Node]) -> Observed<'a> {
    Observed {
        pods: pods.iter().collect(),
        nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
        service: None,
        owner: None,
        guests: vec![],
        control_cas: &[],
    }
}

/// Returns the soft state of an operator that can reach agents.
pub(super) fn soft_state(agents: super::Agents) -> SoftState {
    SoftState { agents, ..SoftState::default() }
}

/// A server with the objects it is validated against.
#[derive(Clone)]
pub(super) struct Request {
    pub server: DevServer,
    pub flavors: BTreeMap<FlavorName, Arc<DevServerFlavor>>,
    pub runtime_classes: Vec<Arc<RuntimeClass>>,
    pub user: Option<DevServerUser>,
    pub team: Option<Team>,
    /// The disk of the home.
    pub disk: Option<Disk>,
    /// Changes the state of each claim, by default bound and mountable on one node.
    pub claim: fn(&mut ClaimState),
    /// Pods of other servers in its namespace.
    pub neighbours: Vec<Pod>,
}

/// The state of a claim.
pub(super) struct ClaimState {
    pub claim: Option<Claim>,
    pub waits_for_consumer: bool,
    pub used_by: Option<VolumeUser>,
}

impl Request {
    /// Returns a request of `ada` in a cluster with the flavors `flavor-gpu` and `flavor-cpu`, and the runtime class `gvisor`, which
    /// has an overhead.
    pub(super) fn new(server: DevServer) -> Self {
        let overhead = crate::admission::fixtures::amounts(250, 128 << 20, 0);
        let gvisor = RuntimeClass { name: "gvisor".into(), overhead, ..RuntimeClass::default() };
        let request = Self {
            server,
            flavors: BTreeMap::new(),
            runtime_classes: vec![Arc::new(gvisor)],
            user: Some(DevServerUser::test()),
            team: None,
            disk: None,
            claim: |_| {},
            neighbours: vec![],
        };
        request.with_flavor(DevServerFlavor::test()).with_flavor(DevServerFlavor::test_cpu())
    }

    /// Returns a request for the changed fixture of a server.
    pub(super) fn test(change: impl FnOnce(&mut DevServer)) -> Self {
        let mut server = DevServer::test();
        change(&mut server);
        Self::new(server)
    }

    pub(super) fn with_flavor(mut self, flavor: DevServerFlavor) -> Self {
        let name = flavor.metadata.name.as_ref().unwrap().parse().unwrap();
        self.flavors.insert(name, Arc::new(flavor));
        self
    }

    /// Changes the flavor of the server.
    pub(super) fn flavor(self, change: impl FnOnce(&mut DevServerFlavorSpec)) -> Self {
        let name = self.server.spec.flavor.clone().unwrap();
        let mut flavor = (*self.flavors[&name]).clone();
        change(&mut flavor.spec);
        self.with_flavor(flavor)
    }

    pub(super) fn team(self, change: impl FnOnce(&mut Team)) -> Self {
        let mut team = Team::test();
        change(&mut team);
        Self { team: Some(team), ..self }
    }

    pub(super) fn claim(self, claim: fn(&mut ClaimState)) -> Self {
        Self { claim, ..self }
    }

    pub(super) fn check<T>(&self, inspect: impl FnOnce(&Result<Valid<'_>, Vec<Violation>>) -> T) -> T {
        let flavor = self.server.spec.flavor.as_ref().and_then(|name| self.flavors.get(name));
        let names = claims(&self.server, self.disk.as_ref(), flavor.map(|flavor| &flavor.spec));
        let states: Vec<(&str, ClaimState)> = names.into_iter().map(|name| (name, self.claim_state(name))).collect();
        let claims = states.iter().map(|(name, state)| ClaimInput {
            name,
            claim: state.claim.as_ref(),
            waits_for_consumer: state.waits_for_consumer,
            used_by: state.used_by.as_ref(),
        });
        let settings = settings();
        let inputs = Inputs {
            user: self.user.as_ref(),
            team: self.team.as_ref(),
            flavors: &self.flavors,
            runtime_classes: &self.runtime_classes,
            disk: self.disk.as_ref(),
            claims: claims.collect(),
            guests: vec![],
            default_image: &settings.default_image,
        };
        inspect(&validate(&self.server, &inputs))
    }

    /// Calls `inspect` with the valid request.
    pub(super) fn valid<T>(&self, inspect: impl FnOnce(&Valid<'_>) -> T) -> T {
        self.check(|checked| inspect(checked.as_ref().unwrap()))
    }

    fn claim_state(&self, name: &str) -> ClaimState {
        let claim = Claim {
            namespace: "dev-ada".into(),
            name: name.into(),
            phase: ClaimPhase::Bound,
            is_deleting: false,
            volume: Some(format!("volume-of-{name}")),
            class: None,
            shared: false,
            uid: format!("uid-{name}"),
            is_block: false,
            disk_uid: None,
            disk: None,
            operation_uid: None,
            size: None,
            capacity: None,
            snapshot: None,
            source_affinity: VolumeAffinity::default(),
        };
        let mut state = ClaimState { claim: Some(claim), waits_for_consumer: false, used_by: None };
        (self.claim)(&mut state);
        if state.claim.as_ref().is_some_and(|claim| !claim.shared) {
            let mut users = ClaimUsers::default();
            for pod in &self.neighbours {
                users.insert_pod(name, pod);
            }
            state.used_by = state.used_by.or_else(|| users.user_before(&self.server));
        }
        state
    }
}
