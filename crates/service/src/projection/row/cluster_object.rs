//! Rows of users, teams and flavors, and what the usage of servers needs of flavors.

use std::collections::HashMap;

use kube::api::DynamicObject;
use odc_api::price::Price;
use odc_api::v1alpha1::{DevServerFlavor, DevServerUser, Role};
use odc_store::projection::{ClusterObjectRow, FlavorRow};
use odc_store::user::User;
use serde_json::Value;

use super::super::kind::Kind;
use super::super::managed_fields::changed_by;
use super::{InvalidObject, parse, uid};

pub fn user(object: &DynamicObject) -> Result<User, InvalidObject> {
    let (_, DevServerUser { spec, .. }) = parse(object)?;
    let role = match spec.role {
        Role::User => "User",
        Role::Admin => "Admin",
        Role::Auditor => "Auditor",
    };
    Ok(User {
        name: name(object)?,
        uid: uid(object)?,
        display_name: spec.display_name.map(String::from),
        github_user: spec.github,
        role: role.to_owned(),
    })
}

pub fn flavor(object: &DynamicObject) -> Result<FlavorRow, InvalidObject> {
    let (value, DevServerFlavor { .. }) = parse(object)?;
    Ok(FlavorRow { name: name(object)?, object: value })
}

pub fn cluster_object(kind: Kind, object: &DynamicObject) -> Result<ClusterObjectRow, InvalidObject> {
    let (mut value, _): (_, Value) = parse(object)?;
    Ok(ClusterObjectRow {
        kind: kind.as_str().to_owned(),
        name: name(object)?,
        uid: uid(object)?,
        generation: object.metadata.generation.unwrap_or(1),
        changed_by: changed_by(&object.metadata),
        spec: value.get_mut("spec").map(Value::take).unwrap_or_default(),
    })
}

fn name(object: &DynamicObject) -> Result<String, InvalidObject> {
    object.metadata.name.clone().ok_or(InvalidObject::Metadata("name"))
}

/// The flavors of the cluster, by name.
#[derive(Clone, Debug, Default)]
pub struct Flavors(HashMap<String, FlavorFacts>);

/// What the usage of a server needs of its flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlavorFacts {
    pub has_devices: bool,
    pub price_millionths: u64,
}

impl Flavors {
    /// Returns a flavor. An unknown one has no devices and no price.
    pub fn get(&self, name: &str) -> FlavorFacts {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds or replaces a flavor. A deleted one is kept, because servers may still run on it.
    pub fn insert(&mut self, object: &DynamicObject) {
        let Ok((_, DevServerFlavor { spec, .. })) = parse(object) else { return };
        let price_millionths = spec.price_per_device_hour.map(Price::millionths).unwrap_or_default();
        let facts = FlavorFacts { has_devices: spec.device.is_some(), price_millionths };
        self.0.insert(object.metadata.name.clone().unwrap_or_default(), facts);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{UID, dynamic};
    use super::*;

    #[test]
    fn user_has_a_role_and_a_display_name() {
        let mut ada = DevServerUser::test();
        ada.spec.role = Role::Auditor;
        let row = user(&dynamic(&ada)).unwrap();
        assert_eq!(
            (row.name.as_str(), row.role.as_str(), row.display_name.as_deref()),
            ("ada", "Auditor", Some("Ada"))
        );
        assert_eq!(row.uid.to_string(), UID);
    }

    #[test]
    fn cluster_object_has_its_spec_and_the_manager_of_its_last_change() {
        let mut ada = dynamic(&DevServerUser::test());
        ada.metadata.generation = Some(3);
        let entry = json!({"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}});
        ada.metadata.managed_fields = serde_json::from_value(json!([entry])).unwrap();
        let row = cluster_object(Kind::User, &ada).unwrap();
        assert_eq!((row.kind.as_str(), row.name.as_str(), row.generation), ("DevServerUser", "ada", 3));
        assert_eq!((row.changed_by.as_deref(), &row.spec["displayName"]), (Some("kubectl"), &json!("Ada")));
    }

    #[test]
    fn unknown_flavor_has_no_devices_and_no_price() {
        let mut flavors = Flavors::default();
        flavors.insert(&dynamic(&DevServerFlavor::test()));
        assert_eq!(flavors.get("flavor-gpu"), FlavorFacts { has_devices: true, price_millionths: 0 });
        assert_eq!(flavors.get("other"), FlavorFacts::default());
        assert_eq!(flavor(&dynamic(&DevServerFlavor::test())).unwrap().name, "flavor-gpu");
    }
}
