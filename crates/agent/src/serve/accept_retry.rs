//! Retries `accept(2)` after errors such as EMFILE.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

/// Delay after `accept` failed, for example because too many files are open.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Returns the next connection. Retries if `accept` fails.
pub async fn accept_retrying<T, F>(accept: impl Fn() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}
