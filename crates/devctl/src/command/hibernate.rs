use crate::app::App;
use crate::args::Hibernate;
use crate::failure::{Failure, Result};

pub async fn run(_app: &App, _args: Hibernate) -> Result<()> {
    Err(Failure::failed("this command is not built yet"))
}
