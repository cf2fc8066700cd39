//! Resource vectors of nodes and pods, as exact integers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use odc_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

/// CPU in millicores, everything else in whole units. All arithmetic saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Serialized", into = "Serialized")]
pub struct Resources {
    pub cpu: i64,
    pub memory: i64,
    /// Ephemeral storage of the node.
    pub storage: i64,
    pub pods: i64,
    /// Extended resources such as `nvidia.com/gpu`, and attachable volumes, sorted by name, without zeros.
    devices: Vec<(Arc<str>, i64)>,
}

/// The prefix of attachable volumes of a CSI driver. Names of extended resources contain a slash, so they cannot conflict.
const VOLUMES_PREFIX: &str = "attachable-volumes-csi-";

/// Returns the CSI driver if `name` denotes attachable volumes.
pub(crate) fn driver(name: &str) -> Option<&str> {
    name.strip_prefix(VOLUMES_PREFIX)
}

/// The serialized form, without zeros.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Serialized {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
fn is_zero(amount: &i64) -> bool {
    *amount == 0
}

impl From<Serialized> for Resources {
    fn from(Serialized { cpu, memory, storage, pods, devices }: Serialized) -> Self {
        let plain = Self { cpu, memory, storage, pods, devices: Vec::new() };
        devices.into_iter().fold(plain, |resources, (name, amount)| resources.with_device(&name, amount))
    }
}

impl From<Resources> for Serialized {
    fn from(resources: Resources) -> Self {
        let devices = resources.named().map(|(name, amount)| (name.to_owned(), amount)).collect();
        Self { cpu: resources.cpu, memory: resources.memory, storage: resources.storage, pods: resources.pods, devices }
    }
}

impl Resources {
    /// Converts a Kubernetes resource list. Invalid quantities are ignored.
    pub fn from_list(list: &BTreeMap<String, ApiQuantity>) -> Self {
        let mut resources = Self::default();
        for (name, written) in list {
            let Ok(quantity) = Quantity::try_from(written) else { continue };
            match name.as_str() {
                "cpu" => resources.cpu = quantity.milli_value(),
                "memory" => resources.memory = quantity.value(),
                "ephemeral-storage" => resources.storage = quantity.value(),
                "pods" => resources.pods = quantity.value(),
                // Extended resources have a domain. Other native resources, such as hugepages, are not scheduled.
                name if name.contains('/') => resources = resources.with_device(name, quantity.value()),
                _ => {}
            }
        }
        resources
    }

    /// Sets the amount of a device.
    #[must_use]
    pub fn with_device(mut self, name: &str, amount: i64) -> Self {
        match self.devices.binary_search_by(|(device, _)| (**device).cmp(name)) {
            Ok(index) if amount == 0 => drop(self.devices.remove(index)),
            Ok(index) => self.devices[index].1 = amount,
            Err(_) if amount == 0 => {}
            Err(index) => self.devices.insert(index, (name.into(), amount)),
        }
        self
    }

    pub fn device(&self, name: &str) -> i64 {
        let found = self.devices.binary_search_by(|(device, _)| (**device).cmp(name));
        found.map_or(0, |index| self.devices[index].1)
    }

    pub fn devices(&self) -> impl Iterator<Item = (&str, i64)> {
        self.named().filter(|(name, _)| driver(name).is_none())
    }

    /// Sets the number of attachable volumes of a driver.
    #[must_use]
    pub fn with_volumes(self, driver: &str, amount: i64) -> Self {
        self.with_device(&format!("{VOLUMES_PREFIX}{driver}"), amount)
    }

    /// Returns attachable volumes by the name that [`Self::device`] accepts.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, i64)> {
        self.named().filter(|(name, _)| driver(name).is_some())
    }

    /// Returns devices and volumes.
    fn named(&self) -> impl Iterator<Item = (&str, i64)> {
        self.devices.iter().map(|(name, amount)| (&**name, *amount))
    }

    #[must_use]
    pub fn saturating_add(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.saturating_add_assign(other);
        sum
    }

    #[must_use]
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.saturating_sub_assign(other);
        rest
    }

    /// Returns the larger amount of each resource.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let mut larger = self.clone();
        larger.merge(other, Ord::max);
        larger.devices.retain(|(name, amount)| *amount > 0 || other.device(name) < 0);
        larger
    }

    pub fn saturating_add_assign(&mut self, other: &Self) {
        self.merge(other, i64::saturating_add);
    }

    pub fn saturating_sub_assign(&mut self, other: &Self) {
        self.merge(other, i64::saturating_sub);
    }

    /// Sets all amounts so low that no request fits, whatever is added later. Every request includes a pod, so devices that
    /// are absent because nothing of them is free do not matter.
    pub(crate) fn set_unavailable(&mut self) {
        const UNAVAILABLE: i64 = i64::MIN / 2;
        (self.cpu, self.memory, self.storage, self.pods) = (UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE);
        self.devices.iter_mut().for_each(|(_, amount)| *amount = UNAVAILABLE);
    }

    /// Reports whether `request` fits. Resources that are not requested may be negative.
    pub fn fits(&self, request: &Self) -> bool {
        let enough = |have: i64, need: i64| need <= 0 || need <= have;
        enough(self.cpu, request.cpu)
            && enough(self.memory, request.memory)
            && enough(self.storage, request.storage)
            && enough(self.pods, request.pods)
            && request.named().all(|(name, need)| enough(self.device(name), need))
    }

    /// Merges the resources of `other` in place; this is a hot path of the scheduler.
    fn merge(&mut self, other: &Self, operation: impl Fn(i64, i64) -> i64) {
        self.cpu = operation(self.cpu, other.cpu);
        self.memory = operation(self.memory, other.memory);
        self.storage = operation(self.storage, other.storage);
        self.pods = operation(self.pods, other.pods);
        for (name, amount) in &other.devices {
            match self.devices.binary_search_by(|(device, _)| device.cmp(name)) {
                Ok(index) => {
                    let merged = operation(self.devices[index].1, *amount);
                    self.devices[index].1 = merged;
                    if merged == 0 {
                        self.devices.remove(index);
                    }
                }
                Err(index) => {
                    let merged = operation(0, *amount);
                    if merged != 0 {
                        self.devices.insert(index, (Arc::clone(name), merged));
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

    fn list(items: &[(&str, &str)]) -> BTreeMap<String, ApiQuantity> {
        items.iter().map(|(name, amount)| ((*name).into(), ApiQuantity((*amount).into()))).collect()
    }

    #[test]
    fn resource_list_is_converted_exactly() {
        let resources = Resources::from_list(&list(&[
            ("cpu", "1500m"),
            ("memory", "1.5Gi"),
            ("pods", "110"),
            ("nvidia.com/gpu", "8"),
            ("hugepages-2Mi", "4"),
            ("example.org/none", "0"),
        ]));
        assert_eq!((resources.cpu, resources.memory, resources.pods), (1_500, 1_610_612_736, 110));
        assert_eq!(resources.devices().collect::<Vec<_>>(), [("nvidia.com/gpu", 8)]);
    }

    #[test]
    fn volumes_are_counted_and_not_devices() {
        let free = Resources::default().with_device("nvidia.com/gpu", 1).with_volumes("disks.example.org", 2);
        assert_eq!(free.devices().collect::<Vec<_>>(), [("nvidia.com/gpu", 1)]);
        let [(name, 2)] = free.volumes().collect::<Vec<_>>()[..] else { panic!("{free:?}") };
        assert_eq!((driver(name), driver("nvidia.com/gpu")), (Some("disks.example.org"), None));
        let need = |volumes| Resources::default().with_volumes("disks.example.org", volumes);
        assert!(free.fits(&need(2)) && !free.fits(&need(3)) && !free.saturating_sub(&need(2)).fits(&need(1)));
        let recorded = serde_json::to_string(&free).unwrap();
        assert_eq!(serde_json::from_str::<Resources>(&recorded).unwrap(), free);
    }

    #[test]
    fn unrequested_resources_may_be_negative() {
        let free = Resources { cpu: -5, memory: 10, ..Resources::default() };
        assert!(free.fits(&Resources { memory: 10, ..Resources::default() }));
        assert!(!free.fits(&Resources { cpu: 1, ..Resources::default() }));
        assert!(!free.fits(&Resources::default().with_device("nvidia.com/gpu", 1)));
    }

    fn any_resources() -> impl Strategy<Value = Resources> {
        (0..1000_i64, 0..1000_i64, 0..9_i64, 0..9_i64).prop_map(|(cpu, memory, one, two)| {
            Resources { cpu, memory, ..Resources::default() }.with_device("a/one", one).with_device("b/two", two)
        })
    }

    proptest! {
        #[test]
        fn addition_reverts_subtraction(have in any_resources(), other in any_resources()) {
            prop_assert_eq!(have.saturating_sub(&other).saturating_add(&other), have.clone());
            prop_assert_eq!(have.saturating_add(&other), other.saturating_add(&have));
            prop_assert!(have.max(&other).fits(&other) && have.max(&other).fits(&have));
            prop_assert!(have.saturating_add(&other).fits(&have));
        }
    }
}
