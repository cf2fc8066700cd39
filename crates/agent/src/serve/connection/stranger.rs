//! Those who have not logged in yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::serve::intake::Cut;
use crate::serve::startups;

/// All of them, in no order.
#[derive(Clone, Debug, Default)]
pub struct Strangers(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    cut: Cut,
    spoke: bool,
}

/// One of them, for as long as the value lives.
#[derive(Debug)]
pub struct Stranger {
    all: Strangers,
    cut: Cut,
}

impl Strangers {
    /// One more; if that is too many, another one is cut off. `dice` is a random number.
    pub fn admit(&self, dice: u32) -> Stranger {
        let mut entries = self.entries();
        let spoke: Vec<bool> = entries.iter().map(|entry| entry.spoke).collect();
        if let Some(place) = startups::gives_way(&spoke, dice) {
            entries.swap_remove(place).cut.now();
        }
        let cut = Cut::default();
        entries.push(Entry { cut: cut.clone(), spoke: false });
        Stranger { all: self.clone(), cut }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stranger {
    /// What ends its connection.
    pub fn cut(&self) -> Cut {
        self.cut.clone()
    }

    /// It speaks as a client does.
    pub fn spoke(&self) {
        let mut entries = self.all.entries();
        if let Some(own) = entries.iter_mut().find(|entry| entry.cut.is(&self.cut)) {
            own.spoke = true;
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.entries().retain(|entry| !entry.cut.is(&self.cut));
    }
}
