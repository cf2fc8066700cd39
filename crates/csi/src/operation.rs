//! Operations in progress: at most one at a time per volume or snapshot.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::name::Name;

/// What an operation changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    Volume(Name),
    Snapshot(Name),
}

/// The subjects of all operations in progress in this process.
///
/// A second call for the same subject fails, as the CSI recommends, so that retries of a slow call do not queue up. Other
/// processes on a shared pool are excluded by atomic renames.
#[derive(Debug, Clone, Default)]
pub struct Operations(Arc<Mutex<HashSet<Subject>>>);

/// Ends the operation when it is dropped.
#[derive(Debug)]
pub struct OperationGuard {
    operations: Operations,
    subject: Subject,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("another operation on the same volume or snapshot is in progress")]
pub struct InProgress;

impl Operations {
    pub fn start(&self, subject: Subject) -> Result<OperationGuard, InProgress> {
        let mut subjects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !subjects.insert(subject.clone()) {
            return Err(InProgress);
        }
        Ok(OperationGuard { operations: self.clone(), subject })
    }
}

impl Drop for OperationGuard {
    fn drop(&mut self) {
        self.operations.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_operation_on_a_subject_waits_for_the_first() {
        let operations = Operations::default();
        let volume = || Subject::Volume("a".parse().unwrap());
        let first = operations.start(volume()).unwrap();
        assert_eq!(operations.start(volume()).err(), Some(InProgress));
        assert!(operations.start(Subject::Snapshot("a".parse().unwrap())).is_ok());
        drop(first);
        assert!(operations.start(volume()).is_ok());
    }
}
