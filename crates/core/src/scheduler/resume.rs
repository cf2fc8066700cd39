//! A look that was broken off because somebody was asked to leave. If nobody leaves after all, it goes on where it was: up to
//! there another one would find the same, because nobody who came before had anything to ask for.

use std::collections::{BTreeMap, BTreeSet};

use super::pass::{Granted, Look, Pass, Slot};
use super::plan::Stop;
use super::preempt::Askers;
use super::quota::Draft;
use super::steps::Steps;
use crate::amounts::Amounts;

pub(super) struct Paused {
    /// Who asked.
    by: u32,
    /// Nobody leaves for it.
    in_vain: bool,
    look: Look,
    draft: Draft,
    kept: BTreeMap<u32, Steps<Amounts>>,
    planned: BTreeMap<u32, Slot>,
    blocking: BTreeMap<u32, Vec<u32>>,
    blocked: BTreeSet<u32>,
    stopped: Vec<Option<(i64, Stop)>>,
    nobody: BTreeMap<Askers, i64>,
    /// What was granted since the look began.
    granted: Vec<Granted>,
}

impl Pass<'_> {
    /// Breaks off a look before a server. What was granted in it is taken back.
    pub(super) fn pause(&mut self, by: u32, look: Look) {
        let granted = self.take_back(look.granted);
        self.books.1.look_ahead_like(self.world, &self.draft);
        let stopped = vec![None; self.stopped.len()];
        self.paused = Some(Paused {
            by,
            in_vain: false,
            look,
            draft: std::mem::take(&mut self.draft),
            kept: std::mem::take(&mut self.kept),
            planned: std::mem::take(&mut self.planned),
            blocking: std::mem::take(&mut self.blocking),
            blocked: std::mem::take(&mut self.blocked),
            stopped: std::mem::replace(&mut self.stopped, stopped),
            nobody: std::mem::take(&mut self.nobody),
            granted,
        });
    }

    /// Nobody leaves for somebody. The look that it broke off can go on if all else is as it was then.
    pub(super) fn give_up(&mut self, by: u32, goes_on: bool) {
        self.paused = self.paused.take().filter(|paused| goes_on && paused.by == by);
        if let Some(paused) = &mut self.paused {
            paused.in_vain = true;
        }
    }

    /// The look that goes on, if there is one.
    pub(super) fn resume(&mut self) -> Option<Look> {
        let paused = self.paused.take_if(|paused| paused.in_vain)?;
        let Paused { look, draft, kept, planned, blocking, blocked, stopped, nobody, granted, .. } = paused;
        for granted in granted {
            self.put(&granted);
            self.granted.push(granted);
        }
        (self.draft, self.kept, self.planned) = (draft, kept, planned);
        (self.blocking, self.blocked, self.stopped, self.nobody) = (blocking, blocked, stopped, nobody);
        Some(look)
    }
}
