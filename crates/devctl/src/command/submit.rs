use crate::app::App;
use crate::args::Submit;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Submit) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
