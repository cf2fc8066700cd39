//! An operator behind a fault-injecting proxy, scenarios to run against it, and the outcome of a run for comparison.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::apifault::{Action, Apifault, Fault, Moment, Pattern, Plan, TraceEntry, Verb};
use odc_tests::operator::{self, Operator};
use odc_tests::wait;
use serde_json::{Value, json};

use super::fixture::{Fixture, NAMESPACE, TIMEOUT};

/// An operation on a server. The state before it is reached without faults.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "full"), expect(dead_code, reason = "the whole list is run by the long tests only"))]
pub enum Scenario {
    Create,
    CreateGang,
    Hibernate,
    Wake,
    Extend,
    Expire,
    End,
    Delete,
    LoseNode,
}

impl Scenario {
    /// Returns the minimum number of writes: for a start, admission, Secret, pod and status. A run without faults that took
    /// fewer writes has not performed the operation.
    pub fn min_writes(self) -> usize {
        match self {
            Self::Delete => 0,
            Self::Extend => 1,
            Self::Hibernate | Self::Wake | Self::End => 3,
            Self::Create | Self::LoseNode => 4,
            Self::CreateGang | Self::Expire => 6,
        }
    }

    fn spec(self, name: &str) -> Value {
        match self {
            Self::Hibernate | Self::Wake => json!({"home": {"claim": name}}),
            Self::CreateGang => json!({"nodes": 2}),
            Self::Expire => json!({"lifetime": "1s"}),
            Self::LoseNode | Self::Delete => json!({"flavor": "gpu", "count": 8}),
            Self::Create | Self::Extend | Self::End => json!({}),
        }
    }

    /// Returns the phase before the operation, or `None` if the operation creates the server.
    fn initial_phase(self) -> Option<Phase> {
        match self {
            Self::Create | Self::CreateGang | Self::Expire => None,
            Self::Wake => Some(Phase::Hibernated),
            _ => Some(Phase::Running),
        }
    }

    pub async fn perform(self, fixture: &Fixture<'_>, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Create | Self::CreateGang | Self::Expire => fixture.create(name, self.spec(name)).await.map(drop),
            Self::Hibernate => fixture.patch_spec(name, json!({"desired": "Hibernated"})).await.map(drop),
            Self::Wake => fixture.patch_spec(name, json!({"desired": "Running"})).await.map(drop),
            Self::Extend => fixture.patch_spec(name, json!({"lifetime": "20h"})).await.map(drop),
            Self::End => fixture.patch_spec(name, json!({"desired": "Ended"})).await.map(drop),
            Self::Delete => fixture.servers.delete(name, &DeleteParams::default()).await.map(drop).map_err(Into::into),
            Self::LoseNode => {
                let server = fixture.servers.get(name).await?;
                let nodes = server.status.and_then(|status| status.admission).unwrap_or_default().nodes;
                fixture.plane.fail_node(nodes.first().context("the server has no node")?).await
            }
        }
    }

    /// Waits until the operation is complete.
    pub async fn wait_done(self, fixture: &Fixture<'_>, name: &str) -> anyhow::Result<()> {
        let complete = |phase: Phase| {
            move |server: &DevServer| {
                let Some(status) = &server.status else { return false };
                let admitted = status.admission.as_ref().is_some_and(|admission| !admission.nodes.is_empty());
                status.phase == Some(phase)
                    && status.observed_generation == server.metadata.generation
                    && admitted == (phase == Phase::Running)
            }
        };
        match self {
            Self::Create | Self::CreateGang | Self::Wake => {
                fixture.wait_for(name, "running", complete(Phase::Running)).await.map(drop)
            }
            Self::Hibernate => fixture.wait_for(name, "hibernated", complete(Phase::Hibernated)).await.map(drop),
            Self::Extend => {
                let extended = |server: &DevServer| {
                    let granted =
                        server.status.as_ref().and_then(|status| status.lifetime).map(|lifetime| lifetime.granted);
                    granted.is_some_and(|granted| granted.to_string() == "20h")
                };
                fixture.wait_for(name, "extended", extended).await.map(drop)
            }
            Self::Expire => fixture.wait_for(name, "expired", complete(Phase::Expired)).await.map(drop),
            Self::End => fixture.wait_for(name, "ended", complete(Phase::Cancelled)).await.map(drop),
            Self::Delete => {
                fixture.wait_deleted(name).await?;
                fixture.wait_pod_deleted(&format!("{name}-0")).await
            }
            Self::LoseNode => {
                let moved = |server: &DevServer| {
                    complete(Phase::Running)(server)
                        && server
                            .status
                            .as_ref()
                            .and_then(|status| status.admission.as_ref())
                            .is_some_and(|admission| admission.run == 2)
                };
                fixture.wait_for(name, "moved", moved).await.map(drop)
            }
        }
    }
}

/// An operator behind a fault-injecting proxy.
pub struct FaultHarness<'a> {
    pub fixture: &'a Fixture<'a>,
    pub proxy: Apifault,
    pub operator: Operator,
    settings: Vec<(&'static str, &'static str)>,
}

/// Outcome of a run: the objects without fields that differ between runs, and the number of creations and deletions.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    objects: BTreeMap<String, Value>,
    operations: BTreeMap<String, usize>,
}

/// A run with a fault.
#[derive(Debug)]
pub struct Run {
    pub outcome: Outcome,
    /// The fault has fired.
    pub fired: bool,
}

impl<'a> FaultHarness<'a> {
    pub async fn start(fixture: &'a Fixture<'a>) -> anyhow::Result<Self> {
        Self::start_with(fixture, &[]).await
    }

    /// Starts an operator with these settings in addition to the short timeouts.
    pub async fn start_with(
        fixture: &'a Fixture<'a>,
        settings: &[(&'static str, &'static str)],
    ) -> anyhow::Result<Self> {
        let settings = [operator::fast_timeouts().as_slice(), settings].concat();
        let proxy = Apifault::start(&fixture.plane.kubeconfig, Plan::default()).await?;
        proxy.kubeconfig(&fixture.kubeconfig, Some(&operator::service_account_token(&fixture.plane.client).await?))?;
        let operator = Operator::spawn(&fixture.kubeconfig, &fixture.directory, &settings)?;
        let mut harness = Self { fixture, proxy, operator, settings };
        harness.set_client()?;
        harness.operator.wait_ready().await?;
        fixture.wait_user_ready("ada").await?;
        Ok(harness)
    }

    fn set_client(&mut self) -> anyhow::Result<()> {
        self.proxy.set_client(self.operator.child.id().context("the operator has exited")?)
    }

    /// Kills the operator, starts the next one and waits until it leads.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.operator.kill().await?;
        self.spawn_next().await?;
        self.operator.wait_ready().await
    }

    /// Starts the next operator after the previous one has exited. Does not wait until it leads.
    pub async fn spawn_next(&mut self) -> anyhow::Result<()> {
        self.fixture.release_lease().await?;
        self.operator = Operator::spawn(&self.fixture.kubeconfig, &self.fixture.directory, &self.settings)?;
        self.set_client()
    }

    /// Brings a server to the initial phase of a scenario.
    pub async fn prepare(&self, scenario: Scenario, name: &str) -> anyhow::Result<()> {
        let fixture = self.fixture;
        if matches!(scenario, Scenario::Hibernate | Scenario::Wake) {
            fixture.create_claim(name).await?;
        }
        if scenario.initial_phase().is_some() {
            fixture.create_running(name, scenario.spec(name)).await?;
        }
        if scenario.initial_phase() == Some(Phase::Hibernated) {
            fixture.patch_spec(name, json!({"desired": "Hibernated"})).await?;
            fixture.wait_for_phase(name, Phase::Hibernated).await?;
        }
        Ok(())
    }

    /// Waits until the proxy has a response to every write about a server. A watch can report a write earlier.
    async fn wait_responses(&self, name: &str) -> anyhow::Result<()> {
        wait::until("responses to all writes", TIMEOUT, async || {
            let trace = self.proxy.trace();
            let writes = trace.iter().filter(|entry| entry.write && entry.name.starts_with(name));
            let open: Vec<_> = writes
                .filter(|entry| {
                    entry.server_code.is_none()
                        && entry.code.is_none()
                        && entry.faults.is_empty()
                        && entry.problem.is_none()
                })
                .collect();
            anyhow::ensure!(open.is_empty(), "no response to {open:#?}");
            Ok(())
        })
        .await
    }

    /// Returns the outcome of a finished scenario whose requests start after the first `since`.
    pub async fn outcome(&self, name: &str, since: usize) -> anyhow::Result<Outcome> {
        self.wait_responses(name).await?;
        let objects = objects(self.fixture, name).await?;
        let mut operations = BTreeMap::new();
        let mut deleted = BTreeSet::new();
        for entry in self.proxy.trace().into_iter().skip(since) {
            let stored = entry.server_code.is_some_and(|code| code < 300);
            let counted = matches!(entry.verb, Verb::Create | Verb::Delete) && entry.resource != "events.events.k8s.io";
            let Some(rest) =
                entry.name.strip_prefix(name).filter(|_| stored && counted && entry.namespace == NAMESPACE)
            else {
                continue;
            };
            // The name of the Secret ends with a part of the server's uid.
            let rest = rest.find("-keys-").map_or(rest, |start| &rest[..start + "-keys".len()]);
            // A deletion is repeated if its response was lost; each object counts once.
            let uid = entry.uid_before.as_ref().or(entry.uid.as_ref());
            if entry.verb == Verb::Create || uid.is_none_or(|uid| deleted.insert(uid.clone())) {
                *operations.entry(format!("{:?} {} *{rest}", entry.verb, entry.resource)).or_default() += 1;
            }
        }
        Ok(Outcome { objects, operations })
    }

    /// Runs a scenario without faults. Returns the number of its writes and its outcome.
    pub async fn run_reference(&self, scenario: Scenario) -> anyhow::Result<(usize, Outcome)> {
        let name = "ref";
        self.prepare(scenario, name).await?;
        let since = self.proxy.trace().len();
        scenario.perform(self.fixture, name).await?;
        scenario.wait_done(self.fixture, name).await?;
        self.wait_responses(name).await?;
        let writes = self.writes(name, since);
        Ok((writes.len(), self.outcome(name, since).await?))
    }

    /// Returns the stored writes about a server after the first `since` requests.
    pub fn writes(&self, name: &str, since: usize) -> Vec<String> {
        let matches = |entry: &TraceEntry| entry.sequence > since as u64 && entry.name.starts_with(name);
        let line = |entry: TraceEntry| format!("{:?} {} {}", entry.verb, entry.resource, entry.name);
        self.proxy.writes().into_iter().filter(matches).map(line).collect()
    }

    /// Runs a scenario with a fault after the k-th write about its server, and starts the next operator if the fault kills it.
    pub async fn run_with_crash(
        &mut self,
        scenario: Scenario,
        name: &str,
        k: usize,
        action: Action,
    ) -> anyhow::Result<Run> {
        self.prepare(scenario, name).await?;
        let since = self.proxy.trace().len();
        let before = self.proxy.fired();
        let pattern = Pattern::default().with_name_prefix(name);
        self.proxy.add(Fault::write(k as u64).matching(pattern).after(action.clone()));
        scenario.perform(self.fixture, name).await?;
        tokio::select! {
            fired = self.proxy.wait_fired(before + 1, TIMEOUT) => fired?,
            done = scenario.wait_done(self.fixture, name) => done?,
        }
        // After the last write both branches are ready.
        self.wait_responses(name).await?;
        let fired = self.proxy.fired() > before;
        // A transition that was fast this time is not written, and then there is no k-th write. Such a run has no fault and
        // must have the same outcome.
        let writes = self.writes(name, since);
        anyhow::ensure!(fired || writes.len() < k, "the fault did not fire at write {k} of {writes:#?}");
        if matches!(action, Action::Kill) && fired {
            let status = self.operator.child.wait().await?;
            anyhow::ensure!(!status.success(), "the operator was not killed: {status}");
            self.spawn_next().await?;
            self.operator.wait_ready().await?;
        }
        scenario.wait_done(self.fixture, name).await?;
        Ok(Run { outcome: self.outcome(name, since).await?, fired })
    }

    /// Runs a scenario with a fault at the k-th write about its server that the operator survives. Several runs may be
    /// concurrent.
    pub async fn run_with_fault(
        &self,
        scenario: Scenario,
        name: &str,
        k: usize,
        moment: Moment,
        action: Action,
    ) -> anyhow::Result<Run> {
        self.prepare(scenario, name).await?;
        let since = self.proxy.trace().len();
        let fault = Fault::write(k as u64).matching(Pattern::default().with_name_prefix(name));
        self.proxy.add(match moment {
            Moment::Before => fault.before(action),
            Moment::After => fault.after(action),
        });
        scenario.perform(self.fixture, name).await?;
        scenario.wait_done(self.fixture, name).await?;
        let outcome = self.outcome(name, since).await?;
        let trace = self.proxy.trace();
        let fired = trace.iter().skip(since).any(|entry| entry.name.starts_with(name) && !entry.faults.is_empty());
        let writes = self.writes(name, since);
        anyhow::ensure!(fired || writes.len() < k, "the fault did not fire at write {k} of {writes:#?}");
        Ok(Run { outcome, fired })
    }
}

/// Returns the objects of a server without fields that differ between runs.
async fn objects(fixture: &Fixture<'_>, name: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    if let Some(server) = fixture.servers.get_opt(name).await? {
        let status = server.status.unwrap_or_default();
        let conditions: BTreeMap<String, String> = status
            .conditions
            .iter()
            .map(|condition| (condition.kind.to_string(), format!("{} {}", condition.status, condition.reason)))
            .collect();
        let admission = status.admission.unwrap_or_default();
        all.insert(
            "server".into(),
            json!({
                "phase": status.phase,
                "conditions": conditions,
                "flavor": status.flavor,
                "lifetime": status.lifetime,
                "run": admission.run,
                "nodes": admission.nodes.len(),
                "pendingMessage": admission.message,
                "hibernation": status.hibernation.map(|hibernation| hibernation.cause),
                "pods": status.pods.iter().map(|pod| (pod.run, pod.ready)).collect::<Vec<_>>(),
                "hostKey": status.access.is_some_and(|access| access.host_key.is_some()),
                "finished": status.finished_at.is_some(),
                "running": status.running_since.is_some() && status.expires_at.is_some(),
            }),
        );
    }
    let list = ListParams::default().labels(&format!("odc.dev/server={name}"));
    for pod in Api::<Pod>::namespaced(fixture.plane.client.clone(), NAMESPACE).list(&list).await? {
        let run = pod.annotations().get("odc.dev/run").cloned();
        all.insert(format!("pod {}", &pod.name_any()[name.len()..]), json!({"run": run}));
    }
    for service in Api::<Service>::namespaced(fixture.plane.client.clone(), NAMESPACE).list(&list).await? {
        all.insert("service".into(), json!(service.spec.and_then(|spec| spec.ports)));
    }
    for secret in Api::<Secret>::namespaced(fixture.plane.client.clone(), NAMESPACE).list(&list).await? {
        all.insert("secret".into(), json!(secret.data.unwrap_or_default().keys().collect::<Vec<_>>()));
    }
    Ok(all)
}

impl Run {
    /// Fails unless the run had the same outcome as the run without faults.
    pub fn assert_converges(&self, reference: &Outcome) -> anyhow::Result<()> {
        anyhow::ensure!(self.outcome == *reference, "outcome\n{:#?}\nexpected\n{reference:#?}", self.outcome);
        Ok(())
    }
}
