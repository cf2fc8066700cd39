use crate::app::App;
use crate::args::Avail;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Avail) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
