//! Words for the shell's completion: names as they are at this moment.
//!
//! Whoever presses Tab waits for nothing and is told nothing: a cluster that does not answer at once has no names.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use clap_complete::engine::{PathCompleter, ValueCompleter as _};
use futures_util::StreamExt as _;

use crate::args::Global;
use crate::backend::kube::{self, Kube};
use crate::backend::{Backend as _, Scope};
use crate::config::{KEYS, Settings};

const LIMIT: Duration = Duration::from_millis(1500);

pub fn server(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = asked(async |kube: Kube| {
        let mut pages = kube.list(Scope::Own);
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.ok()?;
            names.extend(page.iter().map(|server| (server.name().to_owned(), server.phase_word().to_owned())));
        }
        Some(names)
    });
    candidates(typed, names)
}

pub fn flavor(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = asked(async |kube: Kube| {
        let flavors = kube.flavors().await.ok()?;
        let named = flavors.into_iter().filter_map(|flavor| {
            let free = flavor.status.and_then(|status| status.free).unwrap_or(0);
            Some((flavor.metadata.name?, format!("{free} free")))
        });
        Some(named.collect())
    });
    candidates(typed, names)
}

pub fn claim(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, asked(async |kube: Kube| kube.claims().await.ok()))
}

/// A server's name and a colon, or a file here. Files there would need a login.
pub fn end_of_copy(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut all = PathCompleter::any().complete(typed);
    if typed.to_str().is_some_and(|typed| !typed.contains(['/', ':', '.'])) {
        let name = |server: CompletionCandidate| {
            let mut host = server.get_value().to_owned();
            host.push(":");
            CompletionCandidate::new(host).help(server.get_help().cloned())
        };
        all.extend(server(typed).into_iter().map(name));
    }
    all
}

pub fn context(typed: &OsStr) -> Vec<CompletionCandidate> {
    let global = typed_before();
    let own =
        Settings::read(&global, true).map(|settings| settings.file.contexts.into_keys().collect()).unwrap_or_default();
    let others = kube::contexts(global.kubeconfig.as_deref()).map(|(names, _)| names).unwrap_or_default();
    let all: Vec<String> = own;
    candidates(typed, all.into_iter().chain(others).map(|name| (name, String::new())).collect())
}

pub fn setting(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, KEYS.iter().map(|key| (key.name.to_owned(), key.about.to_owned())).collect())
}

fn candidates(typed: &OsStr, names: Vec<(String, String)>) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let fitting = names.into_iter().filter(|(name, _)| name.starts_with(typed));
    fitting
        .map(|(name, about)| {
            let help = (!about.is_empty()).then(|| about.into());
            CompletionCandidate::new(name).help(help)
        })
        .collect()
}

fn asked(question: impl AsyncFnOnce(Kube) -> Option<Vec<(String, String)>>) -> Vec<(String, String)> {
    let answer = || {
        let global = typed_before();
        let target = Settings::read(&global, true).ok()?.target(&global);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        runtime.block_on(async {
            let answer = async { question(Kube::connect(&target).await.ok()?).await };
            tokio::time::timeout(LIMIT, answer).await.ok().flatten()
        })
    };
    answer().unwrap_or_default()
}

/// The flags on the line that is being completed. The library tells a completer only the word at hand.
fn typed_before() -> Global {
    let words: Vec<String> = std::env::args().collect();
    let flag = |name: &str| {
        let with_value = words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
        let joined = || words.iter().find_map(|word| word.strip_prefix(&format!("{name}=")).map(str::to_owned));
        let variable = || std::env::var(format!("DEVCTL_{}", name.trim_start_matches('-').to_uppercase())).ok();
        with_value.or_else(joined).or_else(variable).filter(|value| !value.is_empty())
    };
    Global {
        context: flag("--context"),
        namespace: flag("--namespace"),
        kubeconfig: flag("--kubeconfig").map(Into::into),
        config: flag("--config").map(Into::into),
        ..Global::default()
    }
}
