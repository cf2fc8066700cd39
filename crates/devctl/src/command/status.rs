use crate::app::App;
use crate::args::Status;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Status) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
