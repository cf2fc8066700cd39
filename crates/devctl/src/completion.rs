//! Dynamic shell completion of server, disk, restore point, flavor, PVC and context names.
//!
//! Errors and timeouts yield no candidates: completion must be fast and must not print.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use ::kube::ResourceExt as _;
use clap_complete::CompletionCandidate;
use clap_complete::engine::{PathCompleter, ValueCompleter as _};
use futures_util::StreamExt as _;

use crate::cli::Global;
use crate::client::{self, Client, Scope, kube};
use crate::config::{KEYS, Settings};
use crate::model;

const TIMEOUT: Duration = Duration::from_millis(1500);

pub fn server(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = with_timeout(async |client: Arc<dyn Client>| {
        let mut pages = client.list(Scope::Own);
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.ok()?;
            names.extend(page.iter().map(|server| (server.name().to_owned(), server.phase_str().to_owned())));
        }
        Some(names)
    });
    candidates(typed, names)
}

pub fn flavor(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = with_timeout(async |client: Arc<dyn Client>| {
        let flavors = client.flavors().await.ok()?;
        let named = flavors.into_iter().filter_map(|flavor| {
            let free = flavor.status.and_then(|status| status.free).unwrap_or(0);
            Some((flavor.metadata.name?, format!("{free} free")))
        });
        Some(named.collect())
    });
    candidates(typed, names)
}

pub fn claim(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, with_timeout(async |client: Arc<dyn Client>| client.claims().await.ok()))
}

pub fn disk(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = with_timeout(async |client: Arc<dyn Client>| {
        let disks = client.disks().await.ok()?;
        let named = disks.iter().map(|disk| (disk.name_any(), disk.spec.size.to_string()));
        Some(named.collect())
    });
    candidates(typed, names)
}

/// Completes the restore points of the disk that the line names.
pub fn point(typed: &OsStr) -> Vec<CompletionCandidate> {
    points(typed, |_| true)
}

/// As [`point`], for restore points with a listing.
pub fn listed_point(typed: &OsStr) -> Vec<CompletionCandidate> {
    points(typed, |point| point.listing.is_some())
}

fn points(typed: &OsStr, is_selected: fn(&&model::disk::Point) -> bool) -> Vec<CompletionCandidate> {
    let names = with_timeout(async |client: Arc<dyn Client>| {
        let words: Vec<String> = std::env::args().collect();
        let disks = client.disks().await.ok()?;
        let named = disks.iter().filter(|disk| {
            let display = model::disk::display_name(disk);
            words.iter().any(|word| *word == disk.name_any() || Some(word.as_str()) == display)
        });
        let point = |point: &model::disk::Point| {
            let at = point.at.as_ref().map(|at| format!(" {}", at.0)).unwrap_or_default();
            (point.name.clone(), format!("{}{at}", point.reason))
        };
        Some(named.flat_map(|disk| model::disk::points(disk).iter().filter(is_selected).map(point)).collect())
    });
    candidates(typed, names)
}

/// Completes `NAME:` or a local file. Remote files are not completed, as that requires a login.
pub fn cp_endpoint(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut candidates = PathCompleter::any().complete(typed);
    if typed.to_str().is_some_and(|typed| !typed.contains(['/', ':', '.'])) {
        let name = |server: CompletionCandidate| {
            let mut host = server.get_value().to_owned();
            host.push(":");
            CompletionCandidate::new(host).help(server.get_help().cloned())
        };
        candidates.extend(server(typed).into_iter().map(name));
    }
    candidates
}

pub fn context(typed: &OsStr) -> Vec<CompletionCandidate> {
    let global = typed_globals();
    let own: Vec<String> =
        Settings::read(&global, true).map(|settings| settings.file.contexts.into_keys().collect()).unwrap_or_default();
    let others = kube::contexts(global.kubeconfig.as_deref()).map(|(names, _)| names).unwrap_or_default();
    candidates(typed, own.into_iter().chain(others).map(|name| (name, String::new())).collect())
}

pub fn setting(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, KEYS.iter().map(|key| (key.name.to_owned(), key.description.to_owned())).collect())
}

fn candidates(typed: &OsStr, names: Vec<(String, String)>) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let matching = names.into_iter().filter(|(name, _)| name.starts_with(typed));
    matching
        .map(|(name, about)| {
            let help = (!about.is_empty()).then(|| about.into());
            CompletionCandidate::new(name).help(help)
        })
        .collect()
}

fn with_timeout(request: impl AsyncFnOnce(Arc<dyn Client>) -> Option<Vec<(String, String)>>) -> Vec<(String, String)> {
    let names = || {
        let global = typed_globals();
        let selection = Settings::read(&global, true).ok()?.select_context(&global);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        runtime.block_on(async {
            let names = async { request(client::connect(&selection).await.ok()?).await };
            tokio::time::timeout(TIMEOUT, names).await.ok().flatten()
        })
    };
    names().unwrap_or_default()
}

/// Parses the global flags on the line being completed. A completer only receives the current word.
fn typed_globals() -> Global {
    let words: Vec<String> = std::env::args().collect();
    let flag = |name: &str, short: Option<&str>| {
        let is_flag = |word: &String| word == name || Some(word.as_str()) == short;
        let with_value = words.iter().position(is_flag).and_then(|at| words.get(at + 1)).cloned();
        let joined = || words.iter().find_map(|word| word.strip_prefix(&format!("{name}=")).map(str::to_owned));
        let variable = || std::env::var(format!("DEVCTL_{}", name.trim_start_matches('-').to_uppercase())).ok();
        with_value.or_else(joined).or_else(variable).filter(|value| !value.is_empty())
    };
    Global {
        context: flag("--context", None),
        namespace: flag("--namespace", Some("-n")),
        kubeconfig: flag("--kubeconfig", None).map(Into::into),
        config: flag("--config", None).map(Into::into),
        ..Global::default()
    }
}
