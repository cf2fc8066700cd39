//! Samples of all processes, from `/proc`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use crate::process_id::split_stat;

/// Per sample. A server with more processes is busy, which the sampled ones show.
const MAX_PROCESSES: usize = 20_000;

/// Sufficient for a name of 16 bytes and 52 numbers.
const MAX_STAT_BYTES: usize = 2048;

/// A process at one time. Times are in clock ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub pid: u32,
    pub parent: u32,
    pub session: u32,
    /// Start time since the boot of the node. Distinguishes processes with the same PID.
    pub start_ticks: u64,
    /// Its own CPU time.
    pub own_ticks: u64,
    /// CPU time of reaped children.
    pub children_ticks: u64,
    pub name: Box<str>,
}

/// Reads all processes. One that exits in between is left out.
pub fn read_all(proc: &Path) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let mut stat = vec![0; MAX_STAT_BYTES];
    for entry in fs::read_dir(proc)?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let mut path = entry.path();
        path.push("stat");
        let read = File::open(&path).and_then(|mut file| file.read(&mut stat));
        samples.extend(read.ok().and_then(|length| parse(pid, &stat[..length])));
        if samples.len() >= MAX_PROCESSES {
            break;
        }
    }
    Ok(samples)
}

/// Parses the content of `/proc/PID/stat`.
pub fn parse(pid: u32, stat: &[u8]) -> Option<Sample> {
    let (name, fields) = split_stat(stat)?;
    let name = String::from_utf8_lossy(name).into_owned().into_boxed_str();
    let mut fields = fields.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let mut times = fields.skip(7).map(|field| field.parse::<u64>().ok());
    let mut time = || times.next().flatten();
    let (user, system, children_user, children_system) = (time()?, time()?, time()?, time()?);
    let start_ticks = times.nth(4).flatten()?;
    Some(Sample {
        pid,
        parent,
        session,
        start_ticks,
        own_ticks: user.saturating_add(system),
        children_ticks: children_user.saturating_add(children_system),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat_is_parsed() {
        let stat = b"42 (a) b (c) S 7 42 41 0 -1 4194560 1 2 3 4 100 20 30 4 20 0 1 0 5555 6 7";
        let expect = Sample {
            pid: 42,
            parent: 7,
            session: 41,
            start_ticks: 5555,
            own_ticks: 120,
            children_ticks: 34,
            name: "a) b (c".into(),
        };
        assert_eq!(parse(42, stat), Some(expect));
    }

    #[test]
    fn current_process_is_sampled() {
        let pid = std::process::id();
        let samples = read_all(Path::new("/proc")).unwrap();
        let sample = samples.iter().find(|sample| sample.pid == pid).unwrap();
        assert!(sample.start_ticks > 0 && sample.parent > 0);
    }

    proptest! {
        #[test]
        fn arbitrary_stat_does_not_panic(stat in prop::collection::vec(any::<u8>(), 0..200), text in "[()a-z0-9 -]{0,120}") {
            let _ = parse(1, &stat);
            let _ = parse(1, text.as_bytes());
        }
    }
}
