use crate::app::App;
use crate::args::Exec;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Exec) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
