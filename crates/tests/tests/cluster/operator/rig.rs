//! An operator behind a proxy that can be told to fail it, and what is compared of a run: what it left and what it took.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use odc_api::v1alpha1::Phase;
use odc_tests::apifault::{Action, Apifault, Entry, Fault, Moment, Pattern, Plan, Verb};
use odc_tests::odc::{self, Operator};
use odc_tests::wait;
use serde_json::{Value, json};

use super::stage::{LIMIT, NAMESPACE, Stage};

/// What is done to a server, from a state it was brought to without faults.
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
    /// What it cannot do without: a grant, a Secret, a pod and the status for a start, and so on. A run without faults that
    /// took fewer writes has not done what it is called.
    pub fn least_writes(self) -> usize {
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

    /// Where it begins; nothing where the server is yet to be made.
    fn begins_in(self) -> Option<Phase> {
        match self {
            Self::Create | Self::CreateGang | Self::Expire => None,
            Self::Wake => Some(Phase::Hibernated),
            _ => Some(Phase::Running),
        }
    }

    pub async fn act(self, stage: &Stage<'_>, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Create | Self::CreateGang | Self::Expire => stage.create(name, self.spec(name)).await.map(drop),
            Self::Hibernate => stage.change(name, json!({"desired": "Hibernated"})).await.map(drop),
            Self::Wake => stage.change(name, json!({"desired": "Running"})).await.map(drop),
            Self::Extend => stage.change(name, json!({"lifetime": "20h"})).await.map(drop),
            Self::End => stage.change(name, json!({"desired": "Ended"})).await.map(drop),
            Self::Delete => stage.servers.delete(name, &DeleteParams::default()).await.map(drop).map_err(Into::into),
            Self::LoseNode => {
                let server = stage.servers.get(name).await?;
                let nodes = server.status.and_then(|status| status.admission).unwrap_or_default().nodes;
                stage.plane.silence_node(nodes.first().context("it has a node")?).await
            }
        }
    }

    pub async fn until_done(self, stage: &Stage<'_>, name: &str) -> anyhow::Result<()> {
        let settled = |phase: Phase| {
            move |server: &odc_api::v1alpha1::DevServer| {
                let Some(status) = &server.status else { return false };
                let held = status.admission.as_ref().is_some_and(|admission| !admission.nodes.is_empty());
                status.phase == Some(phase)
                    && status.observed_generation == server.metadata.generation
                    && held == (phase == Phase::Running)
            }
        };
        match self {
            Self::Create | Self::CreateGang | Self::Wake => {
                stage.until(name, "running", settled(Phase::Running)).await.map(drop)
            }
            Self::Hibernate => stage.until(name, "asleep", settled(Phase::Hibernated)).await.map(drop),
            Self::Extend => {
                let extended = |server: &odc_api::v1alpha1::DevServer| {
                    let granted =
                        server.status.as_ref().and_then(|status| status.lifetime).map(|lifetime| lifetime.granted);
                    granted.is_some_and(|granted| granted.to_string() == "20h")
                };
                stage.until(name, "extended", extended).await.map(drop)
            }
            Self::Expire => stage.until(name, "expired", settled(Phase::Expired)).await.map(drop),
            Self::End => stage.until(name, "ended", settled(Phase::Cancelled)).await.map(drop),
            Self::Delete => {
                stage.until_gone(name).await?;
                stage.until_pod(&format!("{name}-0"), "gone", |pod| pod.is_none()).await
            }
            Self::LoseNode => {
                let moved = |server: &odc_api::v1alpha1::DevServer| {
                    settled(Phase::Running)(server)
                        && server
                            .status
                            .as_ref()
                            .and_then(|status| status.admission.as_ref())
                            .is_some_and(|admission| admission.run == 2)
                };
                stage.until(name, "moved", moved).await.map(drop)
            }
        }
    }
}

/// An operator behind a proxy that can be told to fail it.
pub struct Rig<'a> {
    pub stage: &'a Stage<'a>,
    pub proxy: Apifault,
    pub operator: Operator,
    settings: Vec<(&'static str, &'static str)>,
}

/// What a run left and what it took: objects without what differs between runs, creates and deletes of each.
#[derive(Debug, PartialEq)]
pub struct Ending {
    objects: BTreeMap<String, Value>,
    made: BTreeMap<String, usize>,
}

/// A run with a fault.
#[derive(Debug)]
pub struct Run {
    pub ending: Ending,
    /// Whether the fault met anything.
    pub fired: bool,
}

impl<'a> Rig<'a> {
    pub async fn start(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        Self::start_with(stage, &[]).await
    }

    /// With these settings besides the short times of all tests.
    pub async fn start_with(stage: &'a Stage<'a>, settings: &[(&'static str, &'static str)]) -> anyhow::Result<Self> {
        let settings = [odc::short_times().as_slice(), settings].concat();
        let proxy = Apifault::start(&stage.plane.kubeconfig, Plan::default()).await?;
        proxy.kubeconfig(&stage.kubeconfig, Some(&odc::token(&stage.plane.client).await?))?;
        let operator = Operator::spawn(&stage.kubeconfig, &stage.directory, &settings)?;
        let mut rig = Self { stage, proxy, operator, settings };
        rig.watch_client()?;
        rig.operator.until_ready().await?;
        stage.user_ready("ada").await?;
        Ok(rig)
    }

    fn watch_client(&mut self) -> anyhow::Result<()> {
        self.proxy.client(self.operator.child.id().context("the operator runs")?)
    }

    /// The old one is dead, so nobody has to wait until its lease is over.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.operator.kill().await?;
        self.begin_anew().await?;
        self.operator.until_ready().await
    }

    /// In place of one that is dead; does not wait until it leads.
    pub async fn begin_anew(&mut self) -> anyhow::Result<()> {
        self.stage.forget_leader().await?;
        self.operator = Operator::spawn(&self.stage.kubeconfig, &self.stage.directory, &self.settings)?;
        self.watch_client()
    }

    /// Brings a server to where a scenario begins.
    pub async fn prepare(&self, scenario: Scenario, name: &str) -> anyhow::Result<()> {
        let stage = self.stage;
        if matches!(scenario, Scenario::Hibernate | Scenario::Wake) {
            stage.claim(name).await?;
        }
        if scenario.begins_in().is_some() {
            stage.create(name, scenario.spec(name)).await?;
            stage.until_phase(name, Phase::Running).await?;
        }
        if scenario.begins_in() == Some(Phase::Hibernated) {
            stage.change(name, json!({"desired": "Hibernated"})).await?;
            stage.until_phase(name, Phase::Hibernated).await?;
        }
        Ok(())
    }

    /// A watch may tell of a write before the proxy has seen the answer to it; waits until it has.
    async fn until_answered(&self, name: &str) -> anyhow::Result<()> {
        wait::until("every write is answered", LIMIT, async || {
            let trace = self.proxy.trace();
            let of_it = trace.iter().filter(|entry| entry.write && entry.name.starts_with(name));
            let open: Vec<_> = of_it
                .filter(|entry| {
                    entry.server_code.is_none()
                        && entry.code.is_none()
                        && entry.faults.is_empty()
                        && entry.problem.is_none()
                })
                .collect();
            anyhow::ensure!(open.is_empty(), "these are not: {open:#?}");
            Ok(())
        })
        .await
    }

    /// What it came to, seen once nothing changes any more.
    pub async fn ending(&self, name: &str, since: usize) -> anyhow::Result<Ending> {
        self.until_answered(name).await?;
        let objects = objects(self.stage, name).await?;
        let mut made = BTreeMap::new();
        let mut deleted = BTreeSet::new();
        for entry in self.proxy.trace().into_iter().skip(since) {
            let done = entry.server_code.is_some_and(|code| code < 300);
            let counted = matches!(entry.verb, Verb::Create | Verb::Delete) && entry.resource != "events.events.k8s.io";
            let Some(rest) = entry.name.strip_prefix(name).filter(|_| done && counted && entry.namespace == NAMESPACE)
            else {
                continue;
            };
            // What goes in its own time can be told so again, if the answer was lost; it goes once.
            let uid = entry.uid_before.as_ref().or(entry.uid.as_ref());
            if entry.verb == Verb::Create || uid.is_none_or(|uid| deleted.insert(uid.clone())) {
                *made.entry(format!("{:?} {} *{rest}", entry.verb, entry.resource)).or_default() += 1;
            }
        }
        Ok(Ending { objects, made })
    }

    /// Runs it and gives the number of writes it took, and its ending.
    pub async fn reference(&self, scenario: Scenario) -> anyhow::Result<(usize, Ending)> {
        let name = "ref";
        self.prepare(scenario, name).await?;
        let since = self.proxy.trace().len();
        scenario.act(self.stage, name).await?;
        scenario.until_done(self.stage, name).await?;
        self.until_answered(name).await?;
        let writes = self.written(name, since);
        Ok((writes.len(), self.ending(name, since).await?))
    }

    /// What was stored about a server since so many requests.
    pub fn written(&self, name: &str, since: usize) -> Vec<String> {
        let is = |entry: &Entry| entry.sequence > since as u64 && entry.name.starts_with(name);
        let line = |entry: Entry| format!("{:?} {} {}", entry.verb, entry.resource, entry.name);
        self.proxy.writes().into_iter().filter(is).map(line).collect()
    }

    pub async fn with_fault(
        &mut self,
        scenario: Scenario,
        name: &str,
        k: usize,
        action: Action,
    ) -> anyhow::Result<Run> {
        self.prepare(scenario, name).await?;
        let since = self.proxy.trace().len();
        let before = self.proxy.fired();
        let of = Pattern { name_prefix: Some(name.into()), ..Pattern::default() };
        self.proxy.add(Fault::write(k as u64).of(of).after(action.clone()));
        scenario.act(self.stage, name).await?;
        tokio::select! {
            fired = self.proxy.until_fired(before + 1, LIMIT) => fired?,
            done = scenario.until_done(self.stage, name) => done?,
        }
        // After the last write both are true at once.
        self.until_answered(name).await?;
        let fired = self.proxy.fired() > before;
        // A phase that passed quickly this time was not written, and then there is no k-th write: that run is one without
        // a fault, and must end as the others.
        let written = self.written(name, since);
        anyhow::ensure!(fired || written.len() < k, "nothing went wrong at write {k} of {written:#?}");
        if matches!(action, Action::Kill) && fired {
            let killed = self.operator.child.wait().await?;
            anyhow::ensure!(!killed.success(), "it was not killed: {killed}");
            self.begin_anew().await?;
            self.operator.until_ready().await?;
        }
        scenario.until_done(self.stage, name).await?;
        Ok(Run { ending: self.ending(name, since).await?, fired })
    }

    /// Runs a scenario with a fault at a write of its server that the operator survives. Several may run side by side.
    pub async fn through(
        &self,
        scenario: Scenario,
        name: &str,
        k: usize,
        at: Moment,
        answer: Action,
    ) -> anyhow::Result<Run> {
        self.prepare(scenario, name).await?;
        let since = self.proxy.trace().len();
        let trigger = Fault::write(k as u64).of(Pattern::default().prefixed(name));
        self.proxy.add(match at {
            Moment::Before => trigger.before(answer),
            Moment::After => trigger.after(answer),
        });
        scenario.act(self.stage, name).await?;
        scenario.until_done(self.stage, name).await?;
        let ending = self.ending(name, since).await?;
        let trace = self.proxy.trace();
        let fired = trace.iter().skip(since).any(|entry| entry.name.starts_with(name) && !entry.faults.is_empty());
        let written = self.written(name, since);
        anyhow::ensure!(fired || written.len() < k, "nothing went wrong at write {k} of {written:#?}");
        Ok(Run { ending, fired })
    }
}

/// Everything of a server, without what differs from run to run.
async fn objects(stage: &Stage<'_>, name: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    if let Some(server) = stage.servers.get_opt(name).await? {
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
                "waits": admission.message,
                "hibernation": status.hibernation.map(|hibernation| hibernation.by),
                "pods": status.pods.iter().map(|pod| (pod.run, pod.ready)).collect::<Vec<_>>(),
                "hostKey": status.access.is_some_and(|access| access.host_key.is_some()),
                "finished": status.finished_at.is_some(),
                "runs": status.running_since.is_some() && status.expires_at.is_some(),
            }),
        );
    }
    let list = ListParams::default().labels(&format!("odc.dev/server={name}"));
    for pod in Api::<Pod>::namespaced(stage.plane.client.clone(), NAMESPACE).list(&list).await? {
        let run = pod.annotations().get("odc.dev/run").cloned();
        all.insert(format!("pod {}", &pod.name_any()[name.len()..]), json!({"run": run}));
    }
    for service in Api::<Service>::namespaced(stage.plane.client.clone(), NAMESPACE).list(&list).await? {
        all.insert("service".into(), json!(service.spec.and_then(|spec| spec.ports)));
    }
    for secret in Api::<Secret>::namespaced(stage.plane.client.clone(), NAMESPACE).list(&list).await? {
        all.insert("secret".into(), json!(secret.data.unwrap_or_default().keys().collect::<Vec<_>>()));
    }
    Ok(all)
}
