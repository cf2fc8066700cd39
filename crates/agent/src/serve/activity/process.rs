//! The processes of the server, as `/proc` shows them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// Of one look. Whoever has more is busy beyond doubt, and is seen by those that are looked at.
const MOST: usize = 20_000;

/// Enough for a name of 16 bytes and 52 numbers.
const LONGEST_STAT: usize = 2048;

/// A process at one moment. Times are in clock ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub pid: u32,
    pub parent: u32,
    pub session: u32,
    /// Since the node was started. With the number, it tells a process from its successors.
    pub start: u64,
    /// CPU time of its own.
    pub own: u64,
    /// CPU time of children that have ended.
    pub reaped: u64,
    pub name: Box<str>,
}

/// Those that end meanwhile are left out.
pub fn all(proc: &Path) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    let mut stat = vec![0; LONGEST_STAT];
    for entry in fs::read_dir(proc)?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let mut path = entry.path();
        path.push("stat");
        let read = File::open(&path).and_then(|mut file| file.read(&mut stat));
        samples.extend(read.ok().and_then(|length| parse(pid, &stat[..length])));
        if samples.len() >= MOST {
            break;
        }
    }
    Ok(samples)
}

/// From `/proc/PID/stat`.
pub fn parse(pid: u32, stat: &[u8]) -> Option<Sample> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    // The name may hold anything; what follows the last parenthesis is plain.
    let close = stat.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let name = String::from_utf8_lossy(&stat[open + 1..close]).into_owned().into_boxed_str();
    let mut fields = std::str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let mut times = fields.skip(7).map(|field| field.parse::<u64>().ok());
    let mut time = || times.next().flatten();
    let (user, system, reaped_user, reaped_system) = (time()?, time()?, time()?, time()?);
    let begun = times.nth(4).flatten()?;
    let own = user.saturating_add(system);
    Some(Sample { pid, parent, session, start: begun, own, reaped: reaped_user.saturating_add(reaped_system), name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let stat = b"42 (a) b (c) S 7 42 41 0 -1 4194560 1 2 3 4 100 20 30 4 20 0 1 0 5555 6 7";
        let expect =
            Sample { pid: 42, parent: 7, session: 41, start: 5555, own: 120, reaped: 34, name: "a) b (c".into() };
        assert_eq!(parse(42, stat), Some(expect));
    }

    #[test]
    fn this_very_process_is_seen() {
        let own = std::process::id();
        let samples = all(Path::new("/proc")).unwrap();
        let seen = samples.iter().find(|sample| sample.pid == own).unwrap();
        assert!(seen.start > 0 && seen.parent > 0);
    }

    proptest! {
        #[test]
        fn nothing_a_kernel_could_write_is_too_odd(stat in prop::collection::vec(any::<u8>(), 0..200), text in "[()a-z0-9 -]{0,120}") {
            let _ = parse(1, &stat);
            let _ = parse(1, text.as_bytes());
        }
    }
}
