//! Polling for a condition with a timeout.

use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(100);

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
