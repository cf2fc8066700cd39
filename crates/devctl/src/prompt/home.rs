//! The prompt for the home of a new server.

use std::fmt;

use inquire::Text;
use kube::ResourceExt as _;
use odc_api::quantity::Quantity;

use super::select;
use crate::error::{Error, Result};
use crate::model::disk::{self, DiskSummary};
use crate::model::server::ServerSummary;
use crate::output::sanitize;
use crate::request::args::HomeArgs;
use crate::ui::prompt_error;

/// A home that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeOption {
    Disk {
        name: String,
        size: String,
        user: Option<String>,
    },
    /// The default disk, which does not exist yet.
    DefaultDisk {
        name: String,
        size: String,
    },
    NewDisk,
    Ephemeral,
    Cancel,
}

impl fmt::Display for HomeOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { name, size, user: None } => write!(f, "disk {}  {size}", sanitize(name)),
            Self::Disk { name, size, user: Some(user) } => {
                write!(f, "disk {}  {size}, used by server {}", sanitize(name), sanitize(user))
            }
            Self::DefaultDisk { name, size } => write!(f, "disk {name}  {size}, created now"),
            Self::NewDisk => f.write_str("create a new disk"),
            Self::Ephemeral => f.write_str("ephemeral  deleted with the server"),
            Self::Cancel => f.write_str("cancel"),
        }
    }
}

/// Returns all homes: the default disk first, disks in use last.
pub fn all(default: &str, default_size: Quantity, disks: &[DiskSummary], servers: &[ServerSummary]) -> Vec<HomeOption> {
    let mut options: Vec<HomeOption> = usable(disks, servers).collect();
    let is_default = |option: &HomeOption| matches!(option, HomeOption::Disk { name, .. } if name == default);
    match options.iter().position(is_default) {
        Some(position) => options[..=position].rotate_right(1),
        // A deleted disk has the name, and cannot be created again.
        None if disks.iter().any(|disk| disk.name_any() == default) => {}
        None => {
            let new = HomeOption::DefaultDisk { name: default.to_owned(), size: default_size.to_string() };
            options.insert(0, new);
        }
    }
    options.extend([HomeOption::NewDisk, HomeOption::Ephemeral]);
    options.sort_by_key(|option| matches!(option, HomeOption::Disk { user: Some(_), .. }));
    options
}

/// Returns the homes that can be used instead of a disk in use.
pub fn alternatives(in_use: &str, disks: &[DiskSummary], servers: &[ServerSummary]) -> Vec<HomeOption> {
    let is_free = |option: &HomeOption| match option {
        HomeOption::Disk { name, user, .. } => user.is_none() && name != in_use,
        _ => true,
    };
    let free = usable(disks, servers).filter(is_free);
    free.chain([HomeOption::NewDisk, HomeOption::Ephemeral, HomeOption::Cancel]).collect()
}

fn usable<'a>(disks: &'a [DiskSummary], servers: &'a [ServerSummary]) -> impl Iterator<Item = HomeOption> + 'a {
    disks.iter().filter(|disk| disk::unusable(disk).is_none()).map(|disk| HomeOption::Disk {
        name: disk.name_any(),
        size: disk.spec.size.to_string(),
        user: disk::find_user(disk, servers, None),
    })
}

/// Prompts for one of several homes.
pub fn ask(question: &str, options: Vec<HomeOption>, disks: &[DiskSummary]) -> Result<HomeArgs> {
    let none = HomeArgs::default();
    Ok(match select(question, options)?.1 {
        HomeOption::Disk { name, .. } => HomeArgs { disk: Some(name), ..none },
        HomeOption::DefaultDisk { name, .. } => HomeArgs { new_disk: Some(disk::parse_new_name(&name)?), ..none },
        HomeOption::NewDisk => {
            let prompt = Text::new("Disk name?").with_default(&free_name(disks)).prompt();
            let typed = prompt.map_err(|error| prompt_error(&error))?;
            HomeArgs { new_disk: Some(disk::parse_new_name(typed.trim())?), ..none }
        }
        HomeOption::Ephemeral => HomeArgs { ephemeral: true, ..none },
        HomeOption::Cancel => return Err(Error::interrupted("aborted")),
    })
}

/// Returns `home`, or the first of `home-2`, `home-3` and so on that no disk has.
fn free_name(disks: &[DiskSummary]) -> String {
    let is_free = |name: &String| disks.iter().all(|disk| disk.name_any() != *name);
    let default = disk::DEFAULT_NAME;
    let mut names = std::iter::once(default.to_owned()).chain((2..).map(|number| format!("{default}-{number}")));
    names.find(is_free).unwrap_or_else(|| default.to_owned())
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Home, Phase};

    use super::*;

    fn disk(name: &str) -> DiskSummary {
        DiskSummary::test(name, "20Gi")
    }

    fn labels(options: &[HomeOption]) -> Vec<String> {
        options.iter().map(ToString::to_string).collect()
    }

    fn server_on_home() -> ServerSummary {
        let mut server = DevServer::test().named("box").in_phase(Phase::Running);
        server.spec.home = Home::Disk("home".parse().unwrap());
        ServerSummary::try_from(&server).unwrap()
    }

    #[test]
    fn default_disk_is_first_even_if_it_does_not_exist() {
        let size = "20Gi".parse().unwrap();
        let new = all("home", size, &[disk("data")], &[]);
        assert_eq!(
            labels(&new),
            [
                "disk home  20Gi, created now",
                "disk data  20Gi",
                "create a new disk",
                "ephemeral  deleted with the server"
            ]
        );
        let existing = all("home", size, &[disk("data"), disk("home")], &[server_on_home()]);
        assert_eq!(labels(&existing)[0], "disk data  20Gi");
        assert_eq!(labels(&existing)[3], "disk home  20Gi, used by server box");
        let free = all("home", size, &[disk("data"), disk("home")], &[]);
        assert_eq!(labels(&free)[..2], ["disk home  20Gi", "disk data  20Gi"]);
        let mut deleted = disk("home");
        deleted.spec.deleted = true;
        assert_eq!(labels(&all("home", size, &[deleted], &[]))[0], "create a new disk");
    }

    #[test]
    fn alternatives_are_free_and_can_be_cancelled() {
        let options = alternatives("home", &[disk("data"), disk("home")], &[server_on_home()]);
        let expected = ["disk data  20Gi", "create a new disk", "ephemeral  deleted with the server", "cancel"];
        assert_eq!(labels(&options), expected);
    }

    #[test]
    fn suggested_name_is_free() {
        assert_eq!(free_name(&[]), "home");
        assert_eq!(free_name(&[disk("home"), disk("home-2")]), "home-3");
    }
}
