use crate::app::App;
use crate::args::Delete;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Delete) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
