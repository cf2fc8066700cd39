use crate::app::App;
use crate::args::Wake;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Wake) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
