//! The API keys that were used recently.
//!
//! A change of a key arrives as a notification of the database. While notifications are not received, an entry is used for
//! [`MAX_AGE_UNNOTIFIED`] at most, so a revocation is effective after that time in any case.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::future::Cache;
use odc_store::Store;
use odc_store::key::Credential;
use odc_store::listen::Notification;

use crate::api::error::Result;

const MAX_AGE: Duration = Duration::from_secs(300);
const MAX_AGE_UNNOTIFIED: Duration = Duration::from_secs(5);
const MAX_ENTRIES: u64 = 10_000;
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct KeyCache {
    store: Store,
    entries: Cache<String, Entry>,
    /// The sequence number of the last change of a key. A credential that was read before is outdated.
    changes: Cache<String, u64>,
    sequence: AtomicU64,
    /// The sequence number when notifications began to be received. Changes may have been missed before.
    listening_since: AtomicU64,
    listening: AtomicBool,
}

/// A key as read from the database.
#[derive(Clone)]
struct Entry {
    /// Unset if there is no valid key of this id.
    credential: Option<Arc<Credential>>,
    read_at: Instant,
    /// The sequence number before the read.
    sequence: u64,
}

impl KeyCache {
    pub fn new(store: Store) -> Self {
        let cache = || Cache::builder().max_capacity(MAX_ENTRIES).time_to_live(MAX_AGE);
        Self {
            store,
            entries: cache().build(),
            // Outlives every credential that was read before the change.
            changes: Cache::builder().max_capacity(MAX_ENTRIES).time_to_live(MAX_AGE * 2).build(),
            sequence: AtomicU64::new(1),
            listening_since: AtomicU64::new(0),
            listening: AtomicBool::new(false),
        }
    }

    pub fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    pub fn is_cached(&self, id: &str) -> bool {
        self.entries.contains_key(id)
    }

    /// Returns the credential of a key. Concurrent calls share one statement.
    pub async fn find(&self, id: &str) -> Result<Option<Arc<Credential>>> {
        if let Some(entry) = self.entries.get(id).await {
            if self.is_current(id, &entry).await {
                return Ok(entry.credential);
            }
            self.entries.invalidate(id).await;
        }
        let read = async {
            let sequence = self.sequence.load(Ordering::SeqCst);
            let read_at = Instant::now();
            let credential = self.store.find_credential(id).await?.map(Arc::new);
            Ok(Entry { credential, read_at, sequence })
        };
        match self.entries.try_get_with(id.to_owned(), read).await {
            Ok(entry) => Ok(entry.credential),
            Err(error) => Err(shared_error(&error)),
        }
    }

    async fn is_current(&self, id: &str, entry: &Entry) -> bool {
        // The trigger reports changes of keys, not new ones, so an unknown id is looked up again soon.
        let max_age = if self.is_listening() && entry.credential.is_some() { MAX_AGE } else { MAX_AGE_UNNOTIFIED };
        let changed = self.changes.get(id).await.unwrap_or(0).max(self.listening_since.load(Ordering::SeqCst));
        entry.read_at.elapsed() < max_age && changed <= entry.sequence
    }

    /// Receives changes of keys. Reconnects for ever.
    pub async fn follow_changes(&self) {
        loop {
            if let Err(error) = self.listen().await {
                tracing::warn!(%error, "not receiving changes of API keys; cached keys live 5 s");
            }
            self.listening.store(false, Ordering::Relaxed);
            tokio::time::sleep(RECONNECT_INTERVAL).await;
        }
    }

    /// Notes that changes are notified from now on. Also a credential that is being read now is read again.
    fn start_listening(&self) {
        self.listening_since.store(self.next_sequence(), Ordering::SeqCst);
        self.entries.invalidate_all();
        self.listening.store(true, Ordering::Relaxed);
    }

    async fn note_change(&self, id: &str) {
        self.changes.insert(id.to_owned(), self.next_sequence()).await;
        self.entries.invalidate(id).await;
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst) + 1
    }

    async fn listen(&self) -> odc_store::Result<()> {
        let mut listener = self.store.listen_for_key_changes().await?;
        self.start_listening();
        loop {
            if let Notification::KeyChanged(id) = listener.next().await? {
                self.note_change(&id).await;
            }
        }
    }
}

/// Converts an error that several callers receive.
fn shared_error(error: &Arc<odc_store::Error>) -> crate::api::error::Error {
    use crate::api::error::Error;
    if error.is_unavailable() {
        Error::unavailable("the database is unavailable; repeat the request later")
    } else {
        Error::internal(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn credential_that_was_read_before_a_change_or_before_listening_is_outdated() {
        let settings = odc_store::Settings::from_url("postgres://odc_api@127.0.0.1:1/odc", "test").unwrap();
        let cache = KeyCache::new(Store::new(&settings));
        let read =
            || Entry { credential: None, read_at: Instant::now(), sequence: cache.sequence.load(Ordering::SeqCst) };
        let before = read();
        assert!(cache.is_current("a", &before).await);
        cache.start_listening();
        assert!(!cache.is_current("a", &before).await, "the notification of a change may have been missed");
        let after = read();
        assert!(cache.is_current("a", &after).await);
        cache.note_change("a").await;
        assert!(!cache.is_current("a", &after).await);
        assert!(cache.is_current("b", &after).await);
        assert!(cache.is_current("a", &read()).await);
    }
}
