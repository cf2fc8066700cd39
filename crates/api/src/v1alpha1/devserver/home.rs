//! Storage of the home directory.

use std::borrow::Cow;

use kube::KubeSchema;
use kube::core::Rule;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::name::ObjectName;
use crate::quantity::Quantity;
use crate::rule;

/// The storage of the home. There is no default, so that an ephemeral home is a deliberate choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum Home {
    Disk(ObjectName),
    Claim(ObjectName),
    Ephemeral(Quantity),
}

/// The serialized form. Unknown fields of a newer version are ignored, which an externally tagged enum would not allow.
#[derive(Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.disk), has(self.claim), has(self.ephemeral)].exists_one(set, set)")
    .message("exactly one of home.disk, home.claim and home.ephemeral must be set"))]
struct Fields {
    /// Name of a Disk in the namespace of the server. One server uses it at a time. A multi-node server mounts it on its
    /// first node; the other nodes have an ephemeral home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<ObjectName>,

    /// Name of an existing PersistentVolumeClaim in the namespace of the server. It is not deleted with the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<ObjectName>,

    /// Size of an ephemeral home on the node, such as 50Gi. Its data is lost when the pod is deleted: when the server
    /// stops, its node fails or its pod is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::amount_below(
        "1Pi",
        "home.ephemeral must be above 0 and below 1Pi, such as 50Gi",
    ))]
    ephemeral: Option<Quantity>,
}

#[derive(Debug, thiserror::Error)]
#[error("exactly one of home.disk, home.claim and home.ephemeral must be set")]
struct InvalidHome;

impl TryFrom<Fields> for Home {
    type Error = InvalidHome;

    fn try_from(fields: Fields) -> Result<Self, InvalidHome> {
        match fields {
            Fields { disk: Some(disk), claim: None, ephemeral: None } => Ok(Self::Disk(disk)),
            Fields { disk: None, claim: Some(claim), ephemeral: None } => Ok(Self::Claim(claim)),
            Fields { disk: None, claim: None, ephemeral: Some(size) } => Ok(Self::Ephemeral(size)),
            Fields { .. } => Err(InvalidHome),
        }
    }
}

impl From<Home> for Fields {
    fn from(home: Home) -> Self {
        let none = Self { disk: None, claim: None, ephemeral: None };
        match home {
            Home::Disk(disk) => Self { disk: Some(disk), ..none },
            Home::Claim(claim) => Self { claim: Some(claim), ..none },
            Home::Ephemeral(size) => Self { ephemeral: Some(size), ..none },
        }
    }
}

impl JsonSchema for Home {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Home".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Fields::json_schema(generator)
    }
}

/// Sizes are compared as quantities, so that 1024Mi and 1Gi are equal.
pub(super) fn immutable_rule() -> Rule {
    let name = |object: &str, field: &str| format!("(has({object}.home.{field}) ? {object}.home.{field} : '')");
    let same = |field: &str| format!("{} == {}", name("self", field), name("oldSelf", field));
    let size = |object: &str| {
        let size = rule::amount(&format!("{object}.home.ephemeral"));
        format!("(has({object}.home.ephemeral) ? {size} : quantity('0'))")
    };
    let same_size = format!("{}.compareTo({}) == 0", size("self"), size("oldSelf"));
    rule::immutable_rule("home", format!("{} && {} && {same_size}", same("disk"), same("claim")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_home_is_required_and_unknown_fields_are_ignored() {
        let read = |text: &str| serde_json::from_str::<Home>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"claim": "c", "mode": "new"}"#), Ok(Home::Claim("c".parse().unwrap())));
        for invalid in ["{}", r#"{"claim": "c", "disk": "d"}"#, r#"{"mode": "new"}"#] {
            assert!(read(invalid).unwrap_err().starts_with("exactly one of home.disk"), "{invalid}");
        }
    }
}
