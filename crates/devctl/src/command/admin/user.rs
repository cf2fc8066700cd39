//! `devctl admin user`.

use std::io::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{of_flavors, print, put, quota, ready, remove, text};
use crate::app::App;
use crate::args::{AdminUser, Ceiling, NewUser, Role};
use crate::backend::{Kind, Login};
use crate::failure::{Failure, Result};
use crate::output::time::{clock, left};
use crate::output::{Column, Table};
use crate::reserve::{key_file, priority};

pub(super) async fn run(app: &App, verb: AdminUser) -> Result<()> {
    match verb {
        AdminUser::Create(args) => put(app, Kind::User, args.name.as_str(), spec(&args)?, args.trial.dry_run).await,
        AdminUser::List => {
            let users = app.backend.objects(Kind::User).await?;
            print(app, &users, || table(&users), "There are no users. devctl admin user create NAME makes one.")
        }
        AdminUser::Delete { name, trial } => {
            let consequence = "Rights and servers go; claims and disks stay.";
            remove(app, Kind::User, name.as_str(), trial.dry_run, consequence).await
        }
        AdminUser::Kubeconfig { name, duration, file } => {
            let Login { kubeconfig, until } = app.backend.kubeconfig(name.as_str(), duration.into()).await?;
            match &file {
                None => app.out.print(&kubeconfig)?,
                Some(path) => write_private(path, &kubeconfig)?,
            }
            let it = file.as_ref().map_or_else(|| "It".to_owned(), |path| path.display().to_string());
            let now = Timestamp::now();
            app.talk.say(format!(
                "{it} lets {name} in until {} ({}). It holds a secret: give it to nobody else.",
                clock(until, now),
                left(until, now)
            ));
            Ok(())
        }
    }
}

fn spec(args: &NewUser) -> Result<Map<String, Value>> {
    let mut spec = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec.insert(name.to_owned(), value);
        }
    };
    put("displayName", args.display.as_ref().map(|text| json!(text)));
    put("github", args.github.as_ref().map(|name| json!(name)));
    put("role", args.role.map(|role| json!(role_word(role))));
    let keys = args.keys.iter().map(|path| key_file(path)).collect::<Result<Vec<_>>>()?;
    put("keys", (!keys.is_empty()).then(|| json!(keys)));
    let mut defaults = Map::new();
    defaults.extend(args.default_flavor.as_ref().map(|flavor| ("flavor".to_owned(), json!(flavor))));
    defaults.extend(args.default_image.as_ref().map(|image| ("image".to_owned(), json!(image))));
    put("defaults", (!defaults.is_empty()).then_some(Value::Object(defaults)));
    put("weight", args.weight.map(|weight| json!(weight)));
    put("priorityCeiling", args.priority_ceiling.map(|Ceiling(most)| json!(most.map(priority))));
    let quota = quota(&args.quota)?;
    put("quota", (!quota.is_empty()).then_some(Value::Object(quota)));
    Ok(spec)
}

const fn role_word(role: Role) -> &'static str {
    match role {
        Role::User => "User",
        Role::Admin => "Admin",
        Role::Auditor => "Auditor",
    }
}

fn table(users: &[Value]) -> Table {
    let mut table = Table::new([
        Column::new("NAME"),
        Column::new("ROLE"),
        Column::new("NAMESPACE").spare(3),
        Column::new("TEAMS").spare(4),
        Column::new("DEVICES").spare(5),
        Column::new("READY").spare(1).elastic(),
        Column::new("OF FLAVORS").wide(),
        Column::new("WEIGHT").wide(),
        Column::new("UP TO").wide(),
        Column::new("DISPLAY").wide(),
        Column::new("GITHUB").wide(),
    ]);
    for user in users {
        let teams = user.pointer("/status/teams").and_then(Value::as_array).into_iter().flatten();
        let teams: Vec<&str> = teams.filter_map(Value::as_str).collect();
        table.row([
            text(user, "/metadata/name").into(),
            text(user, "/spec/role").into(),
            text(user, "/status/namespace").into(),
            teams.join(",").into(),
            text(user, "/spec/quota/devices").into(),
            ready(user).into(),
            of_flavors(user).into(),
            text(user, "/spec/weight").into(),
            text(user, "/spec/priorityCeiling").into(),
            text(user, "/spec/displayName").into(),
            text(user, "/spec/github").into(),
        ]);
    }
    table
}

/// A token is for one person's eyes.
fn write_private(path: &std::path::Path, content: &str) -> Result<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let written = (|| {
        let mut file = std::fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(path)?;
        // One that was there before keeps its mode otherwise.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(content.as_bytes())
    })();
    written.map_err(|error| {
        Failure::failed(format!("{} cannot be written: {error}", path.display()))
            .advise("Name another file with --file.")
    })
}
