//! When to look again after something went wrong, and who is told.

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::sync::Notify;

use crate::context::Context;
use crate::error::{Class, Error};
use crate::metrics::Failure;

/// Errors are logged and counted once, here, and their class sets when to look again.
pub fn failed(ctx: &Context, controller: &'static str, name: &str, error: &Error, failures: u32) -> Action {
    let class = error.class();
    ctx.metrics.failures.get_or_create(&Failure { controller, class: class.as_str() }).inc();
    let error = error as &dyn std::error::Error;
    match class {
        Class::Conflict => tracing::debug!(controller, name, error, "somebody was faster"),
        Class::Transient => tracing::info!(controller, name, error, failures, "will try again"),
        Class::Invalid => tracing::warn!(controller, name, error, "waits for a change"),
        Class::Bug => tracing::error!(controller, name, error, failures, "was refused"),
    }
    match class {
        Class::Invalid => Action::await_change(),
        Class::Conflict => Action::requeue(Duration::from_millis(20 * u64::from(failures.min(50)))),
        Class::Transient | Class::Bug => Action::requeue(back_off(failures)),
    }
}

/// Doubles up to a minute; a tenth of it is chance, so that those who failed together do not come back together.
pub fn back_off(failures: u32) -> Duration {
    let base = Duration::from_millis(100).saturating_mul(1 << failures.min(10)).min(Duration::from_secs(60));
    base + base.mul_f64(rand::random::<f64>() / 10.0)
}

/// Looks at all of a kind whenever it is told to, at most once a second, and after a failure by itself.
pub async fn at_most_once_a_second(
    ctx: &Context,
    controller: &'static str,
    told: &Notify,
    pass: impl AsyncFn(&Context) -> Result<(), Error>,
) {
    let mut failures = 0;
    loop {
        let patience = match pass(ctx).await {
            Ok(()) => {
                failures = 0;
                None
            }
            Err(error) => {
                failures += 1;
                failed(ctx, controller, "all", &error, failures);
                Some(back_off(failures))
            }
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        match patience {
            None => told.notified().await,
            Some(patience) => {
                // News is as good a reason to try again as time.
                let _ = tokio::time::timeout(patience, told.notified()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_grows_to_a_minute_and_no_further() {
        let mut before = Duration::ZERO;
        for failures in 1..8 {
            let now = back_off(failures);
            assert!(now > before, "{failures}");
            before = now;
        }
        for failures in [10, 11, 100, u32::MAX] {
            assert!((60..=66).contains(&back_off(failures).as_secs()), "{failures}");
        }
    }
}
