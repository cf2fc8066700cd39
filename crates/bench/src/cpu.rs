//! CPU time of processes, from `/proc`.

use std::time::Duration;

use anyhow::Context as _;

/// The part of `/proc/PID/stat` about CPU time, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own: u64,
    /// Of children that have exited.
    exited_children: u64,
}

impl Stat {
    fn read(pid: u32) -> anyhow::Result<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat"))?)
    }

    fn parse(stat: &str) -> anyhow::Result<Self> {
        // The name of the process may contain spaces and parentheses.
        let (_, rest) = stat.rsplit_once(')').context("/proc/PID/stat has a name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |index: usize| fields.get(index).copied().context("/proc/PID/stat is too short");
        let ticks = |index| anyhow::Ok(field(index)?.parse::<u64>()?);
        Ok(Self { parent: field(1)?.parse()?, own: ticks(11)? + ticks(12)?, exited_children: ticks(13)? + ticks(14)? })
    }
}

/// Returns the user and system time of a process.
pub(crate) fn process(pid: u32) -> anyhow::Result<Duration> {
    Ok(duration(Stat::read(pid)?.own))
}

/// Returns the user and system time of a process and its children.
pub(crate) fn process_and_children(pid: u32) -> anyhow::Result<Duration> {
    let parent = Stat::read(pid)?;
    let pids = std::fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that exits meanwhile counts as exited child the next time.
    let children = pids.filter_map(|other| Stat::read(other).ok()).filter(|stat| stat.parent == pid);
    Ok(duration(
        parent.own + parent.exited_children + children.map(|stat| stat.own + stat.exited_children).sum::<u64>(),
    ))
}

/// Returns the parent of a process.
pub(crate) fn parent(pid: u32) -> anyhow::Result<u32> {
    Ok(Stat::read(pid)?.parent)
}

fn duration(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_parenthesis_does_not_shift_the_fields() {
        let stat = Stat::parse("71 (a) b) S 70 71 71 0 -1 4194560 1 2 3 4 100 20 7 3 20 0 1 0").unwrap();
        assert_eq!(stat, Stat { parent: 70, own: 120, exited_children: 10 });
        assert!(Stat::parse("71 (a) S 70").is_err());
    }

    #[test]
    fn own_process_is_a_child_of_its_parent() {
        let own = std::process::id();
        assert!(process(own).unwrap() <= process_and_children(parent(own).unwrap()).unwrap());
    }
}
