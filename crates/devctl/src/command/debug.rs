use crate::app::App;
use crate::args::Debug;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Debug) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
