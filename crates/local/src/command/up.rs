//! Brings a cloud up, or makes a running one what was asked for. Safe to interrupt and to repeat.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use kube::runtime::wait::await_condition;

use crate::artifact::{Executables, tail};
use crate::control::{Conversation, Reply, Request};
use crate::layout::Layout;
use crate::network::NodeIndex;
use crate::parts::{Blueprint, GPU_RESOURCE, ensure_password};
use crate::pki::Pki;
use crate::problem::Problem;
use crate::process::{Record, elapsed};
use crate::progress::Progress;
use crate::settings::{Ask, KUBERNETES, Settings, Shape};
use crate::supervisor::{Snapshot, State};
use crate::{existing, host, image, preflight};

/// All parts together; generous, since a busy machine is no fault.
const READY_LIMIT: Duration = Duration::from_mins(4);
const NODE_LIMIT: Duration = Duration::from_mins(2);
/// A part that came back this often is not going to.
const HOPELESS: u32 = 5;

pub async fn up(layout: Layout, ask: Ask) -> anyhow::Result<()> {
    let started = Instant::now();
    let progress = Progress::new();
    let ask = Ask { existing: ask.existing.as_deref().map(existing::resolve).transpose()?, ..ask };
    let known = Settings::load(&layout)?;
    preflight::check_root(known.as_ref().map_or_else(|| ask.shape(), Settings::shape))?;
    preflight::check_directory(&layout)?;
    let _turn = super::take_turn(&layout)?;
    if let Some(kubeconfig) = ask.existing.as_ref().or(known.as_ref().and_then(|known| known.existing.as_ref())) {
        progress.say(&existing::look(kubeconfig).await?.plan(kubeconfig));
    }
    let settings = settle(&layout, &ask).await?;
    let blueprint = Blueprint::new(settings, layout, Executables::find()?)?;
    preflight::check_ports(&blueprint).await?;
    build(&blueprint, progress).await?;
    Pki::of(&blueprint.layout).ensure(&blueprint.settings)?;
    ensure_password(&blueprint.layout.database_password())?;
    link_commands(&blueprint)?;

    ensure_supervisor(&blueprint).await?;
    super::ask(&blueprint, &Request::Apply).await?;
    start(&blueprint, progress).await?;
    progress.say(&summary(&blueprint, started.elapsed()));
    Ok(())
}

/// The settings of this cloud, written down, with a network that is ours from here on.
async fn settle(layout: &Layout, ask: &Ask) -> anyhow::Result<Settings> {
    let stored = Settings::load(layout)?;
    // Held until the bridge stands: a second cloud then sees the network as taken.
    let needs_network = stored.as_ref().map_or_else(|| ask.shape(), Settings::shape) == Shape::Full;
    let _host = if needs_network { Some(host::lock_host()?) } else { None };
    let free = match (&stored, ask.network) {
        (None, None) if needs_network => Some(host::free_network(layout).await?),
        _ => None,
    };
    let settings = Settings::merge(stored, ask, || free.context("a network was named"))?;
    if settings.shape() == Shape::Full {
        host::check_network(layout, settings.network).await?;
    }
    // Before anything is made: whatever happens now, `down` and `reset` know of this cloud.
    settings.store(layout)?;
    if settings.shape() == Shape::Full {
        host::Host::new(layout, settings.network)?.ensure_bridge().await?;
    }
    Ok(settings)
}

async fn build(blueprint: &Blueprint, progress: Progress) -> anyhow::Result<()> {
    let Blueprint { settings, executables, layout, .. } = blueprint;
    let built = settings.shape() == Shape::Existing || executables.kube.exists();
    preflight::check_space(layout, &crate::artifact::cache()?, built)?;
    executables.ensure(settings, progress).await?;
    if settings.shape() == Shape::Full {
        image::ensure_cached(executables, progress).await?;
    }
    Ok(())
}

/// `PATH` gets one directory with links into the caches.
fn link_commands(blueprint: &Blueprint) -> anyhow::Result<()> {
    let bin = blueprint.layout.bin();
    std::fs::create_dir_all(&bin)?;
    let Executables { kube, odc, devctl, .. } = &blueprint.executables;
    // kubectl finds its plug-ins by their names: `kubectl odc` is devctl.
    for (name, target) in [("kubectl", kube), ("odc", odc), ("devctl", devctl), ("kubectl-odc", devctl)] {
        let link = bin.join(name);
        // Beside an existing cluster nothing of Kubernetes is built.
        if !target.exists() {
            continue;
        }
        if std::fs::read_link(&link).is_ok_and(|now| now == *target) {
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

/// One of this very build: an older one hands over, and the parts do not notice.
async fn ensure_supervisor(blueprint: &Blueprint) -> anyhow::Result<()> {
    let layout = &blueprint.layout;
    if let Some(mut hello) = Conversation::start(&layout.socket(), &Request::Hello).await? {
        match hello.next().await? {
            Some(Reply::Hello { build, .. }) if build == blueprint.executables.build => return Ok(()),
            _ => {
                if let Some(conversation) = Conversation::start(&layout.socket(), &Request::HandOver).await? {
                    conversation.done().await?;
                }
            }
        }
    }
    super::down::wait_for_lock(layout).await?;
    let log = layout.log_of("supervisor");
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
    let deadline = Instant::now() + Duration::from_secs(20);
    while Conversation::start(&layout.socket(), &Request::Hello).await?.is_none() {
        let ended = child.try_wait()?.is_some();
        anyhow::ensure!(
            !ended && Instant::now() < deadline,
            "the supervisor did not start; its last lines:\n{}",
            tail(&std::fs::read_to_string(&log).unwrap_or_default(), 10)
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn start(blueprint: &Blueprint, progress: Progress) -> anyhow::Result<()> {
    let note = Mutex::new(String::new());
    let waiting = watch_parts(blueprint, |snapshot| {
        if let Ok(mut note) = note.lock() {
            *note = waiting_for(snapshot);
        }
    });
    let shown = || note.lock().map(|note| note.clone()).unwrap_or_default();
    progress.step_with("starting the parts", waiting, shown).await?;
    if blueprint.settings.shape() == Shape::Existing {
        return Ok(());
    }
    let client = crate::cluster::client(&blueprint.layout.kubeconfig()).await?;
    let usable = async {
        for node in blueprint.settings.running_nodes() {
            node_ready(&client, blueprint, node).await?;
        }
        crate::cluster::takes_pods(&client, "default").await
    };
    progress.step("waiting until pods can run", usable).await?;
    if blueprint.settings.shape() == Shape::Full && !blueprint.settings.bare {
        progress.step("starting ODC", crate::installation::ready(blueprint)).await?;
    }
    Ok(())
}

fn waiting_for(snapshot: &Snapshot) -> String {
    let names: Vec<&str> =
        snapshot.iter().filter(|(_, status)| status.state == State::Starting).map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

pub(super) async fn parts_ready(blueprint: &Blueprint) -> anyhow::Result<()> {
    watch_parts(blueprint, |_| ()).await
}

/// Follows the supervisor until all parts are ready, or one is hopeless.
async fn watch_parts(blueprint: &Blueprint, mut see: impl FnMut(&Snapshot)) -> anyhow::Result<()> {
    let wanted: Vec<String> = blueprint.parts().into_iter().map(|part| part.name).collect();
    let mut last = Snapshot::new();
    // What broke before we came does not count against what we started.
    let mut earlier = HashMap::new();
    let following = async {
        let Some(mut conversation) = Conversation::start(&blueprint.layout.socket(), &Request::Watch).await? else {
            return Err(Problem::NotRunning { directory: blueprint.layout.root().into() }.into());
        };
        while let Some(reply) = conversation.next().await? {
            let Reply::Parts(snapshot) = reply else { continue };
            see(&snapshot);
            last.clone_from(&snapshot);
            if wanted.iter().all(|name| snapshot.get(name).is_some_and(|status| status.state == State::Ready)) {
                return Ok(());
            }
            let hopeless = snapshot.iter().find(|(name, status)| {
                let before = *earlier.entry((*name).clone()).or_insert(status.restarts);
                status.state == State::BackOff && status.restarts.saturating_sub(before) >= HOPELESS
            });
            if let Some((name, status)) = hopeless {
                let reason = format!("it ended {HOPELESS} times: {}", status.message);
                return Err(not_ready(blueprint, name, &reason).into());
            }
        }
        anyhow::bail!("the supervisor ended; see ./dev logs supervisor")
    };
    if let Ok(result) = tokio::time::timeout(READY_LIMIT, following).await {
        return result;
    }
    let (name, reason) = last
        .iter()
        .find(|(_, status)| status.state != State::Ready && status.state != State::Waiting)
        .map_or(("supervisor".to_owned(), String::new()), |(name, status)| (name.clone(), status.message.clone()));
    let reason = format!("{reason} for {} s", READY_LIMIT.as_secs());
    Err(not_ready(blueprint, &name, &reason).into())
}

fn not_ready(blueprint: &Blueprint, part: &str, reason: &str) -> Problem {
    let log = std::fs::read(blueprint.layout.log_of(part)).unwrap_or_default();
    Problem::NotReady { part: part.into(), reason: reason.into(), tail: tail(&String::from_utf8_lossy(&log), 10) }
}

/// Ready, by the word of the kubelet that runs now: the object may still speak of the last time it was up.
pub(super) async fn node_ready(client: &Client, blueprint: &Blueprint, node: NodeIndex) -> anyhow::Result<()> {
    let kubelet = format!("{node}/kubelet");
    let record = Record::load(&blueprint.layout.run(), &kubelet).with_context(|| format!("{kubelet} does not run"))?;
    let started = record.started_at()?;
    let enough = gpus_are(super::devices::healthy_gpus(blueprint, node));
    let ready = |node: &Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut heartbeats = conditions
            .filter(|condition| condition.type_ == "Ready")
            .filter_map(|condition| condition.last_heartbeat_time.as_ref());
        crate::cluster::is_ready(node) && enough(node) && heartbeats.any(|heartbeat| heartbeat.0 >= started)
    };
    await_node(Api::all(client.clone()), node, ready).await.map_err(|error| {
        let bridge = blueprint.layout.id().bridge();
        let hint = format!("{error}; if this machine has a firewall, it must let {bridge} pass");
        not_ready(blueprint, &kubelet, &hint).into()
    })
}

pub(super) fn gpus_are(count: usize) -> impl Fn(&Node) -> bool {
    move |node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let shown = allocatable
            .and_then(|all| all.get(GPU_RESOURCE))
            .map_or(0, |quantity| quantity.0.parse().unwrap_or(usize::MAX));
        shown == count
    }
}

pub(super) async fn await_node(nodes: Api<Node>, node: NodeIndex, holds: impl Fn(&Node) -> bool) -> anyhow::Result<()> {
    let condition = |object: Option<&Node>| object.is_some_and(&holds);
    tokio::time::timeout(NODE_LIMIT, await_condition(nodes, &node.to_string(), condition))
        .await
        .with_context(|| format!("node {node} is not as expected after {} s", NODE_LIMIT.as_secs()))??;
    Ok(())
}

fn summary(blueprint: &Blueprint, took: Duration) -> String {
    let settings = &blueprint.settings;
    let took = elapsed(took);
    let next = |lines: &[(&str, &str)]| {
        let width = lines.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
        lines.iter().map(|(command, about)| format!("  {command:<width$}  {about}\n")).collect::<String>()
    };
    match settings.shape() {
        Shape::Existing => {
            let lines = [
                ("eval \"$(./dev env)\"", "use it in this shell: kubectl, psql"),
                ("./dev down", "stop PostgreSQL, keep its state"),
            ];
            format!("\nReady ({took}): the existing cluster, and PostgreSQL beside it.\n\n{}", next(&lines))
        }
        Shape::ControlPlane => {
            let lines =
                [("eval \"$(./dev env)\"", "use it in this shell: kubectl"), ("./dev down", "stop it, keep its state")];
            format!("\nReady ({took}): a control plane without nodes, Kubernetes {KUBERNETES}.\n\n{}", next(&lines))
        }
        Shape::Full => {
            let mut about = vec![
                format!("{} node{}", settings.nodes, if settings.nodes == 1 { "" } else { "s" }),
                format!("{} GPUs each", settings.gpus),
            ];
            if settings.simulated_nodes > 0 {
                about.push(format!("{} simulated nodes", settings.simulated_nodes));
            }
            let stopped: Vec<&str> = settings.stopped.iter().map(String::as_str).collect();
            if !stopped.is_empty() {
                about.push(format!("{} taken away (odc local node start …)", stopped.join(", ")));
            }
            let lines = [
                ("./dev try", "a shell in a dev server of your own"),
                ("eval \"$(./dev env)\"", "use it in this shell: devctl, kubectl, psql, odc"),
                ("export DEVCTL_CONTEXT=demo", "and devctl acts as the user demo: devctl avail, devctl create"),
                ("kubectl --context demo …", "the same with kubectl, in namespace dev-demo"),
                ("./dev status", "what runs and how much memory it takes"),
                ("./dev down", "stop it, keep its state"),
            ];
            format!(
                "\nYour cloud is ready ({took}): {}, Kubernetes {KUBERNETES}.\n\n{}",
                about.join(", "),
                next(&lines)
            )
        }
    }
}
