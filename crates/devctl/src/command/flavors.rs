use crate::app::App;
use crate::args::Flavors;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Flavors) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
