//! Periodic work on the pool: frees deleted space, resumes the accounting, limits nested subvolumes, grows the pool.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::layout::is_nested;
use super::{Error, Pool};
use crate::btrfs::{self, QuotaState, SubvolumeId};

pub const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(60);
/// Below this share of free space a pool in a file grows by the same amount.
const MIN_FREE_PERCENT: u64 = 10;
/// Unprivileged users can create subvolumes, which have a qgroup of their own. One tree block is used when empty, so no
/// data can be written.
const NESTED_SUBVOLUME_LIMIT: u64 = 16 << 10;
/// Subvolumes that are inspected at a time. The rest follows in the next interval.
const MAX_INSPECTED_SUBVOLUMES: usize = 256;

/// Subvolumes that need no further attention. Ids are not reused.
#[derive(Debug, Default)]
pub struct CheckedSubvolumes(Mutex<HashSet<SubvolumeId>>);

impl Pool {
    /// Maintains the pool at regular intervals, for ever. Errors are logged; each step is repeated next time.
    pub async fn maintain(&self) {
        let mut interval = tokio::time::interval(MAINTENANCE_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            report("emptying the trash", self.staging.empty_trash().await);
            report("checking the qgroups", self.check_quota().await);
            report("deleting stale qgroups", self.delete_stale_qgroups().await);
            report("limiting nested subvolumes", self.limit_nested_subvolumes().await);
            report("growing the pool", self.grow().await);
        }
    }

    /// Resumes the accounting, which the kernel stops when it deletes a large subvolume or after an unclean shutdown.
    async fn check_quota(&self) -> Result<(), Error> {
        let root = self.layout.root();
        match btrfs::quota_state(root).await.map_err(Error::btrfs("reading the qgroups of", root))? {
            QuotaState::Consistent => Ok(()),
            QuotaState::Inconsistent => {
                tracing::info!("qgroups are inconsistent; starting a rescan");
                btrfs::start_rescan(root).await.map_err(Error::btrfs("rescanning the qgroups of", root))
            }
            QuotaState::Disabled => {
                tracing::warn!("quotas were disabled; enabling them");
                btrfs::enable_quota(root).await.map_err(Error::btrfs("enabling quotas of", root))?;
                self.restore_limits().await
            }
        }
    }

    /// Deletes the qgroups of deleted subvolumes, which older kernels keep.
    async fn delete_stale_qgroups(&self) -> Result<(), Error> {
        let root = self.layout.root();
        let failed = || Error::btrfs("deleting stale qgroups of", root);
        for id in btrfs::list_stale_qgroups(root).await.map_err(failed())?.into_iter().take(MAX_INSPECTED_SUBVOLUMES) {
            if btrfs::resolve(id, root).await.map_err(failed())?.is_none() {
                // If it is busy, it is freed in a later interval.
                btrfs::destroy_qgroup(id, root).await.map_err(failed())?;
            }
        }
        Ok(())
    }

    /// Keeps users from exceeding the size of their volume by subvolumes inside it.
    async fn limit_nested_subvolumes(&self) -> Result<(), Error> {
        let root = self.layout.root();
        let failed = || Error::btrfs("listing the subvolumes of", root);
        let mounts = self.mounts().await?;
        let Some((_, origin)) = mounts.origin(root) else { return Ok(()) };
        let origin = origin.to_string_lossy().into_owned();
        let own = btrfs::subvolume_id(root).await.map_err(failed())?;
        let listed = btrfs::list_subvolumes(root).await.map_err(failed())?;
        for id in self
            .checked_subvolumes
            .select_unchecked(listed.iter().filter(|entry| entry.parent != own).map(|entry| entry.id))
        {
            let path = btrfs::resolve(id, root).await.map_err(failed())?;
            if let Some(path) = path.filter(|path| is_nested(path, &origin)) {
                tracing::warn!(
                    "subvolume {path:?} was created inside a volume; it is limited and not part of snapshots"
                );
                btrfs::limit_by_id(id, Some(NESTED_SUBVOLUME_LIMIT), root)
                    .await
                    .map_err(Error::btrfs("limiting", root))?;
            }
            self.checked_subvolumes.insert(id);
        }
        Ok(())
    }

    async fn grow(&self) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        let wanted = self.total_space().await? / 100 * MIN_FREE_PERCENT;
        let free = self.free_space().await?;
        if free >= wanted {
            return Ok(());
        }
        file.grow(self.layout.root(), free, wanted + wanted).await
    }
}

impl CheckedSubvolumes {
    /// Forgets the subvolumes that are gone, and returns some of the others that were not checked yet.
    fn select_unchecked(&self, present: impl Iterator<Item = SubvolumeId>) -> Vec<SubvolumeId> {
        let present: HashSet<SubvolumeId> = present.collect();
        let mut checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checked.retain(|id| present.contains(id));
        present.into_iter().filter(|id| !checked.contains(id)).take(MAX_INSPECTED_SUBVOLUMES).collect()
    }

    fn insert(&self, id: SubvolumeId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }
}

fn report(step: &str, result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::error!(error = &error as &dyn std::error::Error, "{step} failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_are_checked_once_while_they_exist() {
        let ids =
            |numbers: &[u64]| numbers.iter().map(|number| number.to_string().parse().unwrap()).collect::<Vec<_>>();
        let checked = CheckedSubvolumes::default();
        checked.insert(ids(&[1])[0]);
        assert_eq!(checked.select_unchecked(ids(&[1, 2]).into_iter()), ids(&[2]));
        assert_eq!(checked.select_unchecked(ids(&[]).into_iter()), []);
        assert_eq!(checked.select_unchecked(ids(&[1]).into_iter()), ids(&[1]));
        let many: Vec<u64> = (0..1000).collect();
        assert_eq!(checked.select_unchecked(ids(&many).into_iter()).len(), MAX_INSPECTED_SUBVOLUMES);
    }
}
