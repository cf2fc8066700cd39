//! Clean-up that runs whether a test returns, fails or panics.

use std::io::Write as _;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

/// Runs `test`, then `cleanup`, then resumes a panic of the test. The test's own failure takes precedence over a failure of
/// the clean-up.
pub async fn with_cleanup<T>(
    test: impl Future<Output = anyhow::Result<T>>,
    cleanup: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    let outcome = AssertUnwindSafe(test).catch_unwind().await;
    let cleaned = cleanup().await;
    match outcome {
        Err(panic) => {
            if let Err(error) = cleaned {
                let _ = writeln!(std::io::stderr(), "clean-up failed: {error:#}");
            }
            std::panic::resume_unwind(panic)
        }
        Ok(Err(error)) => Err(match cleaned {
            Ok(()) => error,
            Err(cleanup) => error.context(format!("clean-up failed as well: {cleanup:#}")),
        }),
        Ok(Ok(value)) => cleaned.map(|()| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_resumes_after_the_cleanup() {
        let cleaned = std::cell::Cell::new(false);
        let test = async {
            assert!(cleaned.get(), "the test itself");
            Ok(())
        };
        let all = with_cleanup(test, async || {
            cleaned.set(true);
            Ok(())
        });
        assert!(AssertUnwindSafe(all).catch_unwind().await.is_err());
        assert!(cleaned.get());
    }

    #[tokio::test]
    async fn test_error_takes_precedence_over_cleanup_error() {
        let test = async { anyhow::bail!("test") };
        let error = with_cleanup::<()>(test, async || anyhow::bail!("clean-up")).await.unwrap_err();
        assert_eq!(error.root_cause().to_string(), "test");
        assert_eq!(error.to_string(), "clean-up failed as well: clean-up");
    }

    #[tokio::test]
    async fn cleanup_error_fails_a_passing_test() {
        let error = with_cleanup(async { Ok(()) }, async || anyhow::bail!("clean-up")).await.unwrap_err();
        assert_eq!(error.to_string(), "clean-up");
    }
}
