//! Runtime classes: what the API server adds to every pod that names one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::node::v1::RuntimeClass;
use odc_api::v1alpha1::{Toleration, TolerationEffect, TolerationOperator};

use crate::amounts::Amounts;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    pub name: String,
    /// What the runtime itself takes, once for each pod.
    pub overhead: Amounts,
    /// Labels of the nodes that have it.
    pub selector: BTreeMap<String, String>,
    /// Taints of such nodes that its pods may ignore.
    pub tolerations: Vec<Toleration>,
}

impl Runtime {
    pub fn of(class: &RuntimeClass) -> Self {
        let overhead = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref());
        let scheduling = class.scheduling.as_ref();
        let tolerations = scheduling.and_then(|scheduling| scheduling.tolerations.as_ref());
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            overhead: overhead.map(Amounts::of).unwrap_or_default(),
            selector: scheduling.and_then(|scheduling| scheduling.node_selector.clone()).unwrap_or_default(),
            tolerations: tolerations.into_iter().flatten().filter_map(toleration).collect(),
        }
    }
}

/// Nothing for one that we do not know how to read: better to wait than to be refused.
fn toleration(toleration: &k8s::Toleration) -> Option<Toleration> {
    Some(Toleration {
        key: toleration.key.clone().filter(|key| !key.is_empty()),
        operator: match toleration.operator.as_deref() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some(_) => return None,
        },
        value: toleration.value.clone(),
        effect: match toleration.effect.as_deref() {
            None | Some("") => None,
            Some("NoSchedule") => Some(TolerationEffect::NoSchedule),
            Some("PreferNoSchedule") => Some(TolerationEffect::PreferNoSchedule),
            Some("NoExecute") => Some(TolerationEffect::NoExecute),
            Some(_) => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_is_what_it_adds_to_pods() {
        let class = json!({
            "metadata": {"name": "gvisor"},
            "handler": "runsc",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
            "scheduling": {
                "nodeSelector": {"sandbox": "gvisor"},
                "tolerations": [
                    {"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "load", "operator": "Lt", "value": "5"},
                ],
            },
        });
        let seen = Runtime::of(&serde_json::from_value(class).unwrap());
        assert_eq!((seen.overhead.cpu, seen.overhead.memory, seen.overhead.pods), (250, 120 << 20, 0));
        assert_eq!(seen.selector, BTreeMap::from([("sandbox".to_owned(), "gvisor".to_owned())]));
        let [toleration] = seen.tolerations.as_slice() else { panic!("{:?}", seen.tolerations) };
        assert_eq!((toleration.key.as_deref(), toleration.operator), (Some("sandbox"), TolerationOperator::Exists));
        let plain = json!({"metadata": {"name": "runc"}, "handler": "runc"});
        let plain = Runtime::of(&serde_json::from_value(plain).unwrap());
        assert_eq!(plain, Runtime { name: "runc".to_owned(), ..Runtime::default() });
    }
}
