//! Error handling of controllers and loops: logging, metrics and backoff.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::sync::Notify;

use crate::context::Context;
use crate::error::{Class, Error, format_chain};
use crate::metrics::ReconcileError;

/// The minimum time between two runs of [`run_rate_limited`].
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Logs and counts an error, and returns when to requeue, by the error's class.
pub fn handle_error(ctx: &Context, controller: &'static str, name: &str, error: &Error, failures: u32) -> Action {
    let class = error.class();
    ctx.metrics.reconcile_errors.get_or_create(&ReconcileError { controller, class: class.as_str() }).inc();
    let error = format_chain(error);
    match class {
        Class::Conflict => tracing::debug!(controller, name, error, "conflict, requeueing"),
        Class::Transient => tracing::info!(controller, name, error, failures, "transient error, requeueing"),
        Class::Invalid => tracing::warn!(controller, name, error, "invalid object, waiting for a change"),
        Class::Bug => tracing::error!(controller, name, error, failures, "internal error, requeueing"),
    }
    match class {
        Class::Invalid => Action::await_change(),
        Class::Conflict => Action::requeue(Duration::from_millis(20 * u64::from(failures.min(50)))),
        Class::Transient | Class::Bug => Action::requeue(backoff(failures)),
    }
}

/// Returns an exponential backoff of at most one minute, plus up to a tenth of jitter.
pub fn backoff(failures: u32) -> Duration {
    let base = Duration::from_millis(100).saturating_mul(1 << failures.min(10)).min(Duration::from_secs(60));
    base + base.mul_f64(rand::random::<f64>() / 10.0)
}

/// Runs a loop over all objects of a kind: on each notification, at most once a second, and after an error with
/// backoff.
pub async fn run_rate_limited(
    ctx: &Arc<Context>,
    controller: &'static str,
    changed: &Notify,
    reconcile_all: impl AsyncFn(&Arc<Context>) -> Result<(), Error>,
) {
    let mut failures = 0;
    loop {
        let retry = match reconcile_all(ctx).await {
            Ok(()) => {
                failures = 0;
                None
            }
            Err(error) => {
                failures += 1;
                handle_error(ctx, controller, "all", &error, failures);
                Some(backoff(failures))
            }
        };
        tokio::time::sleep(MIN_INTERVAL).await;
        match retry {
            None => changed.notified().await,
            Some(delay) => {
                // A notification ends the backoff early.
                let _ = tokio::time::timeout(delay, changed.notified()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_up_to_one_minute() {
        let mut previous = Duration::ZERO;
        for failures in 1..8 {
            let delay = backoff(failures);
            assert!(delay > previous, "{failures}");
            previous = delay;
        }
        for failures in [10, 11, 100, u32::MAX] {
            assert!((60..=66).contains(&backoff(failures).as_secs()), "{failures}");
        }
    }
}
