//! Who may run now, and where: one plan for all servers and nodes.
//!
//! A [`World`] is told what happens by [`Event`]s and keeps everything ready; [`World::plan`] compares all that wait with
//! all there is. It is pure and exact: no clock, no chance, no fractions, so the same events give the same plans on every
//! machine, and what was recorded can be replayed. Time is in seconds.
//!
//! The order is one for all: promised bookings, priority (which rises with waiting), fair share of the team and then of
//! the user, age. Everybody in turn gets nodes now or keeps room for a planned start, from the known ends of those who
//! run. Whoever is further back may start first where that moves no planned start. What the grants mean for the objects
//! in Kubernetes is for [`crate::grants`] to say.

mod dry_run;
mod enrol;
mod event;
mod excess;
mod explain;
mod far;
mod finish;
mod fit;
#[cfg(test)]
mod fixtures;
mod forecast;
mod later;
mod lend;
mod measure;
mod node;
mod order;
mod pass;
mod place;
mod plan;
mod policy;
mod preempt;
mod promise;
mod purse;
mod quota;
mod resume;
mod rights;
mod shape;
mod stays;
mod steps;
mod taint;
mod usage;
mod victims;
mod watch;
mod world;

pub use dry_run::{Answer, Difference};
pub use event::{Account, Ask, Event, Limits, Node, Promise, Running, Server, Service, State, Used};
pub use excess::Excess;
pub use explain::Explained;
pub use forecast::{Eta, Forecast};
pub use order::Right;
pub use plan::{Choice, Grant, Plan, Preemption, Stop, Wait};
pub use policy::{Backfill, Policy};
pub use promise::{Cause, Moved};
pub use stays::{Given, Promises, Record, Stays};
pub use watch::Step;
pub use world::World;

pub(crate) use fit::is_selected;
pub(crate) use taint::{lets_in, would_let_in};
