//! PostgreSQL on a data directory of its own: made once, served, and a plain role with its database.

use std::path::{Path, PathBuf};

use super::Blueprint;
use crate::part::{Ending, Part, TextFile};
use crate::probe::Probe;

/// The one database and the role that owns it.
pub const DATABASE: &str = "odc";

impl Blueprint {
    pub(crate) fn database(&self) -> Vec<Part> {
        vec![self.database_directory(), self.postgres(), self.database_role()]
    }

    pub fn database_url(&self) -> anyhow::Result<String> {
        let password = std::fs::read_to_string(self.layout.database_password())?;
        Ok(format!("postgres://{DATABASE}:{}@{}/{DATABASE}", password.trim(), self.at(self.settings.ports.postgres)))
    }

    /// `initdb` into a directory that gets its name only when it is complete.
    fn database_directory(&self) -> Part {
        let data = self.layout.postgres();
        let script = format!(
            "set -e\n\
             [ -e '{data}' ] && exit 0\n\
             rm -rf '{data}.new'\n\
             install -d -m 700 '{data}.new'\n\
             {own}\
             {as_server} {programs}/initdb --pgdata='{data}.new' --username=postgres --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8\n\
             mv '{data}.new' '{data}'\n",
            data = data.display(),
            own = if runs_as_root() { format!("chown postgres: '{}.new'\n", data.display()) } else { String::new() },
            as_server = as_server().join(" "),
            programs = self.postgres_programs.display(),
        );
        Part::new("database-directory").command(["sh", "-c"]).command([script]).cgroup(self.control_cgroup())
    }

    fn postgres(&self) -> Part {
        let (host, port) = (self.settings.network.host(), self.settings.ports.postgres);
        let access = format!(
            "# The administrator comes by the socket in the private data directory, everybody else with a password.\n\
             local all all trust\n\
             host all all {host}/32 scram-sha-256\n\
             host all all {} scram-sha-256\n",
            self.settings.network.whole(),
        );
        let access_file = self.config("pg_hba.conf");
        let data = self.layout.postgres();
        Part::new("postgres")
            .needs("database-directory")
            .wrapper(as_server())
            .command([
                self.postgres_programs.join("postgres").display().to_string(),
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
            .command([format!("--hba_file={}", access_file.display())])
            .file(access_file, access)
            .ending(Ending::Interrupt { seconds: 20 })
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

    fn database_role(&self) -> Part {
        // The password is random and hexadecimal, so quoting it is safe.
        let script = format!(
            "SELECT 'CREATE ROLE {DATABASE} LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{DATABASE}') \\gexec\n\
             \\set password `cat '{password}'`\n\
             ALTER ROLE {DATABASE} PASSWORD :'password';\n\
             SELECT 'CREATE DATABASE {DATABASE} OWNER {DATABASE}' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec\n",
            password = self.layout.database_password().display(),
        );
        let file = self.config("database.sql");
        let mut part = Part::new("database")
            .needs("postgres")
            .command(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"])
            .command([
                self.layout.postgres().display().to_string(),
                "-p".into(),
                self.settings.ports.postgres.to_string(),
                "-f".into(),
                file.display().to_string(),
            ])
            .cgroup(self.control_cgroup());
        part.files.push(TextFile { path: file, text: script, mode: 0o600 });
        part
    }
}

/// PostgreSQL refuses to be root. Its own user may not be able to walk to a state directory in root's home, so it
/// keeps the one capability for that.
fn as_server() -> Vec<String> {
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

/// Where Debian keeps the newest server's programs; they are not on `PATH`.
pub fn find_programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    newest.map_or_else(PathBuf::new, |version| format!("/usr/lib/postgresql/{version}/bin").into())
}

/// Makes the role's password once.
pub fn ensure_password(path: &Path) -> anyhow::Result<()> {
    use rand::Rng as _;
    if path.exists() {
        return Ok(());
    }
    let mut bytes = [0u8; 24];
    rand::rng().fill_bytes(&mut bytes);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    TextFile { path: path.into(), text: text + "\n", mode: 0o600 }.write()
}
