//! Files in which `serve` keeps state across its own restarts.
//!
//! They may outlive the container, so each records the PID 1 that wrote it. Times are relative to the boot of the node,
//! which a restart of the container does not change.

use std::io::{self, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::atomic_write::write_atomic;
use crate::bounded_read::read_bounded;
use crate::process_id::ProcessId;

/// The largest file is an access list.
const MAX_FILE_BYTES: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct Persisted<T> {
    init: ProcessId,
    value: T,
}

/// Returns what was stored in this run of the container.
pub fn load<T: DeserializeOwned>(file: &Path) -> Option<T> {
    read(file).filter(|persisted| persisted.init == ProcessId::init()).map(|persisted| persisted.value)
}

/// Returns what was stored, in whichever run of the container.
pub fn load_any_run<T: DeserializeOwned>(file: &Path) -> Option<T> {
    read(file).map(|persisted| persisted.value)
}

pub fn store<T: Serialize>(file: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(&Persisted { init: ProcessId::init(), value })?;
    write_atomic(file, 0o600, |file| file.write_all(&text))
}

fn read<T: DeserializeOwned>(file: &Path) -> Option<Persisted<T>> {
    serde_json::from_slice(&read_bounded(file, MAX_FILE_BYTES).ok()?).ok()
}

/// Stores a value as in an earlier run of the container.
#[cfg(test)]
pub fn store_in_earlier_run<T: Serialize>(file: &Path, value: &T) -> io::Result<()> {
    let earlier = Persisted { init: ProcessId { pid: 1, start_ticks: Some(3) }, value };
    std::fs::write(file, serde_json::to_vec(&earlier)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_an_earlier_container_run_is_ignored_unless_requested() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("value.json");
        assert_eq!(load::<u32>(&file), None);
        store(&file, &7).unwrap();
        assert_eq!(load(&file), Some(7));
        store_in_earlier_run(&file, &7).unwrap();
        assert_eq!((load::<u32>(&file), load_any_run(&file)), (None, Some(7)));
        std::fs::write(&file, "{").unwrap();
        assert_eq!((load::<u32>(&file), load_any_run::<u32>(&file)), (None, None));
    }
}
