use crate::app::App;
use crate::args::Edit;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Edit) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
