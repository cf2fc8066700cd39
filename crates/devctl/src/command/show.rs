use crate::app::App;
use crate::args::Show;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Show) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
