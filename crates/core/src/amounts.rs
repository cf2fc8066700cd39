//! Amounts of what nodes have and pods ask for, as exact integers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use odc_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

/// CPU in thousandths of a core, everything else in whole units. Arithmetic saturates: an absurd amount stays absurd
/// and fits nowhere, and nothing panics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Listed", into = "Listed")]
pub struct Amounts {
    pub cpu: i64,
    pub memory: i64,
    /// Space on the node itself, which ephemeral homes take.
    pub storage: i64,
    pub pods: i64,
    /// Extended resources such as `nvidia.com/gpu`, and volumes that can be attached, by name, none of them zero.
    devices: Vec<(Arc<str>, i64)>,
}

/// What Kubernetes calls the volumes of a driver that a node can attach. Extended resources have a slash in their names,
/// so none of them is called like it.
const VOLUMES: &str = "attachable-volumes-csi-";

/// The driver whose volumes are called this, if it is no device.
pub(crate) fn driver(name: &str) -> Option<&str> {
    name.strip_prefix(VOLUMES)
}

/// The same as it is recorded, without what is zero.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Listed {
    #[serde(skip_serializing_if = "is_zero")]
    cpu: i64,
    #[serde(skip_serializing_if = "is_zero")]
    memory: i64,
    #[serde(skip_serializing_if = "is_zero")]
    storage: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pods: i64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    devices: BTreeMap<String, i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks like this")]
fn is_zero(amount: &i64) -> bool {
    *amount == 0
}

impl From<Listed> for Amounts {
    fn from(Listed { cpu, memory, storage, pods, devices }: Listed) -> Self {
        let plain = Self { cpu, memory, storage, pods, devices: Vec::new() };
        devices.into_iter().fold(plain, |amounts, (name, amount)| amounts.with_device(&name, amount))
    }
}

impl From<Amounts> for Listed {
    fn from(amounts: Amounts) -> Self {
        let devices = amounts.named().map(|(name, amount)| (name.to_owned(), amount)).collect();
        Self { cpu: amounts.cpu, memory: amounts.memory, storage: amounts.storage, pods: amounts.pods, devices }
    }
}

impl Amounts {
    /// Reads what Kubernetes calls a resource list. An amount that cannot be read is as good as none.
    pub fn of(list: &BTreeMap<String, Written>) -> Self {
        let mut amounts = Self::default();
        for (name, written) in list {
            let Ok(quantity) = Quantity::try_from(written) else { continue };
            match name.as_str() {
                "cpu" => amounts.cpu = quantity.milli_value(),
                "memory" => amounts.memory = quantity.value(),
                "ephemeral-storage" => amounts.storage = quantity.value(),
                "pods" => amounts.pods = quantity.value(),
                // Extended resources have a domain; native ones that are not above (hugepages-…) are not ours to plan.
                name if name.contains('/') => amounts = amounts.with_device(name, quantity.value()),
                _ => {}
            }
        }
        amounts
    }

    /// The same with this many of a device.
    #[must_use]
    pub fn with_device(mut self, name: &str, amount: i64) -> Self {
        match self.devices.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(at) if amount == 0 => drop(self.devices.remove(at)),
            Ok(at) => self.devices[at].1 = amount,
            Err(_) if amount == 0 => {}
            Err(at) => self.devices.insert(at, (name.into(), amount)),
        }
        self
    }

    pub fn device(&self, name: &str) -> i64 {
        let found = self.devices.binary_search_by(|(known, _)| (**known).cmp(name));
        found.map_or(0, |at| self.devices[at].1)
    }

    pub fn devices(&self) -> impl Iterator<Item = (&str, i64)> {
        self.named().filter(|(name, _)| driver(name).is_none())
    }

    /// The same with this many volumes of a driver.
    #[must_use]
    pub fn with_volumes(self, driver: &str, amount: i64) -> Self {
        self.with_device(&format!("{VOLUMES}{driver}"), amount)
    }

    /// Volumes by the name that [`Self::device`] knows them under.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, i64)> {
        self.named().filter(|(name, _)| driver(name).is_some())
    }

    /// Devices and volumes.
    fn named(&self) -> impl Iterator<Item = (&str, i64)> {
        self.devices.iter().map(|(name, amount)| (&**name, *amount))
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.take(other);
        rest
    }

    /// Of each resource the larger amount.
    #[must_use]
    pub fn or_more(&self, other: &Self) -> Self {
        let mut larger = self.clone();
        larger.merge(other, Ord::max);
        larger.devices.retain(|(name, amount)| *amount > 0 || other.device(name) < 0);
        larger
    }

    pub fn add(&mut self, other: &Self) {
        self.merge(other, i64::saturating_add);
    }

    pub fn take(&mut self, other: &Self) {
        self.merge(other, i64::saturating_sub);
    }

    /// Whether all of `request` can be taken from this. What is not asked for may be overdrawn already.
    pub fn holds(&self, request: &Self) -> bool {
        let enough = |have: i64, need: i64| need <= 0 || need <= have;
        enough(self.cpu, request.cpu)
            && enough(self.memory, request.memory)
            && enough(self.storage, request.storage)
            && enough(self.pods, request.pods)
            && request.named().all(|(name, need)| enough(self.device(name), need))
    }

    /// Changes each amount that the other one has; in place, as this is what a plan does most.
    fn merge(&mut self, other: &Self, how: impl Fn(i64, i64) -> i64) {
        self.cpu = how(self.cpu, other.cpu);
        self.memory = how(self.memory, other.memory);
        self.storage = how(self.storage, other.storage);
        self.pods = how(self.pods, other.pods);
        for (name, amount) in &other.devices {
            match self.devices.binary_search_by(|(known, _)| known.cmp(name)) {
                Ok(at) => {
                    let merged = how(self.devices[at].1, *amount);
                    self.devices[at].1 = merged;
                    if merged == 0 {
                        self.devices.remove(at);
                    }
                }
                Err(at) => {
                    let merged = how(0, *amount);
                    if merged != 0 {
                        self.devices.insert(at, (Arc::clone(name), merged));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(items: &[(&str, &str)]) -> BTreeMap<String, Written> {
        items.iter().map(|(name, amount)| ((*name).into(), Written((*amount).into()))).collect()
    }

    #[test]
    fn a_resource_list_is_read_exactly() {
        let amounts = Amounts::of(&list(&[
            ("cpu", "1500m"),
            ("memory", "1.5Gi"),
            ("pods", "110"),
            ("nvidia.com/gpu", "8"),
            ("hugepages-2Mi", "4"),
            ("example.org/none", "0"),
        ]));
        assert_eq!((amounts.cpu, amounts.memory, amounts.pods), (1_500, 1_610_612_736, 110));
        assert_eq!(amounts.devices().collect::<Vec<_>>(), [("nvidia.com/gpu", 8)]);
    }

    #[test]
    fn volumes_are_counted_and_are_no_devices() {
        let free = Amounts::default().with_device("nvidia.com/gpu", 1).with_volumes("disks.example.org", 2);
        assert_eq!(free.devices().collect::<Vec<_>>(), [("nvidia.com/gpu", 1)]);
        let [(name, 2)] = free.volumes().collect::<Vec<_>>()[..] else { panic!("{free:?}") };
        assert_eq!((driver(name), driver("nvidia.com/gpu")), (Some("disks.example.org"), None));
        let need = |volumes| Amounts::default().with_volumes("disks.example.org", volumes);
        assert!(free.holds(&need(2)) && !free.holds(&need(3)) && !free.minus(&need(2)).holds(&need(1)));
        let recorded = serde_json::to_string(&free).unwrap();
        assert_eq!(serde_json::from_str::<Amounts>(&recorded).unwrap(), free);
    }

    #[test]
    fn what_is_not_asked_for_may_be_overdrawn() {
        let free = Amounts { cpu: -5, memory: 10, ..Amounts::default() };
        assert!(free.holds(&Amounts { memory: 10, ..Amounts::default() }));
        assert!(!free.holds(&Amounts { cpu: 1, ..Amounts::default() }));
        assert!(!free.holds(&Amounts::default().with_device("nvidia.com/gpu", 1)));
    }

    fn any_amounts() -> impl Strategy<Value = Amounts> {
        (0..1000_i64, 0..1000_i64, 0..9_i64, 0..9_i64).prop_map(|(cpu, memory, one, two)| {
            Amounts { cpu, memory, ..Amounts::default() }.with_device("a/one", one).with_device("b/two", two)
        })
    }

    proptest! {
        #[test]
        fn what_was_taken_can_be_given_back(have in any_amounts(), take in any_amounts()) {
            prop_assert_eq!(have.minus(&take).plus(&take), have.clone());
            prop_assert_eq!(have.plus(&take), take.plus(&have));
            prop_assert!(have.or_more(&take).holds(&take) && have.or_more(&take).holds(&have));
            prop_assert!(have.plus(&take).holds(&have));
        }
    }
}
