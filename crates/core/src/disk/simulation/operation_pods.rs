//! The kubelet and the agents of pods that operations create.

use k8s_openapi::api::core::v1 as k8s;
use odc_control::{Signals, TreeDiff};

use super::Namespace;
use crate::cluster::{ClaimPhase, Container, ContainerState, Exit, Pod, PodPhase};
use crate::devserver::agent_requests::{AgentCall, AgentRequest};
use crate::manifest::{Kind, Object};
use crate::plan::Write;

impl Namespace {
    /// Creates an object for an operation, or records why that is refused.
    pub(super) fn write_for_operation(&mut self, uid: &str, write: &Write) {
        let error = self.pod_error.clone().filter(|_| write.kind() == Kind::Pod).or_else(|| self.refuse(write));
        if error.is_none() {
            match write {
                Write::CreateWithKeys { secret, .. } => self.create_secret(uid, secret),
                other => self.write(other),
            }
        }
        self.operation_states.entry(uid.to_owned()).or_default().error = error;
    }

    /// An existing Secret was created by an attempt before a crash.
    fn create_secret(&mut self, uid: &str, secret: &Object) {
        let owner = secret.body["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap().to_owned();
        if !self.secrets.iter().any(|(name, _)| *name == secret.name) {
            self.secrets.push((secret.name.clone(), owner));
        }
        let state = self.operation_states.entry(uid.to_owned()).or_default();
        state.host_key = Some(format!("ssh-ed25519 {}", secret.name));
    }

    pub(super) fn create_operation_pod(&mut self, object: &Object) {
        assert!(self.pods.iter().all(|pod| pod.name != object.name), "pod {} exists", object.name);
        let mut pod: k8s::Pod = serde_json::from_value(object.body.clone()).unwrap();
        pod.metadata.uid = Some(self.uid("pod-"));
        let mut pod = Pod::from_api(&pod);
        let secret = object.body["spec"]["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .find_map(|volume| volume["secret"]["secretName"].as_str().map(str::to_owned));
        assert!(secret.is_none_or(|secret| self.secrets.iter().any(|(name, _)| *name == secret)));
        pod.operation.as_mut().unwrap().ip = Some("10.0.0.1".into());
        if object.body["spec"]["restartPolicy"] == "Never" {
            let command = &object.body["spec"]["containers"][0]["command"];
            self.jobs.insert(pod.uid.clone(), serde_json::from_value(command.clone()).unwrap());
        }
        self.pods.push(pod);
    }

    /// Starts pods whose claims are bound, and runs the commands of jobs.
    pub(super) fn run_operation_pods(&mut self) {
        for index in 0..self.pods.len() {
            let pod = &self.pods[index];
            let claims: Option<Vec<String>> = pod.claims.iter().map(|name| self.bound_claim(name)).collect();
            let (Some(_), Some(claims)) = (&pod.operation, claims) else { continue };
            let command = self.jobs.get(&pod.uid).cloned();
            match (pod.phase, command) {
                (PodPhase::Pending, _) => {
                    self.pods[index].phase = PodPhase::Running;
                    self.pods[index].operation.as_mut().unwrap().ready = true;
                }
                (PodPhase::Running, Some(command)) => self.run_job(index, &command, &claims),
                _ => {}
            }
        }
    }

    /// Returns the uid of a bound claim.
    fn bound_claim(&self, name: &str) -> Option<String> {
        let claim = self.claims.iter().find(|claim| claim.name == name && claim.phase == ClaimPhase::Bound)?;
        Some(claim.uid.clone())
    }

    /// Plays the agent: the first claim is the point, the second one the data.
    fn run_job(&mut self, index: usize, command: &[String], claims: &[String]) {
        let [point, data] = claims else { panic!("{claims:?}") };
        let (old, new) = (self.data[point].clone(), self.data[data].clone());
        let (code, message) = match (&self.job_error, command[1].as_str()) {
            (Some(error), _) => (1, format!("odc-agent: {error}")),
            (None, "compare-trees") => {
                let added = u64::from(old != new);
                let paths = vec![format!("A {old} {new}")];
                (0, TreeDiff { added, paths, ..TreeDiff::default() }.to_message())
            }
            (None, "copy-paths") => {
                self.data.insert(data.clone(), format!("{new}{}={old}", command.last().unwrap()));
                (0, String::new())
            }
            (None, other) => panic!("unexpected command {other}"),
        };
        let pod = &mut self.pods[index];
        pod.phase = if code == 0 { PodPhase::Succeeded } else { PodPhase::Failed };
        let state = ContainerState::Terminated(Exit { code, reason: "Completed".into(), message });
        pod.operation.as_mut().unwrap().containers =
            vec![Container { name: "dev".into(), restarts: 0, state, last: None }];
    }

    /// Answers as the agent of a pod.
    pub(super) fn answer(&mut self, uid: &str, call: AgentCall) {
        let (now, idle) = (self.now, self.idle_seconds);
        let agent = self.operation_states.entry(uid.to_owned()).or_default().agents.entry(call.pod).or_default();
        match (call.request, idle) {
            (AgentRequest::Configure(config), Some(_)) => agent.record_config(config, now),
            (AgentRequest::Configure(_), None) => agent.record_failure(now),
            (AgentRequest::GetSignals, Some(idle)) => {
                agent.record_signals(Ok(Signals { up_seconds: idle, ..Signals::default() }), now);
            }
            (AgentRequest::GetSignals, None) => agent.record_signals(Err("connect timed out".into()), now),
            (AgentRequest::Quiesce(_) | AgentRequest::Flush(_) | AgentRequest::Heartbeat, _) => {
                panic!("unexpected request")
            }
        }
    }
}
