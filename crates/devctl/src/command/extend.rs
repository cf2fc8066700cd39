use crate::app::App;
use crate::args::Extend;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Extend) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
