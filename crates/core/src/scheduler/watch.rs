//! What is done to a world, for whoever wants to record it.

use super::{Event, Plan};

#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    Told { now: i64, event: &'a Event },
    Planned { now: i64, plan: &'a Plan },
}
