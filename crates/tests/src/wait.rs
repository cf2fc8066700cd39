//! Polling for a condition with a timeout.

use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Counting lists all objects, which slows down what is waited for.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Calls `poll` until it succeeds. After `timeout`, returns the last error with `condition` as context.
///
/// For conditions that cannot be watched. For Kubernetes objects use `kube::runtime::wait`.
pub async fn until<T>(
    condition: &str,
    timeout: Duration,
    mut poll: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        match poll().await {
            Ok(value) => return Ok(value),
            Err(error) if started.elapsed() > timeout => {
                return Err(error.context(format!("{condition}: timed out after {}s", timeout.as_secs())));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until `count` returns `total`, as long as it grows at least once per `timeout`. How long all of them take depends
/// on the load of the machine.
pub async fn until_count(
    condition: &str,
    total: usize,
    timeout: Duration,
    mut count: impl AsyncFnMut() -> anyhow::Result<usize>,
) -> anyhow::Result<()> {
    let (mut last, mut grown_at) = (0, Instant::now());
    loop {
        let current = count().await?;
        if current == total {
            return Ok(());
        }
        if current > last {
            (last, grown_at) = (current, Instant::now());
        }
        anyhow::ensure!(
            grown_at.elapsed() <= timeout,
            "{condition}: {current} of {total}, no progress for {}s",
            timeout.as_secs()
        );
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}
