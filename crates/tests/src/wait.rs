//! Waiting for something to become true, with a limit and a reason.

use std::time::{Duration, Instant};

/// Asks until the answer is there. The last error is the reason given when it does not come.
///
/// For things that cannot be watched; Kubernetes objects can: see `kube::runtime::wait`.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if started.elapsed() > limit => {
                return Err(error.context(format!("{what}: not within {} s", limit.as_secs())));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
