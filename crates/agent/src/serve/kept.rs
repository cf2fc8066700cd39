//! What a new `serve` must know of what its predecessor was told, in files of the state directory.
//!
//! Such files may outlive the container they were meant for, so its process 1 is part of them. Times in them are on the
//! clock that counts from the node's start, which is the same for both.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::replace::replace;
use crate::state::process::Process;

/// More than any of them takes.
const LARGEST: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Kept<T> {
    init: Process,
    kept: T,
}

/// Nothing, if it is of another life or cannot be read.
pub fn load<T: DeserializeOwned>(file: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(file).ok()?.take(LARGEST).read_to_end(&mut text).ok()?;
    let Kept { init, kept } = serde_json::from_slice(&text).ok()?;
    (init == Process::init()).then_some(kept)
}

pub fn store<T: Serialize>(file: &Path, kept: &T) -> io::Result<()> {
    let text = serde_json::to_vec(&Kept { init: Process::init(), kept })?;
    replace(file, 0o600, |file| file.write_all(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_life_of_the_container_counts() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("kept.json");
        assert_eq!(load::<u32>(&file), None);
        store(&file, &7).unwrap();
        assert_eq!(load(&file), Some(7));
        let earlier = Kept { init: Process { pid: 1, start_ticks: Some(3) }, kept: 7 };
        std::fs::write(&file, serde_json::to_vec(&earlier).unwrap()).unwrap();
        assert_eq!(load::<u32>(&file), None);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(load::<u32>(&file), None);
    }
}
