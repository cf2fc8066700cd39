//! Pages made from the command line: `docs/devctl.md` and man pages.

use crate::args::Generate;
use crate::failure::{Failure, Result};

pub fn run(_args: &Generate) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
