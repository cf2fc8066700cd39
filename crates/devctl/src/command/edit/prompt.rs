//! The prompts of `devctl edit` without flags.

use std::fmt;

use inquire::Text;
use odc_api::name::UserName;

use super::EditArgs;
use crate::error::{Error, Result};
use crate::model::server::ServerSummary;
use crate::prompt::{duration, select};
use crate::ui::prompt_error;

enum EditOption {
    Extend,
    Jupyter(bool),
    AddUser,
    RemoveUser,
}

impl fmt::Display for EditOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Extend => "extend its lifetime",
            Self::Jupyter(true) => "start JupyterLab",
            Self::Jupyter(false) => "stop JupyterLab",
            Self::AddUser => "grant access to a user",
            Self::RemoveUser => "revoke access of a user",
        })
    }
}

/// Prompts for one change and stores it in the arguments.
pub(super) fn prompt(server: &ServerSummary, args: &mut EditArgs) -> Result<()> {
    let mut options = vec![EditOption::Extend, EditOption::Jupyter(!server.spec.access.jupyter), EditOption::AddUser];
    if !server.spec.access.users.is_empty() {
        options.push(EditOption::RemoveUser);
    }
    match select(&format!("What to change on {}?", server.name()), options)?.1 {
        EditOption::Extend => args.extend = Some(duration("Extend by?", "2h")?),
        EditOption::Jupyter(enable) => (args.enable_jupyter, args.disable_jupyter) = (enable, !enable),
        EditOption::AddUser => {
            let name = Text::new("User name?").prompt().map_err(|error| prompt_error(&error))?;
            let user = name.trim().parse::<UserName>();
            let user =
                user.map_err(|error| Error::usage(error.to_string()).with_hint("enter the name of another user"))?;
            args.add_users.push(user);
        }
        EditOption::RemoveUser => {
            let user = select("Which user?", server.spec.access.users.clone())?.1;
            args.remove_users.extend(user.parse());
        }
    }
    Ok(())
}
