//! Records when keys were last used: in batches, at most once a minute per key.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use odc_store::Store;
use parking_lot::Mutex;

/// How often uses are written.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// Ids per statement.
const MAX_BATCH: usize = 1_000;

pub(super) struct LastUsed {
    store: Store,
    used: Mutex<Uses>,
}

#[derive(Default)]
struct Uses {
    pending: HashSet<String>,
    recorded: HashMap<String, Instant>,
}

impl Uses {
    /// Notes the use of a key, unless it was noted within the interval.
    fn note(&mut self, id: &str, now: Instant) {
        let is_recent = self.recorded.get(id).is_some_and(|at| now.duration_since(*at) < WRITE_INTERVAL);
        if !is_recent {
            self.recorded.insert(id.to_owned(), now);
            self.pending.insert(id.to_owned());
        }
    }

    /// Returns the keys to write, and forgets keys that were not used within the interval.
    fn take(&mut self, now: Instant) -> Vec<String> {
        self.recorded.retain(|_, at| now.duration_since(*at) < WRITE_INTERVAL);
        self.pending.drain().collect()
    }
}

impl LastUsed {
    pub fn new(store: Store) -> Self {
        Self { store, used: Mutex::default() }
    }

    pub fn record(&self, id: &str) {
        self.used.lock().note(id, Instant::now());
    }

    /// Writes uses. Those that cannot be written are lost: they are information, not state.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(WRITE_INTERVAL);
        loop {
            interval.tick().await;
            let ids = self.used.lock().take(Instant::now());
            for batch in ids.chunks(MAX_BATCH) {
                if let Err(error) = self.store.record_key_uses(batch).await {
                    tracing::warn!(%error, "failed to record uses of API keys");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_written_once_a_minute() {
        let mut uses = Uses::default();
        let start = Instant::now();
        (0..10).for_each(|_| uses.note("a", start));
        assert_eq!(uses.take(start), ["a"]);
        uses.note("a", start + Duration::from_secs(59));
        assert!(uses.take(start + Duration::from_secs(59)).is_empty());
        uses.note("a", start + Duration::from_secs(60));
        assert_eq!(uses.take(start + Duration::from_secs(60)), ["a"]);
    }
}
