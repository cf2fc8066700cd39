//! PostgreSQL with its own data directory, the unprivileged roles of ODC and one database.

use std::path::{Path, PathBuf};

use super::Blueprint;
use crate::component::{Component, ConfigFile, StopSignal};
use crate::layout::Layout;
use crate::probe::Probe;

/// Name of the database. Earlier versions had a role of the same name that owned it.
const DATABASE: &str = "odc";

/// The statement that an administrator of any other database server executes. It creates the roles without a password.
const ROLES_SQL: &str = include_str!("../../../store/src/roles.sql");

/// An unprivileged role of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseRole {
    /// Owns the database and its schema.
    Migrator,
    Api,
    Worker,
    /// Reads everything but the hashes of keys.
    Auditor,
}

impl DatabaseRole {
    pub const ALL: [Self; 4] = [Self::Migrator, Self::Api, Self::Worker, Self::Auditor];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Migrator => "odc_migrator",
            Self::Api => "odc_api",
            Self::Worker => "odc_worker",
            Self::Auditor => "odc_auditor",
        }
    }
}

impl Blueprint {
    pub(crate) fn database(&self) -> Vec<Component> {
        vec![self.database_directory(), self.postgres(), self.database_roles()]
    }

    /// Returns the URL of the database for a role, with its password.
    pub fn database_url(&self, role: DatabaseRole) -> anyhow::Result<String> {
        let password = std::fs::read_to_string(self.layout.database_password(role))?;
        Ok(format!(
            "postgres://{}:{}@{}/{DATABASE}",
            role.as_str(),
            password.trim(),
            self.host_port(self.settings.ports.postgres)
        ))
    }

    /// Runs `initdb` in a temporary directory that is renamed when it is complete.
    fn database_directory(&self) -> Component {
        let data = self.layout.postgres();
        let script = format!(
            "set -e\n\
             [ -e '{data}' ] && exit 0\n\
             rm -rf '{data}.new'\n\
             install -d -m 700 '{data}.new'\n\
             {chown}\
             {as_postgres} {bin}/initdb --pgdata='{data}.new' --username=postgres --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8\n\
             mv '{data}.new' '{data}'\n",
            data = data.display(),
            chown = if runs_as_root() { format!("chown postgres: '{}.new'\n", data.display()) } else { String::new() },
            as_postgres = as_postgres().join(" "),
            bin = self.postgres_bin.display(),
        );
        Component::new("database-directory").command(["sh", "-c"]).command([script]).cgroup(self.control_cgroup())
    }

    fn postgres(&self) -> Component {
        let (host, port) = (self.settings.network.host_ip(), self.settings.ports.postgres);
        let hba = format!(
            "# The administrator connects through the socket in the private data directory, all other users with a password.\n\
             local all all trust\n\
             host all all {host}/32 scram-sha-256\n\
             host all all {} scram-sha-256\n",
            self.settings.network.cidr(),
        );
        let hba_file = self.config_path("pg_hba.conf");
        let data = self.layout.postgres();
        Component::new("postgres")
            .depends_on("database-directory")
            .wrapper(as_postgres())
            .command([
                self.postgres_bin.join("postgres").display().to_string(),
                "-D".into(),
                data.display().to_string(),
            ])
            .command([
                "-h".to_owned(),
                host.to_string(),
                "-p".to_owned(),
                port.to_string(),
                "-k".to_owned(),
                data.display().to_string(),
            ])
            .command([format!("--hba_file={}", hba_file.display())])
            .file(hba_file, hba)
            .stop_signal(StopSignal::Interrupt { seconds: 20 })
            .cgroup(self.control_cgroup())
            .ready(Probe::Command(vec![
                "pg_isready".into(),
                "-q".into(),
                "-h".into(),
                host.to_string(),
                "-p".into(),
                port.to_string(),
            ]))
    }

    /// Creates the roles and the database. A database of an earlier version changes its owner.
    fn database_roles(&self) -> Component {
        let owner = DatabaseRole::Migrator.as_str();
        let mut script = format!("BEGIN;\n{ROLES_SQL}");
        for role in DatabaseRole::ALL {
            let (name, password) = (role.as_str(), self.layout.database_password(role));
            // Passwords are hexadecimal and need no escaping.
            script += &format!("\\set password `cat '{}'`\n", password.display());
            script += &format!("ALTER ROLE {name} LOGIN PASSWORD :'password';\n");
        }
        script += &format!(
            "COMMIT;\n\
             SELECT 'CREATE DATABASE {DATABASE} OWNER {owner}' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec\n\
             \\connect {DATABASE}\n\
             SELECT 'REASSIGN OWNED BY {DATABASE} TO {owner}; DROP OWNED BY {DATABASE}; DROP ROLE {DATABASE}'\n\
             WHERE EXISTS (SELECT FROM pg_roles WHERE rolname = '{DATABASE}') \\gexec\n"
        );
        let file = self.config_path("database.sql");
        let mut component = Component::new("database")
            .depends_on("postgres")
            .command(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"])
            .command([
                self.layout.postgres().display().to_string(),
                "-p".into(),
                self.settings.ports.postgres.to_string(),
                "-f".into(),
                file.display().to_string(),
            ])
            .cgroup(self.control_cgroup());
        component.files.push(ConfigFile { path: file, text: script, mode: 0o600 });
        component
    }
}

/// Returns the wrapper that runs PostgreSQL as its own user, because it refuses to run as root. The capability lets that
/// user reach a state directory in root's home.
fn as_postgres() -> Vec<String> {
    if !runs_as_root() {
        return Vec::new();
    }
    [
        "setpriv",
        "--reuid=postgres",
        "--regid=postgres",
        "--clear-groups",
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
        "--",
    ]
    .map(Into::into)
    .to_vec()
}

fn runs_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the directory of the newest server on Debian, whose programs are not in `PATH`.
pub fn find_postgres_bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    newest.map_or_else(PathBuf::new, |version| format!("/usr/lib/postgresql/{version}/bin").into())
}

/// Creates the passwords of the roles that do not exist.
pub fn ensure_passwords(layout: &Layout) -> anyhow::Result<()> {
    DatabaseRole::ALL.into_iter().try_for_each(|role| ensure_password(&layout.database_password(role)))
}

fn ensure_password(path: &Path) -> anyhow::Result<()> {
    use rand::Rng as _;
    if path.exists() {
        return Ok(());
    }
    let mut bytes = [0u8; 24];
    rand::rng().fill_bytes(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    ConfigFile { path: path.into(), text: text + "\n", mode: 0o600 }.write()
}
