use crate::app::Desk;
use crate::args::ConfigSsh;
use crate::failure::{Failure, Result};

pub async fn run(_desk: Desk, _args: ConfigSsh) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
