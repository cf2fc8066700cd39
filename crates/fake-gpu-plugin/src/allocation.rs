//! Preferred devices of a container, and the environment of the allocated ones.

use std::collections::BTreeSet;

use crate::device::{Devices, UnhealthyDevices};

/// Environment variable that lists the devices of a container.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// Returns the preferred devices: those that must be included, then the lowest indexes.
///
/// Never fails, because the response is a hint but an error would fail the pod. Unknown ids are
/// ignored, and a request that cannot be satisfied is satisfied partially.
pub fn prefer(devices: &Devices, available: &[String], must_include: &[String], size: usize) -> Vec<String> {
    let known =
        |ids: &[String]| -> BTreeSet<String> { ids.iter().filter(|id| devices.find(id).is_some()).cloned().collect() };
    let mut chosen = known(must_include);
    let free = &known(available) - &chosen;
    chosen.extend(free.into_iter().take(size.saturating_sub(chosen.len())));
    chosen.into_iter().collect()
}

/// Reason for which an allocation is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error("device {id} not found on this node; it has {first} to {last}")]
    Unknown { id: String, first: String, last: String },
    #[error("device {id} is unhealthy")]
    Unhealthy { id: String },
}

/// Returns the value of [`VISIBLE_DEVICES`] for the allocated `ids`, sorted and without duplicates.
pub fn visible_devices(
    devices: &Devices,
    unhealthy: &UnhealthyDevices,
    ids: &[String],
) -> Result<String, AllocationError> {
    let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    for &id in &ids {
        if devices.find(id).is_none() {
            let name = |device: Option<_>| device.map(ToString::to_string).unwrap_or_default();
            let all = devices.ids();
            return Err(AllocationError::Unknown {
                id: id.to_owned(),
                first: name(all.first()),
                last: name(all.last()),
            });
        }
        if unhealthy.contains(id) {
            return Err(AllocationError::Unhealthy { id: id.to_owned() });
        }
    }
    Ok(ids.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(indexes: &[u8]) -> Vec<String> {
        indexes.iter().map(|index| format!("GPU-n1-{index:02}")).collect()
    }

    fn check_prefer(available: &[u8], must_include: &[u8], size: usize, expect: &[u8]) {
        let devices = Devices::test("n1", 12);
        assert_eq!(prefer(&devices, &ids(available), &ids(must_include), size), ids(expect));
    }

    #[test]
    fn lowest_indexes_are_preferred_in_any_order_of_available_ids() {
        check_prefer(&[11, 2, 7, 10, 3], &[], 3, &[2, 3, 7]);
        check_prefer(&[3, 10, 7, 2, 11], &[], 3, &[2, 3, 7]);
    }

    #[test]
    fn must_include_ids_are_chosen_and_count_towards_the_size() {
        check_prefer(&[0, 1, 2, 9], &[9], 2, &[0, 9]);
        check_prefer(&[0, 1], &[9], 2, &[0, 9]);
        check_prefer(&[0, 1, 2], &[1, 2], 2, &[1, 2]);
    }

    #[test]
    fn unsatisfiable_requests_are_satisfied_partially() {
        check_prefer(&[1], &[], 4, &[1]);
        check_prefer(&[0, 1], &[4, 5, 6], 2, &[4, 5, 6]);
        check_prefer(&[0, 1], &[], 0, &[]);
    }

    #[test]
    fn duplicate_and_unknown_ids_are_ignored() {
        check_prefer(&[1, 1, 99, 2], &[98], 2, &[1, 2]);
    }

    #[test]
    fn visible_devices_are_sorted_and_listed_once() {
        let devices = Devices::test("n1", 12);
        assert_eq!(
            visible_devices(&devices, &UnhealthyDevices::new(), &ids(&[10, 2, 10])),
            Ok("GPU-n1-02,GPU-n1-10".to_owned())
        );
        assert_eq!(visible_devices(&devices, &UnhealthyDevices::new(), &[]), Ok(String::new()));
    }

    #[test]
    fn unknown_and_unhealthy_devices_are_rejected() {
        let devices = Devices::test("n1", 4);
        let unhealthy = devices.select(ids(&[2]));
        let unknown = visible_devices(&devices, &unhealthy, &ids(&[1, 7])).expect_err("device 7 does not exist");
        assert_eq!(unknown.to_string(), "device GPU-n1-07 not found on this node; it has GPU-n1-00 to GPU-n1-03");
        assert_eq!(
            visible_devices(&devices, &unhealthy, &ids(&[1, 2])),
            Err(AllocationError::Unhealthy { id: "GPU-n1-02".to_owned() })
        );
    }
}
