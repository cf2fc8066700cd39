//! Runtime classes: the overhead and scheduling constraints that the API server adds to pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::node::v1 as node;
use odc_api::v1alpha1::{Toleration, TolerationEffect, TolerationOperator};

use crate::resources::Resources;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeClass {
    pub name: String,
    /// The overhead per pod.
    pub overhead: Resources,
    /// Labels of nodes that support it.
    pub selector: BTreeMap<String, String>,
    /// Tolerations added to its pods.
    pub tolerations: Vec<Toleration>,
}

impl RuntimeClass {
    pub fn from_api(class: &node::RuntimeClass) -> Self {
        let overhead = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref());
        let scheduling = class.scheduling.as_ref();
        let tolerations = scheduling.and_then(|scheduling| scheduling.tolerations.as_ref());
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            overhead: overhead.map(Resources::from_list).unwrap_or_default(),
            selector: scheduling.and_then(|scheduling| scheduling.node_selector.clone()).unwrap_or_default(),
            tolerations: tolerations.into_iter().flatten().filter_map(toleration).collect(),
        }
    }
}

/// Returns `None` for unknown operators and effects. The pod then does not tolerate the taint.
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
    fn runtime_class_has_overhead_and_constraints() {
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
        let class = RuntimeClass::from_api(&serde_json::from_value(class).unwrap());
        assert_eq!((class.overhead.cpu, class.overhead.memory, class.overhead.pods), (250, 120 << 20, 0));
        assert_eq!(class.selector, BTreeMap::from([("sandbox".to_owned(), "gvisor".to_owned())]));
        let [toleration] = class.tolerations.as_slice() else { panic!("{:?}", class.tolerations) };
        assert_eq!((toleration.key.as_deref(), toleration.operator), (Some("sandbox"), TolerationOperator::Exists));
        let plain = json!({"metadata": {"name": "runc"}, "handler": "runc"});
        let plain = RuntimeClass::from_api(&serde_json::from_value(plain).unwrap());
        assert_eq!(plain, RuntimeClass { name: "runc".to_owned(), ..RuntimeClass::default() });
    }
}
