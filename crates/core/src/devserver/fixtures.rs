//! Requests and what they are checked against, for tests: fine ones to start from, changed by what a test is about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerFlavorSpec, DevServerUser, Team, Volume};

use super::build::Keys;
use super::validate::{ClaimFact, Facts, Valid, Violation, claims, validate};
use super::{SecretSeen, Seen, Settings};
use crate::amounts::Amounts;
use crate::holder::{Holder, holder};
use crate::seen::{Claim, ClaimPhase, Node, Pod, PodPhase, Readiness, Runtime, ServerPod};

pub(crate) fn settings() -> Settings {
    Settings {
        agent_image: "registry.example.org/agent:1".into(),
        default_image: "registry.example.org/base:1".into(),
        expiry_grace: Duration::from_secs(120),
        lost_after: Duration::from_secs(600),
        start_limit: Duration::from_secs(1_800),
        queue_limit: Some(Duration::from_secs(48 * 3_600)),
        keep_ended: Duration::from_secs(86_400),
        idle_grace: Duration::from_secs(300),
        banner: None,
    }
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn keys(number: u64) -> Keys {
    Keys {
        host_private: format!("host-private-{number}"),
        host_public: format!("ssh-ed25519 host-{number}"),
        gang_private: format!("gang-private-{number}"),
        gang_public: format!("ssh-ed25519 gang-{number}"),
    }
}

pub(super) fn volume(claim: &str, path: &str) -> Volume {
    Volume { claim: claim.parse().unwrap(), path: path.parse().unwrap(), read_only: false }
}

/// A node that is well.
pub(super) fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: BTreeMap::new(),
        taints: vec![],
        cordoned: false,
        readiness: Readiness::Ready,
        allocatable: Amounts::default(),
        user_namespaces: false,
    }
}

/// A pod of the server `server-1` for its run 3, ready on `node-1`.
pub(crate) fn pod(name: &str) -> Pod {
    let details = ServerPod {
        owner: Some("uid-server-1".into()),
        made_for: Some("uid-server-1".into()),
        server: Some("server-1".into()),
        run: Some(3),
        host_key: None,
        ip: None,
        created: None,
        ready: true,
        reason: None,
        message: None,
        unschedulable: None,
        held_by: Box::default(),
        containers: vec![],
    };
    Pod {
        namespace: "dev-ada".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        node: Some("node-1".into()),
        phase: PodPhase::Running,
        deleting: None,
        requests: Amounts::default(),
        claims: Box::default(),
        server: Some(Box::new(details)),
    }
}

/// Of these pods and nodes, and nothing else.
pub(super) fn seen<'a>(pods: &'a [Pod], nodes: &'a [Node]) -> Seen<'a> {
    Seen {
        pods: pods.iter().collect(),
        nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
        service: None,
        secret: SecretSeen::Unknown,
        secret_checked: None,
        keys: None,
        entrypoint: None,
        held: None,
        sleep: None,
        admitting: false,
        obstacle: None,
        refused: None,
        owner: None,
        guests: vec![],
        agents: crate::devserver::Agents::default(),
        authorities: &[],
    }
}

/// A server with everything it may be held against.
#[derive(Clone)]
pub(super) struct Request {
    pub server: DevServer,
    pub flavors: BTreeMap<FlavorName, Arc<DevServerFlavor>>,
    pub runtimes: Vec<Arc<Runtime>>,
    pub user: Option<DevServerUser>,
    pub team: Option<Team>,
    /// Of every claim the server mounts, changed from a bound one that one node may mount.
    pub claim: fn(&mut ClaimState),
    /// Pods of other servers in its namespace.
    pub neighbours: Vec<Pod>,
}

/// What the world says of a claim.
pub(super) struct ClaimState {
    pub claim: Option<Claim>,
    pub waits_for_consumer: bool,
    pub held_by: Option<Holder>,
}

impl Request {
    /// In a cluster with the flavors `flavor-gpu` and `flavor-cpu`, by `ada`. The runtime class `gvisor` takes something
    /// of every node for itself.
    pub(super) fn of(server: DevServer) -> Self {
        let overhead = crate::grants::fixtures::amounts(250, 128 << 20, 0);
        let runtime = Runtime { name: "gvisor".into(), overhead, ..Runtime::default() };
        let request = Self {
            server,
            flavors: BTreeMap::new(),
            runtimes: vec![Arc::new(runtime)],
            user: Some(DevServerUser::test()),
            team: None,
            claim: |_| {},
            neighbours: vec![],
        };
        request.offering(DevServerFlavor::test()).offering(DevServerFlavor::test_cpu())
    }

    /// The fixture of a server, changed.
    pub(super) fn test(change: impl FnOnce(&mut DevServer)) -> Self {
        let mut server = DevServer::test();
        change(&mut server);
        Self::of(server)
    }

    pub(super) fn offering(mut self, flavor: DevServerFlavor) -> Self {
        let name = flavor.metadata.name.as_ref().unwrap().parse().unwrap();
        self.flavors.insert(name, Arc::new(flavor));
        self
    }

    /// The flavor the fixture uses, changed.
    pub(super) fn flavor(self, change: impl FnOnce(&mut DevServerFlavorSpec)) -> Self {
        let name = self.server.spec.flavor.clone().unwrap();
        let mut flavor = (*self.flavors[&name]).clone();
        change(&mut flavor.spec);
        self.offering(flavor)
    }

    pub(super) fn team(self, change: impl FnOnce(&mut Team)) -> Self {
        let mut team = Team::test();
        change(&mut team);
        Self { team: Some(team), ..self }
    }

    pub(super) fn claim(self, claim: fn(&mut ClaimState)) -> Self {
        Self { claim, ..self }
    }

    pub(super) fn check<T>(&self, look: impl FnOnce(&Result<Valid<'_>, Vec<Violation>>) -> T) -> T {
        let flavor = self.server.spec.flavor.as_ref().and_then(|name| self.flavors.get(name));
        let names = claims(&self.server, flavor.map(|flavor| &flavor.spec));
        let states: Vec<(&str, ClaimState)> = names.into_iter().map(|name| (name, self.claim_state(name))).collect();
        let claims = states.iter().map(|(name, state)| ClaimFact {
            name,
            claim: state.claim.as_ref(),
            waits_for_consumer: state.waits_for_consumer,
            held_by: state.held_by.as_ref(),
        });
        let settings = settings();
        let facts = Facts {
            user: self.user.as_ref(),
            team: self.team.as_ref(),
            flavors: &self.flavors,
            runtimes: &self.runtimes,
            claims: claims.collect(),
            guests: vec![],
            default_image: &settings.default_image,
        };
        look(&validate(&self.server, &facts))
    }

    /// What is made of a request that can be granted.
    pub(super) fn valid<T>(&self, make: impl FnOnce(&Valid<'_>) -> T) -> T {
        self.check(|checked| make(checked.as_ref().unwrap()))
    }

    fn claim_state(&self, name: &str) -> ClaimState {
        let claim = Claim {
            namespace: "dev-ada".into(),
            name: name.into(),
            phase: ClaimPhase::Bound,
            deleting: false,
            volume: Some(format!("volume-of-{name}")),
            class: None,
            shared: false,
        };
        let mut state = ClaimState { claim: Some(claim), waits_for_consumer: false, held_by: None };
        (self.claim)(&mut state);
        if state.claim.as_ref().is_some_and(|claim| !claim.shared) {
            let pods: Vec<&Pod> = self.neighbours.iter().collect();
            state.held_by = state.held_by.or_else(|| holder(name, &self.server, &[], &pods));
        }
        state
    }
}
