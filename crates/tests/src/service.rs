//! The service layer on a control plane and a database of its own: `odc api` and `odc worker` as child processes, with
//! exactly the permissions of `deploy/base/service` and of their database roles.
//!
//! ```text
//! with_service(async |service| {
//!     let api = service.api().start().await?;
//!     let worker = service.worker().setting("VISIBILITY_TIMEOUT_SECONDS", "1").start().await?;
//!     service.create_user("ada").await?;
//!     let ada = service.client(&api, &service.create_key("ada", &[], "1h").await?)?;
//!     ...
//! })
//! ```

mod process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use odc_api::v1alpha1::DevServerUser;
use serde_json::json;

use crate::api_client::ApiClient;
use crate::apifault::Apifault;
use crate::certificate::LoopbackCertificate;
use crate::command::executable;
use crate::dbfault::Dbfault;
use crate::operator::{self, Operator, fast_timeouts, service_account_token, write_token_kubeconfig};
use crate::{ControlPlane, Database, DatabaseRole, manifests, user, wait, with_control_plane, with_migrated_database};

pub use process::ServiceProcess;

const NAMESPACE: &str = "odc-system";
const CERTIFICATE: &str = "api.crt";
const PRIVATE_KEY: &str = "api.key";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Provides a control plane with ODC and a migrated database. No process of ODC runs yet.
pub async fn with_service<T>(test: impl AsyncFnOnce(&Service<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_control_plane(async |plane| {
        with_migrated_database(async |database| {
            let directory = tempfile::tempdir()?;
            test(&Service::new(plane, database, directory.path()).await?).await
        })
        .await
    })
    .await
}

pub struct Service<'a> {
    pub plane: &'a ControlPlane,
    pub database: &'a Database,
    /// For logs and kubeconfigs; removed after the test.
    pub directory: PathBuf,
    /// CA certificate of the API, PEM.
    pub authority: String,
    /// Tokens of the service accounts.
    tokens: [(Role, String); 2],
}

/// A process of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Api,
    Worker,
}

impl Role {
    /// Returns the name of the subcommand.
    const fn subcommand(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Worker => "worker",
        }
    }

    const fn service_account(self) -> &'static str {
        match self {
            Self::Api => "odc-api",
            Self::Worker => "odc-worker",
        }
    }

    const fn database_role(self) -> DatabaseRole {
        match self {
            Self::Api => DatabaseRole::Api,
            Self::Worker => DatabaseRole::Worker,
        }
    }
}

impl<'a> Service<'a> {
    async fn new(plane: &'a ControlPlane, database: &'a Database, directory: &Path) -> anyhow::Result<Self> {
        let token = async |role: Role| {
            let token = user::service_account_token(&plane.client, NAMESPACE, role.service_account()).await?;
            let kubeconfig = directory.join(format!("{}.kubeconfig", role.subcommand()));
            write_token_kubeconfig(&plane.kubeconfig, &token, &kubeconfig)?;
            anyhow::Ok((role, token))
        };
        let LoopbackCertificate { authority, certificate, key } = LoopbackCertificate::create()?;
        std::fs::write(directory.join(CERTIFICATE), certificate.pem())?;
        std::fs::write(directory.join(PRIVATE_KEY), key.serialize_pem())?;
        Ok(Self {
            plane,
            database,
            directory: directory.to_owned(),
            authority,
            tokens: [token(Role::Api).await?, token(Role::Worker).await?],
        })
    }

    /// Prepares an `odc api`.
    pub fn api(&self) -> Launch<'_> {
        Launch::new(self, Role::Api)
    }

    /// Prepares an `odc worker`.
    pub fn worker(&self) -> Launch<'_> {
        Launch::new(self, Role::Worker)
    }

    /// Starts an operator with short timeouts and waits until it leads.
    pub async fn start_operator(&self, settings: &[(&str, &str)]) -> anyhow::Result<Operator> {
        let kubeconfig = self.directory.join("operator.kubeconfig");
        let token = service_account_token(&self.plane.client).await?;
        write_token_kubeconfig(&self.plane.kubeconfig, &token, &kubeconfig)?;
        let settings = [&fast_timeouts()[..], settings].concat();
        Operator::start(&kubeconfig, &self.directory, &settings).await
    }

    /// Kills the operator and starts the next one, without waiting for the Lease to expire.
    pub async fn replace_operator(&self, operator: &mut Operator) -> anyhow::Result<()> {
        operator.kill().await?;
        operator::release_lease(&self.plane.client).await?;
        *operator = self.start_operator(&[]).await?;
        Ok(())
    }

    /// Returns a client of an API process.
    pub fn client(&self, api: &ServiceProcess, credential: &str) -> anyhow::Result<ApiClient> {
        ApiClient::new(&api.url(), &self.authority, credential)
    }

    /// Creates a user with a namespace, without an operator.
    pub async fn create_user(&self, name: &str) -> anyhow::Result<()> {
        let object =
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": name}, "spec": {}});
        manifests::apply(&self.plane.client, &object).await?;
        let kubeconfig = self.directory.join(format!("{name}.kubeconfig"));
        user::create_user_without_operator(&self.plane.client, &self.plane.kubeconfig, name, &kubeconfig).await
    }

    /// Creates a user while an operator runs, and waits until the user is ready.
    pub async fn create_user_with_operator(&self, name: &str) -> anyhow::Result<()> {
        let kubeconfig = self.directory.join(format!("{name}.kubeconfig"));
        user::create_user(&self.plane.client, &self.plane.kubeconfig, name, &kubeconfig).await?;
        user::wait_ready(&self.plane.client, name).await
    }

    /// Changes the role of a user, such as to `Admin`.
    pub async fn set_role(&self, name: &str, role: &str) -> anyhow::Result<()> {
        let users: Api<DevServerUser> = Api::all(self.plane.client.clone());
        users.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"role": role}}))).await?;
        Ok(())
    }

    /// Creates an API key with `odc key create`. No scopes means all scopes; `valid_for` is a duration such as `1h`.
    pub async fn create_key(&self, user: &str, scopes: &[&str], valid_for: &str) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(executable("odc")?);
        command.args(["key", "create", "--user", user, "--valid-for", valid_for]);
        command.args(scopes.iter().flat_map(|scope| ["--scope", scope]));
        let output = command.env("DATABASE_URL", self.database.url(DatabaseRole::Api)).output().await?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Creates a key with all scopes for an existing user, and waits until an API process knows the user.
    pub async fn sign_in(&self, api: &ServiceProcess, user: &str) -> anyhow::Result<ApiClient> {
        let client = self.client(api, &self.create_key(user, &[], "1h").await?)?;
        wait::until("user known to the API", TIMEOUT, async || {
            let response = client.get("/me").await?;
            anyhow::ensure!(response.status == 200, "{} {}", response.status, response.body);
            Ok(())
        })
        .await?;
        Ok(client)
    }

    /// Returns a token of a user created by this fixture, which the API accepts as well as a key.
    pub async fn token(&self, user: &str) -> anyhow::Result<String> {
        user::service_account_token(&self.plane.client, &format!("dev-{user}"), "odc-user").await
    }
}

/// Settings of a process that is not started yet.
pub struct Launch<'a> {
    service: &'a Service<'a>,
    role: Role,
    database_url: String,
    kubeconfig: PathBuf,
    settings: Vec<(String, String)>,
}

impl<'a> Launch<'a> {
    fn new(service: &'a Service<'a>, role: Role) -> Self {
        Self {
            service,
            role,
            database_url: service.database.url(role.database_role()).to_owned(),
            kubeconfig: service.directory.join(format!("{}.kubeconfig", role.subcommand())),
            settings: vec![],
        }
    }

    /// Starts a proxy to the database for this role; see [`Self::database`].
    pub fn dbfault(&self) -> anyhow::Result<Dbfault> {
        Dbfault::start(self.service.database.url(self.role.database_role()), [])
    }

    /// Connects to the database through a proxy.
    #[must_use]
    pub fn database(self, proxy: &Dbfault) -> Self {
        Self { database_url: proxy.url().to_owned(), ..self }
    }

    /// Connects to the API server through a proxy, with the token of the service account.
    pub fn api_server(self, proxy: &Apifault) -> anyhow::Result<Self> {
        let port = odc_local::free_port::reserve()?.local_addr()?.port();
        let kubeconfig = self.service.directory.join(format!("proxy-{port}.kubeconfig"));
        let token = self.service.tokens.iter().find(|(role, _)| *role == self.role).map(|(_, token)| token.as_str());
        proxy.kubeconfig(&kubeconfig, token)?;
        Ok(Self { kubeconfig, ..self })
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the process and waits until it is ready.
    pub async fn start(self) -> anyhow::Result<ServiceProcess> {
        let process = self.spawn()?;
        process.wait_ready().await?;
        Ok(process)
    }

    /// Starts the process.
    pub fn spawn(self) -> anyhow::Result<ServiceProcess> {
        let directory = &self.service.directory;
        let path = |path: PathBuf| path.display().to_string();
        let common = [
            ("DATABASE_URL", self.database_url),
            ("ODC_KUBECONFIG", path(self.kubeconfig)),
            ("ODC_API_CERTIFICATE", path(directory.join(CERTIFICATE))),
            ("ODC_API_PRIVATE_KEY", path(directory.join(PRIVATE_KEY))),
        ];
        let common = common.into_iter().map(|(name, value)| (name.to_owned(), value));
        ServiceProcess::spawn(self.role.subcommand(), common.chain(self.settings).collect(), directory)
    }
}
