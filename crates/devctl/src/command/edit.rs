//! `devctl edit`: who gets in and by which doors, for how long, what happens when nobody is there.

mod ask;

use odc_api::v1alpha1::DevServer;
use serde_json::{Map, Value, json};

use super::extend::{self, Wish};
use crate::app::App;
use crate::args::Edit;
use crate::failure::{Failure, Kind, Result};
use crate::find;
use crate::glance::Glance;
use crate::reserve;
use crate::view;

/// How often somebody else may come first.
const ATTEMPTS: usize = 3;

pub async fn run(app: &App, mut args: Edit) -> Result<()> {
    let server = find::server(app, args.server.name.as_deref()).await?;
    if let Some(failure) = find::not_reachable(&server) {
        return Err(failure);
    }
    if !says_anything(&args) {
        if !app.talk.can_ask() {
            return Err(Failure::usage("nothing to change was said")
                .advise("Say what: --extend 2h, --add-user NAME, --enable-jupyter; devctl edit --help lists all."));
        }
        ask::what(&server, &mut args)?;
    }
    let name = server.name();
    let (mut after, words) = change(app, name, &args).await?;
    for word in &words {
        app.talk.say(word);
    }
    if args.trial.dry_run {
        app.talk.say("Nothing was changed.");
    }
    let wish = args.extend.map(Wish::By).or(args.lifetime.map(Wish::Total));
    if let Some(wish) = wish {
        let extended = extend::extend(app, after.as_ref().unwrap_or(&server), wish, args.trial.dry_run).await?;
        if !args.trial.dry_run {
            app.talk.say(extend::granted(&extended, jiff::Timestamp::now()));
        }
        after = Some(extended);
    }
    view::changed(&app.out, &after.unwrap_or(server))
}

fn says_anything(args: &Edit) -> bool {
    let Edit {
        server: _,
        enable_jupyter,
        disable_jupyter,
        add_users,
        remove_users,
        add_keys,
        remove_keys,
        extend,
        lifetime,
        add_ports,
        remove_ports,
        idle,
        idle_action,
        priority,
        trial: _,
    } = args;
    let lists =
        [add_users.len(), remove_users.len(), add_keys.len(), remove_keys.len(), add_ports.len(), remove_ports.len()];
    *enable_jupyter
        || *disable_jupyter
        || extend.is_some()
        || lifetime.is_some()
        || idle.is_some()
        || idle_action.is_some()
        || priority.is_some()
        || lists.iter().any(|length| *length > 0)
}

/// Reads, changes and writes, only if nobody else wrote in between; otherwise again. Gives the server if it was written.
async fn change(app: &App, name: &str, args: &Edit) -> Result<(Option<Glance>, Vec<String>)> {
    for attempt in 1.. {
        let Some(server) = app.backend.get(name).await? else {
            return Err(
                Failure::not_found(format!("{name} was deleted meanwhile")).advise("devctl list shows what you have.")
            );
        };
        let (patch, words) = patch(&server, args)?;
        if patch.is_empty() {
            return Ok((None, words));
        }
        let version = server.metadata.resource_version.as_deref();
        match app.backend.change(name, json!({"spec": patch}), version, args.trial.dry_run).await {
            Err(failure) if failure.kind == Kind::Conflict && attempt < ATTEMPTS => {}
            outcome => {
                app.talk.step("changing the server");
                return outcome.map(|after| (Some(after), words));
            }
        }
    }
    Ok((None, Vec::new()))
}

/// What of the spec changes, and how that is said. What is so already is said and not written.
fn patch(server: &DevServer, args: &Edit) -> Result<(Map<String, Value>, Vec<String>)> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let (mut access, mut words) = (server.spec.access.clone(), Vec::new());
    if args.enable_jupyter || args.disable_jupyter {
        access.jupyter = args.enable_jupyter;
        words.push(format!("{name} {} Jupyter Lab.", if access.jupyter { "starts" } else { "stops" }));
    }
    for user in &args.add_users {
        if !access.users.contains(user) {
            access.users.push(user.clone());
        }
        words.push(format!("{user} may come in. {}", reserve::ABOUT_GUESTS));
    }
    for user in &args.remove_users {
        if !access.users.contains(user) {
            return Err(Failure::not_found(format!("{user} is not among those let into {name}"))
                .advise("devctl show lists them."));
        }
        access.users.retain(|known| known != user);
        words.push(format!("{user} may come in no longer."));
    }
    for path in &args.add_keys {
        let key = reserve::key_file(path)?;
        words.push(format!("The key {} may come in.", key.comment().unwrap_or("without a comment")));
        if !access.keys.contains(&key) {
            access.keys.push(key);
        }
    }
    for typed in &args.remove_keys {
        let before = access.keys.len();
        let file = reserve::key_file(std::path::Path::new(typed)).ok();
        access.keys.retain(|key| file.as_ref() != Some(key) && key.comment() != Some(typed.as_str()));
        if access.keys.len() == before {
            return Err(Failure::not_found(format!("{typed} is none of the keys of {name}")).advise(format!(
                "devctl show {name} -o json lists them (access.keys); name a .pub file or a key's comment."
            )));
        }
        words.push(format!("The key {typed} may come in no longer."));
    }
    for door in &args.add_ports {
        access.ports.retain(|port| port.name != door.name);
        access.ports.push(reserve::port(door));
        words.push(format!("Port {} is offered as {}.", door.port, door.name));
    }
    for port in &args.remove_ports {
        if !access.ports.iter().any(|known| known.name == *port) {
            return Err(Failure::not_found(format!("{name} offers no port {port}")).advise("devctl show lists them."));
        }
        access.ports.retain(|known| known.name != *port);
        words.push(format!("{port} is offered no longer."));
    }
    let mut patch = Map::new();
    if access != server.spec.access {
        // Lists are replaced as a whole, so what became empty must be said too.
        let value =
            json!({"keys": access.keys, "users": access.users, "jupyter": access.jupyter, "ports": access.ports});
        patch.insert("access".into(), value);
    }
    let mut idle = server.spec.idle.clone();
    idle.timeout = args.idle.unwrap_or(idle.timeout);
    idle.action = args.idle_action.map_or(idle.action, reserve::idle_action);
    if idle != server.spec.idle {
        words.push(format!("After {} without use: {:?}.", idle.timeout, idle.action));
        patch.insert("idle".into(), json!(idle));
    }
    if let Some(priority) = args.priority.map(reserve::priority)
        && server.spec.scheduling.priority != Some(priority)
    {
        words.push(format!("Its priority is {priority:?}."));
        patch.insert("scheduling".into(), json!({"priority": priority}));
    }
    Ok((patch, words))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn typed(words: &str) -> Edit {
        let words = ["devctl", "edit", "box"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).unwrap().verb {
            Verb::Edit(edit) => *edit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_so_already_is_not_written() {
        let mut server = DevServer::test();
        server.spec.access.users = vec!["bob".parse().unwrap()];
        let (patch, words) = patch(&server, &typed("--add-user bob")).unwrap();
        assert!(patch.is_empty() && words[0].starts_with("bob may come in."), "{words:?}");
    }

    #[test]
    fn a_list_that_became_empty_is_said() {
        let mut server = DevServer::test();
        server.spec.access.users = vec!["bob".parse().unwrap()];
        let (patch, _) = patch(&server, &typed("--remove-user bob")).unwrap();
        assert_eq!(patch["access"]["users"], json!([]));
    }

    #[test]
    fn a_port_is_replaced_by_its_name() {
        let server = DevServer::test();
        let (first, _) = patch(&server, &typed("--add-port app=8000")).unwrap();
        let mut changed = server.clone();
        changed.spec.access = serde_json::from_value(first["access"].clone()).unwrap();
        let (second, _) = patch(&changed, &typed("--add-port app=9000:public")).unwrap();
        assert_eq!(second["access"]["ports"], json!([{"name": "app", "port": 9000, "share": "Public"}]));
    }

    #[test]
    fn who_is_not_there_cannot_be_taken_away() {
        let failure = patch(&DevServer::test(), &typed("--remove-user bob")).unwrap_err();
        assert_eq!(failure.kind, Kind::NotFound);
        assert_eq!(patch(&DevServer::test(), &typed("--remove-port app")).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn a_name_alone_says_nothing() {
        assert!(!says_anything(&typed("")) && !says_anything(&typed("--dry-run")));
        for words in
            ["--enable-jupyter", "--idle 1h", "--priority low", "--extend 2h", "--remove-key x", "--add-port a=1"]
        {
            assert!(says_anything(&typed(words)), "{words}");
        }
    }
}
