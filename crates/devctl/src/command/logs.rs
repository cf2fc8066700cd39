use crate::app::App;
use crate::args::Logs;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Logs) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
