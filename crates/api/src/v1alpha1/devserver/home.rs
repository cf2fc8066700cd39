//! Where a server's home directory lives.

use std::borrow::Cow;

use kube::KubeSchema;
use kube::core::Rule;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::name::ObjectName;
use crate::quantity::Quantity;
use crate::rule;

/// One of three, and never none: whoever wants a home that is lost with its pod must say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum Home {
    Disk(ObjectName),
    Claim(ObjectName),
    Ephemeral(Quantity),
}

/// The choice as it is written. A newer version may add fields beside it, which an enum could not read.
#[derive(Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.disk), has(self.claim), has(self.ephemeral)].exists_one(given, given)")
    .message("name exactly one home: a disk, a claim, or an ephemeral size"))]
struct Fields {
    /// The Disk in your namespace. It outlives the server and keeps restore points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<ObjectName>,

    /// An existing PersistentVolumeClaim in your namespace. It outlives the server; nobody snapshots or deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<ObjectName>,

    /// The size of a home on the node itself, such as 50Gi. It is gone with its pod: when the server stops, its node
    /// fails or its pod is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::amount_below(
        "1Pi",
        "give the ephemeral home a size above zero and below 1Pi, such as 50Gi",
    ))]
    ephemeral: Option<Quantity>,
}

#[derive(Debug, thiserror::Error)]
#[error("name exactly one home: a disk, a claim, or an ephemeral size")]
struct NotOneHome;

impl TryFrom<Fields> for Home {
    type Error = NotOneHome;

    fn try_from(fields: Fields) -> Result<Self, NotOneHome> {
        match fields {
            Fields { disk: Some(disk), claim: None, ephemeral: None } => Ok(Self::Disk(disk)),
            Fields { disk: None, claim: Some(claim), ephemeral: None } => Ok(Self::Claim(claim)),
            Fields { disk: None, claim: None, ephemeral: Some(size) } => Ok(Self::Ephemeral(size)),
            Fields { .. } => Err(NotOneHome),
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

/// Sizes are compared as amounts: a client that writes 1Gi where 1024Mi was stored changes nothing.
pub(super) fn fixed_rule() -> Rule {
    let name = |object: &str, field: &str| format!("(has({object}.home.{field}) ? {object}.home.{field} : '')");
    let same = |field: &str| format!("{} == {}", name("self", field), name("oldSelf", field));
    let size = |object: &str| {
        let size = rule::amount(&format!("{object}.home.ephemeral"));
        format!("(has({object}.home.ephemeral) ? {size} : quantity('0'))")
    };
    let same_size = format!("{}.compareTo({}) == 0", size("self"), size("oldSelf"));
    rule::unchanging("home", format!("{} && {} && {same_size}", same("disk"), same("claim")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_is_read_and_the_future_is_ignored() {
        let read = |text: &str| serde_json::from_str::<Home>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"claim": "c", "mode": "new"}"#), Ok(Home::Claim("c".parse().unwrap())));
        for bad in ["{}", r#"{"claim": "c", "disk": "d"}"#, r#"{"mode": "new"}"#] {
            assert!(read(bad).unwrap_err().starts_with("name exactly one home"), "{bad}");
        }
    }
}
