//! Commands about what there is.

use clap::Args;

#[derive(Args, Debug)]
pub struct Avail {
    /// Only these flavors
    #[arg(value_name = "FLAVOR", add = clap_complete::ArgValueCompleter::new(crate::complete::flavor))]
    pub flavors: Vec<String>,
    /// Also flavors whose nodes can be taken away at any time
    #[arg(long)]
    pub spot: bool,
    /// Go on, and show every change
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Flavors {
    /// Only these flavors
    #[arg(value_name = "FLAVOR", add = clap_complete::ArgValueCompleter::new(crate::complete::flavor))]
    pub flavors: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Queue {
    /// Everybody who waits; whose they are only where you may see it
    #[arg(short, long)]
    pub all: bool,
    /// How well expected starts were kept so far
    #[arg(long, conflicts_with_all = ["all", "watch"])]
    pub calibration: bool,
    /// Go on, and show every change
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Status {
    /// Go on, and show every change
    #[arg(short, long)]
    pub watch: bool,
}
