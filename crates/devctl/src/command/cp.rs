use crate::app::App;
use crate::args::Cp;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Cp) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
