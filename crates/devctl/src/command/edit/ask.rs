//! What to change, asked on a terminal.

use std::fmt;

use inquire::{CustomType, Text};
use odc_api::duration::Duration;

use crate::args::Edit;
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use crate::pick::select;
use crate::talk::unanswered;

enum What {
    Extend,
    Jupyter(bool),
    AddUser,
    RemoveUser,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Extend => "give it more time",
            Self::Jupyter(true) => "start Jupyter Lab",
            Self::Jupyter(false) => "stop Jupyter Lab",
            Self::AddUser => "let another user in",
            Self::RemoveUser => "let a user in no longer",
        })
    }
}

pub(super) fn what(server: &Glance, args: &mut Edit) -> Result<()> {
    let mut options = vec![What::Extend, What::Jupyter(!server.spec.access.jupyter), What::AddUser];
    if !server.spec.access.users.is_empty() {
        options.push(What::RemoveUser);
    }
    match select(&format!("What about {}?", server.name()), options)?.1 {
        What::Extend => {
            let by = CustomType::<Duration>::new("By how much?")
                .with_help_message("such as 45m or 2h")
                .with_error_message("Write it like 45m or 2h.");
            args.extend = Some(by.prompt().map_err(|error| unanswered(&error))?);
        }
        What::Jupyter(on) => (args.enable_jupyter, args.disable_jupyter) = (on, !on),
        What::AddUser => {
            let name = Text::new("Whom?").prompt().map_err(|error| unanswered(&error))?;
            let user = name.trim().parse().map_err(|error| {
                Failure::usage(format!("{name:?} is no user: {error}")).advise("Give the name of another user.")
            })?;
            args.add_users.push(user);
        }
        What::RemoveUser => {
            let user = select("Whom?", server.spec.access.users.clone())?.1;
            args.remove_users.extend(user.parse());
        }
    }
    Ok(())
}
