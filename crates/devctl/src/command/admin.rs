use crate::app::App;
use crate::args::Admin;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Admin) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
