use crate::app::App;
use crate::args::List;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: List) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
