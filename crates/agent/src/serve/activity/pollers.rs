//! Samples processes, GPUs and OOM kills periodically.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::boot_time;
use crate::serve::activity::gpu::{self, GpuActivity};
use crate::serve::activity::jupyter::{JupyterActivity, Kernel};
use crate::serve::activity::proc_stat::{self, Sample};
use crate::serve::activity::process_cpu::{CpuSampler, Origin, Roots, is_busy};
use crate::serve::activity::{Activity, oom};

const CPU_INTERVAL: Duration = Duration::from_secs(15);
/// Interval between the first two samples, so that a restarted agent reports CPU usage soon.
const FIRST_CPU_INTERVAL: Duration = Duration::from_secs(2);
const GPU_INTERVAL: Duration = Duration::from_secs(30);
const OOM_INTERVAL: Duration = Duration::from_secs(2);

/// CPU time that sampling may use, of one core.
const MAX_CPU_PERCENT: u32 = 2;

/// Set in the environment of sessions and inherited by their processes.
const SESSION_VARIABLE: &[u8] = b"SSH_CONNECTION=";

/// `jupyter_pid` returns the process of the Jupyter server, if it runs.
pub async fn poll_cpu(activity: Arc<Activity>, jupyter_pid: impl Fn() -> Option<u32>) {
    let mut cpu = CpuSampler::default();
    let mut sampled_at = boot_time::since_boot();
    let mut interval = FIRST_CPU_INTERVAL;
    loop {
        let (leaders, jupyter) = (activity.session_leaders(), jupyter_pid());
        let started = Instant::now();
        // Reads thousands of small files, which would delay sessions.
        let task = spawn_blocking(move || {
            let samples = proc_stat::read_all(Path::new("/proc")).unwrap_or_default();
            let now = boot_time::since_boot();
            let roots = Roots { init: 1, serve: std::process::id(), session_leaders: &leaders, jupyter };
            let usage = cpu.sample(&samples, &roots, ticks(now), has_session_env);
            (cpu, usage, exited_leaders(&leaders, &samples), now)
        });
        let Ok((next, usage, exited, now)) = task.await else { return };
        cpu = next;
        let elapsed = now.saturating_sub(sampled_at);
        sampled_at = now;
        for (origin, usage) in usage {
            if origin != Origin::Agent && is_busy(usage.ticks, clock_ticks_per_second(), elapsed) {
                activity.record_cpu(origin, &usage, now);
            }
        }
        activity.remove_session_leaders(&exited);
        sleep(interval.max(started.elapsed() * (100 / MAX_CPU_PERCENT))).await;
        interval = CPU_INTERVAL;
    }
}

fn ticks(since_boot: Duration) -> u64 {
    let ticks = since_boot.as_millis() * u128::from(clock_ticks_per_second()) / 1000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Reports whether a session started the process. The environment of another user's process cannot be read.
fn has_session_env(pid: u32) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(SESSION_VARIABLE))
}

/// Returns the leaders of sessions without processes.
fn exited_leaders(leaders: &BTreeSet<u32>, samples: &[Sample]) -> BTreeSet<u32> {
    let existing: BTreeSet<u32> = samples.iter().flat_map(|sample| [sample.pid, sample.session]).collect();
    leaders.difference(&existing).copied().collect()
}

pub async fn poll_gpus(activity: Arc<Activity>) {
    loop {
        let load = match gpu::find_nvidia_smi(std::env::var_os("PATH").as_deref()) {
            Some(program) => Some(gpu::query(&program).await),
            None => None,
        };
        let previous = activity.lock().gpu.take();
        activity.lock().gpu = load.map(|load| GpuActivity::update(previous, load, boot_time::since_boot()));
        sleep(GPU_INTERVAL).await;
    }
}

/// Calls `report` whenever the counter in `file` has increased. `reported` is the count that was reported last.
pub async fn poll_oom(activity: &Activity, file: &Path, mut reported: u64, report: impl Fn(u64)) {
    loop {
        if let Some(kills) = oom::read_count(file) {
            activity.oom_kills.store(kills, Ordering::Relaxed);
            if kills > reported {
                report(kills);
            }
            reported = kills;
        }
        sleep(OOM_INTERVAL).await;
    }
}

impl Activity {
    /// Records the kernels of the Jupyter server; none if it does not run.
    pub fn record_jupyter(&self, kernels: Option<Result<Vec<Kernel>, String>>) {
        let mut inner = self.lock();
        let previous = inner.jupyter.take();
        inner.jupyter = kernels.map(|kernels| JupyterActivity::update(previous, kernels, boot_time::since_boot()));
    }
}
