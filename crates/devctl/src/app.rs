//! What a command has at hand: settings, the back end, ways to print and to ask.

use std::sync::Arc;

use crate::args::{Global, Verb};
use crate::backend::kube::Kube;
use crate::backend::{Backend, Place};
use crate::config::{Settings, Target};
use crate::failure::Result;
use crate::output::Output;
use crate::talk::Talk;

pub struct App {
    pub global: Global,
    pub settings: Settings,
    pub backend: Arc<dyn Backend>,
    /// Data, for standard output.
    pub out: Output,
    /// Everything else, for standard error; and questions.
    pub talk: Talk,
}

/// What a command has that needs no cluster.
pub struct Desk {
    pub global: Global,
    pub settings: Settings,
    pub out: Output,
    pub talk: Talk,
}

impl Desk {
    pub fn new(global: Global, verb: &Verb) -> Result<Self> {
        let settings = Settings::read(&global, !verb.is_connection())?;
        let format = global.output.or(settings.file.output).unwrap_or_default();
        let out = Output::new(format, !global.no_headers, global.quiet);
        let talk = Talk::new(&global, verb.insists());
        for path in &settings.passed_over {
            talk.say(format!("{} belongs to somebody else and is not read.", path.display()));
        }
        Ok(Self { global, settings, out, talk })
    }

    pub fn target(&self) -> Target {
        self.settings.target(&self.global)
    }

    /// Turns to the cluster; nothing is sent yet.
    pub async fn connect(self) -> Result<App> {
        let target = self.target();
        if let Some((context, path)) = self.settings.context_of_project(&self.global) {
            self.talk.say(format!("The context {context} comes from {}.", path.display()));
        }
        let kube = Kube::connect(&target).await?;
        self.talk.step("reading settings");
        self.talk.verbose(|| {
            let place = kube.place();
            format!("context {}, {}, namespace {}", place.context, place.address, place.namespace)
        });
        let Self { global, settings, out, talk } = self;
        Ok(App { global, settings, backend: Arc::new(kube), out, talk })
    }
}

impl App {
    pub fn place(&self) -> &Place {
        self.backend.place()
    }

    /// The name people log in with: their own, though any will do.
    pub fn login(&self) -> &str {
        self.place().owner.as_deref().unwrap_or("dev")
    }
}
