//! The scheduler alone, without a cluster: what a decision costs by the size of the cluster, whether its promises are
//! kept, and how it does beside plainer ones on the same traces. Nothing here needs more than this process.

mod compare;
mod eta;
mod kernel;
mod openb;
mod workload;

use std::path::Path;

use anyhow::Context as _;

/// Some plans for so many nodes and nothing else, for callgrind to count: prints how many decisions they were.
pub(crate) fn rehearse(mut numbers: impl Iterator<Item = String>) -> anyhow::Result<String> {
    let mut number = |what| -> anyhow::Result<u32> { Ok(numbers.next().context(what)?.parse()?) };
    let (nodes, plans) = (number("say how many nodes")?, number("say how many plans")?);
    Ok(format!("{}\n", kernel::rehearse(nodes, plans)?))
}

/// As it stands in `docs/scheduling.md`. Real stays are read from the public trace, if its directory is given.
pub(crate) fn run(openb: Option<&Path>) -> anyhow::Result<String> {
    let mut report = kernel::measure()?;
    let stays = openb.map(openb::read).transpose()?;
    report += &compare::measure(stays.as_ref())?;
    report += &eta::measure(stays.as_ref())?;
    if let Some(stays) = &stays {
        report += &openb::place(stays)?;
    }
    Ok(report)
}
