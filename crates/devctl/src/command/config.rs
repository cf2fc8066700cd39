use crate::app::Desk;
use crate::args::Config;
use crate::failure::{Failure, Result};

pub async fn run(_desk: Desk, _args: Config) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
