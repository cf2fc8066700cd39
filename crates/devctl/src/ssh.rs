//! Into a server with the person's own OpenSSH: devctl brings the connection, the keys and the host key; OpenSSH does
//! the rest, so that everything people know of it works.

pub mod arrive;
pub mod carry;
pub mod client;
pub mod config_file;
pub mod host;
pub mod identity;
pub mod known_hosts;
pub mod openssh;
pub mod places;
pub mod quote;
mod refusal;
pub mod route;
pub mod stdio;
pub mod tunnel;

use odc_api::ssh_key::PublicKey;

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::glance::Glance;
use identity::Identity;
use places::Places;

/// The keys that should be let into a server this person creates: their own, or one made for them after a question.
pub async fn keys_of_person(app: &App) -> Result<Vec<PublicKey>> {
    let places = places()?;
    let named = route::named_identity(&app.settings, None);
    let found = identity::find(&places, named.as_deref()).await.map_err(|error| no_key(&error))?;
    if !found.is_empty() {
        return Ok(public(&found));
    }
    let question =
        format!("You have no SSH key of the kind that servers take (ed25519). Make one, {}?", places.key().display());
    if !app.talk.confirm(&question, "--yes, or name a key with --ssh-public-key-file")? {
        return Err(Failure::usage("without a key nobody can get into the server")
            .advise("Name one with --ssh-public-key-file, or make one: ssh-keygen -t ed25519"));
    }
    let made = identity::make(&places, &comment(app)).await.map_err(|error| no_key(&error))?;
    app.talk.say(format!("Made an SSH key: {}", places.key().display()));
    let change = config_file::with_key(&places, &places.key())
        .and_then(|change| if change.is_needed() { config_file::apply(&change) } else { Ok(()) });
    change.map_err(|error| Failure::failed(crate::failure::chain(&error)))?;
    Ok(vec![made.public])
}

/// A server that is gone, or will be, has no host key any more: its next namesake has another.
pub fn forget(server: &Glance) -> std::result::Result<(), known_hosts::Error> {
    let Ok(places) = places() else { return Ok(()) };
    let hosts: Vec<String> = (0..server.nodes()).map(|node| host::Host::new(server.name(), node).alias()).collect();
    known_hosts::forget(&places.known_hosts(), &hosts)
}

/// The directory of ours among the person's.
pub fn places() -> Result<Places> {
    let home =
        etcetera::home_dir().map_err(|_| Failure::failed("your home directory is not known").advise("Set HOME."))?;
    Ok(Places::of(&home))
}

/// Keys in files come first; those of an agent count only where there are none, because agents hold keys for much else.
fn public(found: &[Identity]) -> Vec<PublicKey> {
    let of = |in_file: bool| {
        let fitting = found.iter().filter(move |identity| identity.file().is_some() == in_file);
        fitting.map(|identity| identity.public.clone()).collect::<Vec<_>>()
    };
    let files = of(true);
    if files.is_empty() { of(false) } else { files }
}

/// Who made it and where, so that people know it again in a list.
fn comment(app: &App) -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |text: &str| text.chars().filter(char::is_ascii_graphic).take(60).collect::<String>();
    format!("{}@{}", plain(app.login()), plain(&machine))
}

fn no_key(error: &identity::Error) -> Failure {
    Failure::failed(crate::failure::chain(error))
        .advise("Or name another key: devctl config set ssh.identityFile PATH.")
}
