//! A PostgreSQL server for one test.
//!
//! Every test has its own server, so that it can crash it, count its commits and change its settings. `initdb` and the
//! migrations take seconds, because they wait for the disk: the first test of a clone does them once, and every test starts
//! with a copy of the data directory. A new database on a shared server would take longer, since the server writes all of
//! its data to the disk when one is dropped. The directories are in memory if there is enough: writing the copies to the
//! disk would take most of the time, and tests crash processes, not the machine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use odc_local::ephemeral::EphemeralDatabase;
use odc_store::projection::Writer;
use odc_store::{Settings, Store, migrate};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::cleanup::with_cleanup;
use crate::{shared_cluster, wait};

pub use odc_local::ephemeral::DatabaseRole;

const RESTART_TIMEOUT: Duration = Duration::from_secs(30);
const SHARED_MEMORY: &str = "/dev/shm";
/// Bytes. A database has some 60 MB, and several tests run at a time.
const MIN_SHARED_MEMORY: u64 = 1 << 30;

/// A server with one database.
#[derive(Debug)]
pub struct Database {
    urls: Vec<(DatabaseRole, String)>,
    /// Connects as the administrator of the server.
    pub administrator_url: String,
    pid_file: PathBuf,
}

impl Database {
    fn new(server: &EphemeralDatabase) -> anyhow::Result<Self> {
        let url = |role| anyhow::Ok((role, server.database_url(role)?));
        Ok(Self {
            urls: DatabaseRole::ALL.into_iter().map(url).collect::<Result<_, _>>()?,
            administrator_url: server.administrator_url(),
            pid_file: server.pid_file(),
        })
    }

    /// Returns the URL of the database for a role.
    pub fn url(&self, role: DatabaseRole) -> &str {
        self.urls.iter().find(|(other, _)| *other == role).map_or("", |(_, url)| url)
    }

    /// Returns settings for connections of a role.
    pub fn settings(&self, role: DatabaseRole) -> anyhow::Result<Settings> {
        Ok(Settings::from_url(self.url(role), "odc-tests")?)
    }

    /// Returns a pool of connections of a role.
    pub fn store(&self, role: DatabaseRole) -> anyhow::Result<Store> {
        Ok(Store::new(&self.settings(role)?))
    }

    /// Returns the right to write the projection, as the worker has it.
    pub async fn writer(&self) -> anyhow::Result<Writer> {
        let writer = self.store(DatabaseRole::Worker)?.try_become_writer().await?;
        writer.context("another worker writes the projection")
    }

    /// Stops the server as a crash does, without a checkpoint, and waits until the next one accepts connections.
    pub async fn crash(&self) -> anyhow::Result<()> {
        let pid = self.pid()?;
        let process = rustix::process::Pid::from_raw(pid).context("invalid process id")?;
        // An immediate shutdown: after SIGKILL, child processes of the server would run for a while.
        rustix::process::kill_process(process, rustix::process::Signal::QUIT)?;
        let store = self.store(DatabaseRole::Migrator)?;
        wait::until("restart of PostgreSQL", RESTART_TIMEOUT, async || {
            anyhow::ensure!(self.pid()? != pid, "the old server is running");
            Ok(store.ping().await?)
        })
        .await
    }

    fn pid(&self) -> anyhow::Result<i32> {
        let text = std::fs::read_to_string(&self.pid_file)?;
        text.lines().next().unwrap_or_default().parse().context("parsing the process id of PostgreSQL")
    }
}

/// Provides a server with an empty database.
pub async fn with_database<T>(test: impl AsyncFnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
    run(Template::Empty, test).await
}

/// Provides a server whose database has the current schema.
pub async fn with_migrated_database<T>(test: impl AsyncFnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
    run(Template::Migrated, test).await
}

async fn run<T>(template: Template, test: impl AsyncFnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::init();
    let directory = temporary_directory()?;
    copy(&template.ensure().await?, directory.path()).await?;
    start(directory.path(), test).await
}

async fn start<T>(directory: &Path, test: impl AsyncFnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let server = EphemeralDatabase::start(directory).await?;
    let database = Database::new(&server)?;
    with_cleanup(test(&database), async || server.stop().await).await
}

/// A state directory that tests copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Template {
    Empty,
    Migrated,
}

impl Template {
    /// Returns the directory, which the first test that needs it creates.
    async fn ensure(self) -> anyhow::Result<PathBuf> {
        let lock = File::create(temporary_path("lock"))?;
        // Waits while another test creates a template.
        let _lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;
        let empty = temporary_path("empty");
        if !empty.exists() {
            create(&empty, None, async |_| Ok(())).await?;
        }
        if self == Self::Empty {
            return Ok(empty);
        }
        let migrated = temporary_path(&format!("migrated-{}", schema_hash()?));
        if !migrated.exists() {
            create(&migrated, Some(&empty), async |database| {
                migrate::migrate(&database.settings(DatabaseRole::Migrator)?).await?;
                Ok(())
            })
            .await?;
        }
        Ok(migrated)
    }
}

/// Creates a template. It is renamed when it is complete.
async fn create(
    template: &Path,
    from: Option<&Path>,
    prepare: impl AsyncFnOnce(&Database) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let directory = temporary_directory()?;
    if let Some(from) = from {
        copy(from, directory.path()).await?;
    }
    start(directory.path(), prepare).await?;
    std::fs::rename(directory.keep(), template).with_context(|| format!("creating {}", template.display()))
}

/// Copies the data and the passwords.
async fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command = tokio::process::Command::new("cp");
    command.args(["-a", "--reflink=auto"]).arg(from.join("postgres")).arg(from.join("pki")).arg(to);
    let output = command.output().await?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns a hash of everything that defines the schema.
fn schema_hash() -> anyhow::Result<String> {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store");
    let files = |directory: PathBuf| anyhow::Ok(std::fs::read_dir(directory)?.flatten().map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = files(store.join("migrations"))?.chain(files(store.join("src"))?).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    paths.sort();
    // Contains the version of PGMQ.
    paths.push(store.join("Cargo.toml"));
    let mut hash = Sha256::new();
    for path in paths {
        hash.update(std::fs::read(path)?);
    }
    Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a path that `./dev test` removes at its end.
fn temporary_path(name: &str) -> PathBuf {
    directory().join(format!("{}database-{name}", shared_cluster::temporary_directory_prefix()))
}

fn temporary_directory() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix(&shared_cluster::temporary_directory_prefix()).tempdir_in(directory())?)
}

/// Returns the parent of all directories of databases.
pub fn directory() -> PathBuf {
    let free = rustix::fs::statvfs(SHARED_MEMORY).map_or(0, |status| status.f_bavail * status.f_frsize);
    if free >= MIN_SHARED_MEMORY { SHARED_MEMORY.into() } else { std::env::temp_dir() }
}
