//! The kubelet and the agents of pods that operations create.

use k8s_openapi::api::core::v1 as k8s;
use odc_control::Signals;

use super::Namespace;
use crate::cluster::{ClaimPhase, Pod, PodPhase};
use crate::devserver::agent_requests::{AgentCall, AgentRequest};
use crate::manifest::{Kind, Object};
use crate::plan::Write;

impl Namespace {
    /// Creates an object for an operation, or records why that is refused.
    pub(super) fn write_for_operation(&mut self, uid: &str, write: &Write) {
        let error = self.pod_error.clone().filter(|_| write.kind() == Kind::Pod);
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
        self.pods.push(pod);
    }

    /// Starts pods whose claims are bound.
    pub(super) fn run_operation_pods(&mut self) {
        let claims = &self.claims;
        let is_bound = |name: &str| claims.iter().any(|claim| claim.name == name && claim.phase == ClaimPhase::Bound);
        for pod in self.pods.iter_mut().filter(|pod| pod.operation.is_some() && pod.phase == PodPhase::Pending) {
            if pod.claims.iter().all(|claim| is_bound(claim)) {
                pod.phase = PodPhase::Running;
                pod.operation.as_mut().unwrap().ready = true;
            }
        }
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
            (AgentRequest::Quiesce(_), _) => panic!("unexpected request"),
        }
    }
}
