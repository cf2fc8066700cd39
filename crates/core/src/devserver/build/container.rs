//! The containers of a server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerPort, ExecAction, Probe, ResourceRequirements, SecurityContext};
use odc_api::v1alpha1::{DevServerUser, Home};
use odc_api::{HOME, port};

use super::secret::{PRE_STOP, SETUP, scripts};
use super::volume::SHARED_MEMORY_PATH;
use super::{AGENT, AGENT_PATH, MAIN, PREPARE, env, literal, security, size, volume};
use crate::cluster::TERMINATION_GRACE_PERIOD;
use crate::devserver::validate::Valid;

/// Returns the main container. `entrypoint` is the image's own, if it is kept. `control_cas` sign the operator's
/// certificates.
pub fn main(valid: &Valid<'_>, ordinal: usize, entrypoint: &[String], control_cas: &[String]) -> Container {
    Container {
        name: MAIN.into(),
        image: Some(valid.image.to_owned()),
        command: Some(command(valid, ordinal, entrypoint, control_cas)),
        env: Some(env::env(valid, ordinal)),
        ports: Some(vec![ssh_port()]),
        resources: Some(size::main(valid)),
        volume_mounts: Some(volume::main(valid)),
        security_context: Some(security::main(valid.flavor.privilege)),
        startup_probe: Some(startup_probe()),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

pub(crate) fn ssh_port() -> ContainerPort {
    ContainerPort {
        name: Some("ssh".into()),
        container_port: port::AGENT.into(),
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

/// Returns the command that runs the agent as PID 1 with its SSH server. `uid` is the one of the object that the pod was
/// created for.
pub(crate) fn serve_command(uid: &str, grace: Duration, control_cas: &[String]) -> Vec<String> {
    let mut all = vec![AGENT_PATH.to_owned(), "init".into(), "--grace".into(), grace.as_secs().to_string()];
    all.extend(
        ["--serve", "--keys", "/odc/keys", "--persist-dir", SHARED_MEMORY_PATH, "--server-uid", uid].map(str::to_owned),
    );
    // In the pod and not in the Secret, which is written once: pods are recreated when a server resumes.
    all.extend(control_cas.iter().flat_map(|line| ["--control-ca".to_owned(), literal(line)]));
    all
}

fn command(valid: &Valid<'_>, ordinal: usize, entrypoint: &[String], control_cas: &[String]) -> Vec<String> {
    let mut all = serve_command(valid.uid, TERMINATION_GRACE_PERIOD, control_cas);
    if let Some(action) = startup_files(valid, ordinal) {
        all.extend(["--startup-files".into(), action.into()]);
    }
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
        all.extend(["--entrypoint-exit".into(), "stop".into(), "--".into()]);
        all.extend(entrypoint.iter().map(|word| literal(word)));
    }
    all
}

/// Returns the argument of the agent about startup files. If the nodes of a gang share their home, the first one creates
/// the files.
fn startup_files(valid: &Valid<'_>, ordinal: usize) -> Option<&'static str> {
    let spec = &valid.server.spec;
    if ordinal > 0 && matches!(spec.home, Home::Claim(_)) {
        return None;
    }
    let recreate = spec.setup.as_ref().is_some_and(|setup| setup.recreate_env);
    Some(if recreate { "recreate" } else { "create" })
}

/// Probes each second until setup has finished, and not afterwards: each probe starts a process, and a readiness probe
/// would only start after its own period.
pub(crate) fn startup_probe() -> Probe {
    Probe {
        exec: Some(ExecAction { command: Some(vec![AGENT_PATH.into(), "probe".into()]) }),
        period_seconds: Some(1),
        timeout_seconds: Some(5),
        failure_threshold: Some(3600),
        ..Probe::default()
    }
}

/// Installs the agent into the pod. Runs unprivileged whatever the flavor allows.
pub fn install(agent_image: &str, resources: ResourceRequirements) -> Container {
    Container {
        name: AGENT.into(),
        image: Some(agent_image.to_owned()),
        command: Some(["/odc-agent", "install", "--to", "/odc/bin"].map(str::to_owned).to_vec()),
        resources: Some(resources),
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

/// Writes copies of the image's passwd and group files with entries for the user.
pub fn prepare(image: &str, user: &DevServerUser, resources: ResourceRequirements) -> Container {
    let mut command: Vec<String> =
        [AGENT_PATH, "prepare", "--to", "/odc/accounts", "--home", HOME].map(str::to_owned).to_vec();
    if let Some(name) = user.spec.display_name.as_ref().and_then(|name| full_name(name.as_str())) {
        command.extend(["--full-name".into(), literal(&name)]);
    }
    Container {
        name: PREPARE.into(),
        image: Some(image.to_owned()),
        command: Some(command),
        resources: Some(resources),
        volume_mounts: Some(volume::prepare()),
        security_context: Some(SecurityContext { run_as_non_root: Some(true), ..security::restricted() }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

/// Returns the display name without characters that are invalid in a passwd file.
fn full_name(display: &str) -> Option<String> {
    let name: String =
        display.chars().filter(|character| !character.is_control() && !":,".contains(*character)).collect();
    let name = name.trim().to_owned();
    (!name.is_empty()).then_some(name)
}
