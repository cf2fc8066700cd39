//! Looks at what nobody says: processes, GPUs, the notebook server, the memory's limit. Each in its own rhythm, for ever.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::clock;
use crate::serve::activity::busy::{Look, Origin, Roots, is_busy};
use crate::serve::activity::process::{self, Sample};
use crate::serve::activity::{Activity, gpu, memory, notebook};

const PROCESSES: Duration = Duration::from_secs(15);
/// Between the first two looks, so that who asks a new agent is told something.
const SOON: Duration = Duration::from_secs(2);
const GPUS: Duration = Duration::from_secs(30);
const MEMORY: Duration = Duration::from_secs(2);

/// Looking may take this part of the time of one core.
const SHARE: u32 = 50;

/// What a session's environment has, and all that comes from it inherits.
const OF_A_SESSION: &[u8] = b"SSH_CONNECTION=";

/// `notebook` tells the process of our notebook server, if there is one.
pub async fn processes(activity: Arc<Activity>, notebook: impl Fn() -> Option<u32>) {
    let mut look = Look::default();
    let mut looked_at = clock::since_boot();
    let mut pause = SOON;
    loop {
        let (leaders, notebook) = (activity.leaders(), notebook());
        let begun = Instant::now();
        // Thousands of small files are read, and none of the sessions should wait for that.
        let seen = spawn_blocking(move || {
            let samples = process::all(Path::new("/proc")).unwrap_or_default();
            let now = clock::since_boot();
            let roots = Roots { init: 1, serve: std::process::id(), leaders: &leaders, notebook };
            let growth = look.next(&samples, &roots, ticks(now), from_session);
            (look, growth, gone(&leaders, &samples), now)
        });
        let Ok((next, growth, gone, now)) = seen.await else { return };
        look = next;
        let over = now.saturating_sub(looked_at);
        looked_at = now;
        for (origin, growth) in growth {
            if origin != Origin::Agent && is_busy(growth.ticks, clock_ticks_per_second(), over) {
                activity.saw_busy(origin, &growth, now);
            }
        }
        activity.forget_leaders(&gone);
        sleep(pause.max(begun.elapsed() * SHARE)).await;
        pause = PROCESSES;
    }
}

fn ticks(since_boot: Duration) -> u64 {
    let ticks = since_boot.as_millis() * u128::from(clock_ticks_per_second()) / 1000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Of another user's process we may not read it; then it is nobody's session.
fn from_session(pid: u32) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(OF_A_SESSION))
}

/// Sessions of which no process is left.
fn gone(leaders: &BTreeSet<u32>, samples: &[Sample]) -> BTreeSet<u32> {
    let there: BTreeSet<u32> = samples.iter().flat_map(|sample| [sample.pid, sample.session]).collect();
    leaders.difference(&there).copied().collect()
}

pub async fn gpus(activity: Arc<Activity>) {
    loop {
        let program = gpu::program(std::env::var_os("PATH").as_deref());
        let load = match program {
            Some(program) => Some(gpu::ask(&program).await),
            None => None,
        };
        let before = activity.rest().gpu.take();
        activity.rest().gpu = load.map(|load| gpu::Seen::after(before, load, clock::since_boot()));
        sleep(GPUS).await;
    }
}

/// Tells of each rise of what that file counts. `known` is what people have already been told of.
pub async fn memory(activity: Arc<Activity>, file: PathBuf, mut known: u64, tell: impl Fn(u64)) {
    loop {
        if let Some(kills) = memory::count(&file) {
            activity.oom_kills.store(kills, Ordering::Relaxed);
            if kills > known {
                tell(kills);
            }
            known = kills;
        }
        sleep(MEMORY).await;
    }
}

impl Activity {
    /// After a look at our notebook server; `None` if there is none.
    pub fn saw_notebook(&self, kernels: Option<Result<Vec<notebook::Kernel>, String>>) {
        let mut rest = self.rest();
        let before = rest.notebook.take();
        rest.notebook = kernels.map(|kernels| notebook::Seen::after(before, kernels, clock::since_boot()));
    }
}
