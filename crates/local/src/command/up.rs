//! `odc local up`: starts a cluster, or changes a running one to the requested settings. Idempotent.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_api::duration::format_seconds;

use super::node::wait_node_ready;
use crate::artifact::{Executables, tail};
use crate::components::{Blueprint, ensure_passwords};
use crate::control::{Reply, Request, SupervisorClient};
use crate::error::Error;
use crate::layout::Layout;
use crate::pki::Pki;
use crate::progress::Progress;
use crate::service_install;
use crate::settings::{KUBERNETES_VERSION, Mode, Settings, UpOptions};
use crate::supervisor::{State, Statuses};
use crate::{external_cluster, host, image, preflight};

/// For all components together. Generous, because a busy machine is slow.
const COMPONENTS_READY_TIMEOUT: Duration = Duration::from_mins(4);
/// `up` gives up on a component after this many restarts.
const MAX_RESTARTS: u32 = 5;
const SUPERVISOR_START_TIMEOUT: Duration = Duration::from_secs(20);
const SUPERVISOR_POLL_INTERVAL: Duration = Duration::from_millis(20);
const TAIL_LINES: usize = 10;
/// Printed by `up` and `status` if the kernel cannot mount the pool.
pub(super) const NO_STORAGE: &str = "\
warning: persistent volumes are not available: this kernel has no btrfs or no loop devices; everything else works
hint: run `modprobe -a btrfs loop`, or use a kernel with CONFIG_BTRFS_FS and CONFIG_BLK_DEV_LOOP, then run `./dev up` again";

pub async fn up(layout: Layout, options: UpOptions) -> anyhow::Result<()> {
    let started = Instant::now();
    let progress = Progress::new();
    let external_kubeconfig =
        options.external_kubeconfig.as_deref().map(external_cluster::canonical_path).transpose()?;
    let options = UpOptions { external_kubeconfig, ..options };
    let stored = Settings::load(&layout)?;
    preflight::check_root(stored.as_ref().map_or_else(|| options.mode(), Settings::mode))?;
    preflight::check_directory(&layout)?;
    let _lock = super::lock_cluster(&layout)?;
    let stored_kubeconfig = stored.as_ref().and_then(|stored| stored.external_kubeconfig.as_ref());
    if let Some(kubeconfig) = options.external_kubeconfig.as_ref().or(stored_kubeconfig) {
        progress.print(&external_cluster::inspect(kubeconfig).await?.describe(kubeconfig));
    }
    let settings = resolve_settings(&layout, &options).await?;
    if settings.mode() == Mode::Full && !host::supports_storage()? {
        host::load_storage_modules().await;
    }
    let blueprint = Blueprint::new(settings, layout, Executables::find()?)?;
    preflight::check_ports(&blueprint).await?;
    build(&blueprint, progress).await?;
    Pki::new(&blueprint.layout).ensure_all(&blueprint.settings)?;
    ensure_passwords(&blueprint.layout)?;
    link_executables(&blueprint)?;

    ensure_supervisor(&blueprint).await?;
    super::request(&blueprint, &Request::Apply).await?;
    wait_ready(&blueprint, progress).await?;
    progress.print(&summary(&blueprint, started.elapsed()));
    if blueprint.lacks_storage() {
        progress.print(NO_STORAGE);
    }
    Ok(())
}

/// Merges the options into the stored settings, stores them and reserves the network.
async fn resolve_settings(layout: &Layout, options: &UpOptions) -> anyhow::Result<Settings> {
    let stored = Settings::load(layout)?;
    // Held until the bridge exists, after which other clusters see the network as used.
    let needs_network = stored.as_ref().map_or_else(|| options.mode(), Settings::mode) == Mode::Full;
    let _host_lock = if needs_network { Some(host::lock_host()?) } else { None };
    let free_network = match (&stored, options.network) {
        (None, None) if needs_network => Some(host::find_free_network(layout).await?),
        _ => None,
    };
    let settings = Settings::merge(stored, options, || free_network.context("the options name a network"))?;
    if settings.mode() == Mode::Full {
        host::check_network(layout, settings.network).await?;
    }
    // Stored before anything is created, so that `down` and `reset` can clean up after a failure.
    settings.store(layout)?;
    if settings.mode() == Mode::Full {
        host::Host::new(layout, settings.network)?.ensure_bridge().await?;
    }
    Ok(settings)
}

async fn build(blueprint: &Blueprint, progress: Progress) -> anyhow::Result<()> {
    let Blueprint { settings, executables, layout, .. } = blueprint;
    let built = settings.mode() == Mode::External || executables.kube.exists();
    preflight::check_space(layout, &crate::artifact::cache_dir()?, built)?;
    executables.ensure(settings, progress).await?;
    if settings.mode() == Mode::Full {
        image::ensure_base_images(executables, progress).await?;
    }
    if blueprint.has_storage() {
        executables.ensure_csi_sidecars(progress).await?;
        image::ensure_csi_base(progress).await?;
    }
    Ok(())
}

/// Links the commands for users into one directory, to be added to `PATH`.
fn link_executables(blueprint: &Blueprint) -> anyhow::Result<()> {
    let bin = blueprint.layout.bin();
    std::fs::create_dir_all(&bin)?;
    let Executables { kube, odc, devctl, .. } = &blueprint.executables;
    // kubectl finds plugins by name, so `kubectl odc` runs devctl.
    for (name, target) in [("kubectl", kube), ("odc", odc), ("devctl", devctl), ("kubectl-odc", devctl)] {
        let link = bin.join(name);
        // Kubernetes is not built when an external cluster is used.
        if !target.exists() {
            continue;
        }
        if std::fs::read_link(&link).is_ok_and(|current| current == *target) {
            continue;
        }
        let next = bin.join(format!(".{name}.next"));
        let _ = std::fs::remove_file(&next);
        std::os::unix::fs::symlink(target, &next)
            .and_then(|()| std::fs::rename(&next, &link))
            .with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

/// Starts a supervisor of this build. One of another build hands over first, without a restart of components.
async fn ensure_supervisor(blueprint: &Blueprint) -> anyhow::Result<()> {
    let layout = &blueprint.layout;
    if let Some(mut hello) = SupervisorClient::send(&layout.socket(), &Request::Hello).await? {
        match hello.next_reply().await? {
            Some(Reply::Hello { build, .. }) if build == blueprint.executables.build_id => return Ok(()),
            _ => {
                if let Some(client) = SupervisorClient::send(&layout.socket(), &Request::HandOver).await? {
                    client.wait_done().await?;
                }
            }
        }
    }
    super::down::wait_for_supervisor_exit(layout).await?;
    let log = layout.component_log("supervisor");
    std::fs::create_dir_all(layout.logs())?;
    let output = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("opening {}", log.display()))?;
    let mut child = Command::new(&blueprint.executables.odc)
        .args(["local", "supervise", "--dir"])
        .arg(layout.root())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("starting the supervisor")?;
    let deadline = Instant::now() + SUPERVISOR_START_TIMEOUT;
    while SupervisorClient::send(&layout.socket(), &Request::Hello).await?.is_none() {
        let exited = child.try_wait()?.is_some();
        anyhow::ensure!(
            !exited && Instant::now() < deadline,
            "the supervisor did not start; last lines:\n{}",
            tail(&std::fs::read_to_string(&log).unwrap_or_default(), TAIL_LINES)
        );
        tokio::time::sleep(SUPERVISOR_POLL_INTERVAL).await;
    }
    Ok(())
}

async fn wait_ready(blueprint: &Blueprint, progress: Progress) -> anyhow::Result<()> {
    let detail = Mutex::new(String::new());
    let components = watch_components(blueprint, |statuses| {
        if let Ok(mut detail) = detail.lock() {
            *detail = starting_components(statuses);
        }
    });
    let current_detail = || detail.lock().map(|detail| detail.clone()).unwrap_or_default();
    progress.step_with("starting components", components, current_detail).await?;
    if blueprint.settings.mode() == Mode::External {
        return Ok(());
    }
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let schedulable = async {
        for node in blueprint.settings.running_nodes() {
            wait_node_ready(&client, blueprint, node).await?;
        }
        crate::cluster::wait_default_service_account(&client, "default").await
    };
    progress.step("waiting until pods can run", schedulable).await?;
    if blueprint.settings.mode() == Mode::Full && !blueprint.settings.bare {
        progress.step("starting ODC", crate::odc_install::wait_ready(blueprint)).await?;
        if blueprint.has_service() {
            progress.step("starting the HTTP API", service_install::wait_ready(blueprint)).await?;
        }
    }
    Ok(())
}

fn starting_components(statuses: &Statuses) -> String {
    let names: Vec<&str> =
        statuses.iter().filter(|(_, status)| status.state == State::Starting).map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

pub(super) async fn wait_components_ready(blueprint: &Blueprint) -> anyhow::Result<()> {
    watch_components(blueprint, |_| ()).await
}

/// Watches the supervisor until all components are ready. Fails if one exceeds [`MAX_RESTARTS`].
async fn watch_components(blueprint: &Blueprint, mut observe: impl FnMut(&Statuses)) -> anyhow::Result<()> {
    let desired: Vec<String> = blueprint.components().into_iter().map(|component| component.name).collect();
    let mut last = Statuses::new();
    // Restarts from before this call do not count.
    let mut initial_restarts = HashMap::new();
    let watch = async {
        let Some(mut client) = SupervisorClient::send(&blueprint.layout.socket(), &Request::Watch).await? else {
            return Err(Error::NotRunning { directory: blueprint.layout.root().into() }.into());
        };
        while let Some(reply) = client.next_reply().await? {
            let Reply::Statuses(statuses) = reply else { continue };
            observe(&statuses);
            last.clone_from(&statuses);
            if desired.iter().all(|name| statuses.get(name).is_some_and(|status| status.state == State::Ready)) {
                return Ok(());
            }
            let failed = statuses.iter().find(|(name, status)| {
                let initial = *initial_restarts.entry((*name).clone()).or_insert(status.restarts);
                status.state == State::BackOff && status.restarts.saturating_sub(initial) >= MAX_RESTARTS
            });
            if let Some((name, status)) = failed {
                let reason = format!("restarted {MAX_RESTARTS} times: {}", status.message);
                return Err(not_ready(blueprint, name, &reason).into());
            }
        }
        anyhow::bail!("the supervisor exited\nhint: run `./dev logs supervisor`")
    };
    if let Ok(result) = tokio::time::timeout(COMPONENTS_READY_TIMEOUT, watch).await {
        return result;
    }
    let (name, message) = last
        .iter()
        .find(|(_, status)| status.state != State::Ready && status.state != State::Waiting)
        .map_or(("supervisor".to_owned(), String::new()), |(name, status)| (name.clone(), status.message.clone()));
    let reason = format!("timed out after {}: {message}", format_seconds(COMPONENTS_READY_TIMEOUT.as_secs()));
    Err(not_ready(blueprint, &name, &reason).into())
}

pub(super) fn not_ready(blueprint: &Blueprint, component: &str, reason: &str) -> Error {
    let log = std::fs::read(blueprint.layout.component_log(component)).unwrap_or_default();
    let tail = tail(&String::from_utf8_lossy(&log), TAIL_LINES);
    Error::NotReady { component: component.into(), reason: reason.into(), tail }
}

fn summary(blueprint: &Blueprint, elapsed: Duration) -> String {
    let settings = &blueprint.settings;
    let elapsed = format_seconds(elapsed.as_secs());
    let table = |rows: &[(&str, &str)]| {
        let width = rows.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        rows.iter().map(|(command, description)| format!("  {command:<width$}  {description}\n")).collect::<String>()
    };
    match settings.mode() {
        Mode::External => {
            let rows = [
                ("eval \"$(./dev env)\"", "configure kubectl and psql in this shell"),
                ("./dev down", "stop PostgreSQL and keep its state"),
            ];
            format!("\nStarted PostgreSQL for the existing cluster in {elapsed}.\n\n{}", table(&rows))
        }
        Mode::ControlPlane => {
            let rows = [
                ("eval \"$(./dev env)\"", "configure kubectl in this shell"),
                ("./dev down", "stop the control plane and keep its state"),
            ];
            format!(
                "\nStarted a control plane without nodes, Kubernetes {KUBERNETES_VERSION}, in {elapsed}.\n\n{}",
                table(&rows)
            )
        }
        Mode::Full => {
            let mut features = vec![
                format!("{} node{}", settings.nodes, if settings.nodes == 1 { "" } else { "s" }),
                format!("{} GPUs each", settings.gpus),
            ];
            if settings.simulated_nodes > 0 {
                features.push(format!("{} simulated nodes", settings.simulated_nodes));
            }
            let stopped: Vec<&str> = settings.stopped.iter().map(String::as_str).collect();
            if !stopped.is_empty() {
                features.push(format!("{} powered off", stopped.join(", ")));
            }
            let rows = [
                ("./dev try", "create a dev server and open a shell in it"),
                ("eval \"$(./dev env)\"", "configure devctl, kubectl, psql and odc in this shell"),
                ("export DEVCTL_CONTEXT=demo", "run devctl as the user demo: devctl avail, devctl create"),
                ("kubectl --context demo …", "run kubectl as the user demo, in namespace dev-demo"),
                ("./dev status", "show all components and their memory"),
                ("./dev down", "stop the cluster and keep its state"),
            ];
            let api = service_install::api_access(blueprint)
                .map(|access| format!("HTTP API: {}/api/v1\n", access.url))
                .unwrap_or_default();
            format!(
                "\nStarted the local cluster in {elapsed}: {}, Kubernetes {KUBERNETES_VERSION}.\n{api}\n{}",
                features.join(", "),
                table(&rows)
            )
        }
    }
}
