use crate::app::App;
use crate::args::Ssh;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Ssh) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
