//! Which devices a container should get, and what it is told about those it got.

use std::collections::BTreeSet;

use crate::device::{Devices, Ill};

/// Tells the program in the container which devices are its own.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The devices to prefer: those that must be included, then the lowest indexes.
///
/// There is no error: the kubelet takes the answer as a hint and fails the pod if there is none. So
/// ids that are not ours are passed over, and a demand that cannot be met in full is met as far as
/// it goes.
pub fn prefer(devices: &Devices, available: &[String], must_include: &[String], size: usize) -> Vec<String> {
    let ours =
        |ids: &[String]| -> BTreeSet<String> { ids.iter().filter(|id| devices.find(id).is_some()).cloned().collect() };
    let mut chosen = ours(must_include);
    let free = &ours(available) - &chosen;
    chosen.extend(free.into_iter().take(size.saturating_sub(chosen.len())));
    chosen.into_iter().collect()
}

/// Why a container does not get the devices it asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("device {id} is not on this node; it has {first} to {last}")]
    Unknown { id: String, first: String, last: String },
    #[error("device {id} is ill; retry with another device or after it has healed")]
    Ill { id: String },
}

/// The value of [`VISIBLE_DEVICES`] for a container that was given `ids`: sorted, each once.
pub fn visible(devices: &Devices, ill: &Ill, ids: &[String]) -> Result<String, Refusal> {
    let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    for &id in &ids {
        if devices.find(id).is_none() {
            let name = |device: Option<_>| device.map(ToString::to_string).unwrap_or_default();
            let all = devices.ids();
            return Err(Refusal::Unknown { id: id.to_owned(), first: name(all.first()), last: name(all.last()) });
        }
        if ill.contains(id) {
            return Err(Refusal::Ill { id: id.to_owned() });
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
    fn lowest_indexes_come_first_whatever_the_order_asked() {
        check_prefer(&[11, 2, 7, 10, 3], &[], 3, &[2, 3, 7]);
        check_prefer(&[3, 10, 7, 2, 11], &[], 3, &[2, 3, 7]);
    }

    #[test]
    fn must_include_is_honoured_and_counts() {
        check_prefer(&[0, 1, 2, 9], &[9], 2, &[0, 9]);
        check_prefer(&[0, 1], &[9], 2, &[0, 9]);
        check_prefer(&[0, 1, 2], &[1, 2], 2, &[1, 2]);
    }

    #[test]
    fn impossible_demands_are_met_as_far_as_they_go() {
        check_prefer(&[1], &[], 4, &[1]);
        check_prefer(&[0, 1], &[4, 5, 6], 2, &[4, 5, 6]);
        check_prefer(&[0, 1], &[], 0, &[]);
    }

    #[test]
    fn repeated_and_foreign_ids_do_not_take_a_place() {
        check_prefer(&[1, 1, 99, 2], &[98], 2, &[1, 2]);
    }

    #[test]
    fn visible_devices_are_sorted_and_listed_once() {
        let devices = Devices::test("n1", 12);
        assert_eq!(visible(&devices, &Ill::new(), &ids(&[10, 2, 10])), Ok("GPU-n1-02,GPU-n1-10".to_owned()));
        assert_eq!(visible(&devices, &Ill::new(), &[]), Ok(String::new()));
    }

    #[test]
    fn unknown_and_ill_devices_are_refused() {
        let devices = Devices::test("n1", 4);
        let ill = devices.named(ids(&[2]));
        let unknown = visible(&devices, &ill, &ids(&[1, 7])).expect_err("there is no device 7");
        assert_eq!(unknown.to_string(), "device GPU-n1-07 is not on this node; it has GPU-n1-00 to GPU-n1-03");
        assert_eq!(visible(&devices, &ill, &ids(&[1, 2])), Err(Refusal::Ill { id: "GPU-n1-02".to_owned() }));
    }
}
