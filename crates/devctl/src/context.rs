//! What a command runs with: settings, output, user interface and, if it needs a cluster, a client.

use std::sync::Arc;

use crate::cli::{Command, Global};
use crate::client::{self, Client, Target};
use crate::config::{ContextSelection, Settings};
use crate::error::Result;
use crate::output::Output;
use crate::ui::Ui;

/// The context of commands that talk to a cluster.
pub struct ClusterContext {
    pub global: Global,
    pub settings: Settings,
    pub client: Arc<dyn Client>,
    /// Data, on standard output.
    pub out: Output,
    /// Messages and prompts, on standard error.
    pub ui: Ui,
}

/// The context of commands that need no cluster.
pub struct LocalContext {
    pub global: Global,
    pub settings: Settings,
    pub out: Output,
    pub ui: Ui,
}

impl LocalContext {
    pub fn new(global: Global, command: &Command) -> Result<Self> {
        let settings = Settings::read(&global, !command.is_proxy())?;
        let format = global.output.or(settings.file.output).unwrap_or_default();
        let out = Output::new(format, !global.no_headers, global.quiet);
        let ui = Ui::new(&global, command.forces_prompt());
        for path in &settings.ignored_projects {
            ui.warn(format!("ignoring {}: it is owned by another user", path.display()));
        }
        Ok(Self { global, settings, out, ui })
    }

    pub fn context_selection(&self) -> ContextSelection {
        self.settings.select_context(&self.global)
    }

    /// Creates the client.
    pub async fn connect(self) -> Result<ClusterContext> {
        let selection = self.context_selection();
        if let Some((context, path)) = self.settings.project_context(&self.global) {
            self.ui.info(format!("Using context {context} from {}", path.display()));
        }
        let client = client::connect(&selection).await?;
        self.ui.trace_step("reading settings");
        self.ui.verbose(|| {
            let target = client.target();
            format!("context {}, {}, namespace {}", target.context, target.address, target.namespace)
        });
        let Self { global, settings, out, ui } = self;
        Ok(ClusterContext { global, settings, client, out, ui })
    }
}

impl ClusterContext {
    pub fn target(&self) -> &Target {
        self.client.target()
    }

    /// Returns the SSH user name. Servers accept any; this one is the owner's.
    pub fn login_name(&self) -> &str {
        self.target().owner.as_deref().unwrap_or("dev")
    }
}
