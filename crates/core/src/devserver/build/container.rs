//! The containers of a server.

use k8s_openapi::api::core::v1::{Container, ContainerPort, ExecAction, Probe, SecurityContext};
use odc_api::{HOME, port};

use super::secret::{PRE_STOP, SETUP, scripts};
use super::volume::SHARED_MEMORY_PATH;
use super::{AGENT, AGENT_PATH, MAIN, PREPARE, env, literal, security, size, volume};
use crate::devserver::validate::Valid;

/// Within it preStop runs and everything is on disk.
pub const GRACE_SECONDS: u32 = 60;

/// `entrypoint` is the image's own, when it is kept; `authorities` sign for the operator.
pub fn main(valid: &Valid<'_>, ordinal: usize, entrypoint: &[String], authorities: &[String]) -> Container {
    Container {
        name: MAIN.into(),
        image: Some(valid.image.to_owned()),
        command: Some(command(valid, entrypoint, authorities)),
        env: Some(env::env(valid, ordinal)),
        ports: Some(vec![ContainerPort {
            name: Some("ssh".into()),
            container_port: port::AGENT.into(),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        resources: Some(size::main(valid)),
        volume_mounts: Some(volume::main(valid)),
        security_context: Some(security::main(valid.flavor.privilege)),
        // Asked every second until setup has ended, and then no more: each question starts a process, and a second
        // probe would only begin after its own period.
        startup_probe: Some(probe(1, 3600)),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

fn command(valid: &Valid<'_>, entrypoint: &[String], authorities: &[String]) -> Vec<String> {
    let mut all = vec![AGENT_PATH.to_owned(), "init".into(), "--grace".into(), GRACE_SECONDS.to_string()];
    all.extend(
        ["--serve", "--keys", "/odc/keys", "--keep", SHARED_MEMORY_PATH, "--server-uid", valid.uid].map(str::to_owned),
    );
    // In the pod and not in the Secret, which is written once: a pod is made anew whenever a server wakes.
    all.extend(authorities.iter().flat_map(|line| ["--control-ca".to_owned(), literal(line)]));
    let scripts = scripts(valid);
    if scripts.setup.is_some() {
        all.extend(["--setup".into(), format!("/odc/keys/{SETUP}")]);
    }
    if scripts.pre_stop.is_some() {
        all.extend(["--pre-stop".into(), format!("/odc/keys/{PRE_STOP}")]);
    }
    if !volume::needs_accounts(valid) {
        all.extend(["--account-home".into(), HOME.into()]);
    }
    if !entrypoint.is_empty() {
        all.extend(["--entrypoint-exit".into(), "end".into(), "--".into()]);
        all.extend(entrypoint.iter().map(|word| literal(word)));
    }
    all
}

fn probe(period: i32, failures: i32) -> Probe {
    Probe {
        exec: Some(ExecAction { command: Some(vec![AGENT_PATH.into(), "probe".into()]) }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// Brings the agent into the pod; runs as a plain user whatever the flavor allows.
pub fn install(valid: &Valid<'_>, agent_image: &str) -> Container {
    Container {
        name: AGENT.into(),
        image: Some(agent_image.to_owned()),
        command: Some(["/odc-agent", "install", "--to", "/odc/bin"].map(str::to_owned).to_vec()),
        resources: Some(size::init(valid)),
        volume_mounts: Some(volume::install()),
        security_context: Some(SecurityContext {
            run_as_user: Some(security::USER),
            run_as_group: Some(security::USER),
            run_as_non_root: Some(true),
            read_only_root_filesystem: Some(true),
            ..security::restricted()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

/// Writes copies of the image's passwd and group that know the user.
pub fn prepare(valid: &Valid<'_>) -> Container {
    let mut command: Vec<String> =
        [AGENT_PATH, "prepare", "--to", "/odc/accounts", "--home", HOME].map(str::to_owned).to_vec();
    if let Some(name) = valid.user.spec.display_name.as_ref().and_then(|name| full_name(name.as_str())) {
        command.extend(["--full-name".into(), literal(&name)]);
    }
    Container {
        name: PREPARE.into(),
        image: Some(valid.image.to_owned()),
        command: Some(command),
        resources: Some(size::init(valid)),
        volume_mounts: Some(volume::prepare()),
        security_context: Some(SecurityContext { run_as_non_root: Some(true), ..security::restricted() }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

/// As much of a display name as a passwd file can hold.
fn full_name(display: &str) -> Option<String> {
    let kept: String =
        display.chars().filter(|character| !character.is_control() && !":,".contains(*character)).collect();
    let kept = kept.trim().to_owned();
    (!kept.is_empty()).then_some(kept)
}
