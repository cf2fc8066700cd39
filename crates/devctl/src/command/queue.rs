use crate::app::App;
use crate::args::Queue;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Queue) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
