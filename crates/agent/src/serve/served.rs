//! What everything that serves people shares.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::init::journal::Journal;
use crate::serve::access::Access;
use crate::serve::activity::Activity;
use crate::serve::apart::Apart;
use crate::serve::steward::Steward;
use crate::serve::terminals::Terminals;

pub struct Served {
    pub activity: Arc<Activity>,
    pub access: Access,
    pub terminals: Terminals,
    pub identity: Identity,
    pub directory: Directory,
    pub journal: Arc<Journal>,
    /// How long the server will be there. Set once by whoever knows; until then nobody does.
    pub expires_in: OnceLock<Remaining>,
    pub steward: Steward,
    pub apart: Apart,
}

pub type Remaining = Box<dyn Fn() -> Option<Duration> + Send + Sync>;

/// Which server this is. Of the names, any may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub server: String,
    pub owner: String,
    pub flavor: String,
    pub uid: String,
    /// What people read before they log in.
    pub banner: String,
}

/// Where the state is kept.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Served {
    pub fn expires_in(&self) -> Option<Duration> {
        self.expires_in.get().and_then(|remaining| remaining())
    }
}

impl Identity {
    pub fn from_environment(uid: &str) -> Self {
        let variable = |name| std::env::var(name).unwrap_or_default();
        Self {
            server: variable("ODC_SERVER"),
            owner: variable("ODC_OWNER"),
            flavor: variable("ODC_FLAVOR"),
            uid: uid.to_owned(),
            banner: variable("ODC_BANNER"),
        }
    }
}

impl Directory {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
