//! Cleaning up whatever a test does: return, fail or panic.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

/// Runs the test, then the clean-up, and only then lets a panic go on. The test's own failure is the one reported.
pub async fn finally<T>(
    test: impl Future<Output = anyhow::Result<T>>,
    clean_up: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    let outcome = AssertUnwindSafe(test).catch_unwind().await;
    let cleaned = clean_up().await;
    match outcome {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => cleaned.map(|()| value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_goes_on_after_the_clean_up() {
        let cleaned = std::cell::Cell::new(false);
        let test = async {
            assert!(cleaned.get(), "the test itself");
            Ok(())
        };
        let all = finally(test, async || {
            cleaned.set(true);
            Ok(())
        });
        assert!(AssertUnwindSafe(all).catch_unwind().await.is_err());
        assert!(cleaned.get());
    }

    #[tokio::test]
    async fn the_tests_own_error_comes_first() {
        let test = async { anyhow::bail!("test") };
        let error = finally::<()>(test, async || anyhow::bail!("clean-up")).await.unwrap_err();
        assert_eq!(error.to_string(), "test");
    }
}
