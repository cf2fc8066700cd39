use crate::app::App;
use crate::args::PortForward;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: PortForward) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
