//! `devctl exec`: a command in a server; ends as it ends.

use super::ssh::Visit;
use crate::app::App;
use crate::args::Exec;
use crate::failure::Result;
use crate::ssh::arrive::{Patience, arrive};
use crate::ssh::quote;
use crate::ssh::route::Wishes;

pub async fn run(app: &App, args: Exec) -> Result<()> {
    let patience = Patience { no_wake: args.sleeping.no_wake, limit: None };
    let there = arrive(app, Some(&args.server.name), args.place.node, patience).await?;
    let terminal = if args.tty {
        // Also where ours is none, as scripts want it that ask for one.
        "-tt"
    } else if args.shell {
        "-t"
    } else {
        "-T"
    };
    let visit = Visit {
        options: vec![terminal.to_owned()],
        wishes: Wishes::default(),
        line: (!args.shell).then(|| quote::line(&args.command)),
    };
    visit.pay(app, &there).await
}
