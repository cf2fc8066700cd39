use crate::app::App;
use crate::args::Create;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Create) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
