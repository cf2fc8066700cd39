//! Which nodes match a request, apart from what is free on them: labels, taints and volume affinity.

use std::collections::BTreeMap;

use odc_api::v1alpha1::{Toleration, TolerationEffect, TolerationOperator};

use super::event::{Node, NodeState, Request};
use crate::cluster::{Effect, Taint, UNREACHABLE_NODE_TAINTS};

/// Nodes with a label of this prefix are on-request nodes: only servers that select the label use them.
const ON_REQUEST_LABEL_PREFIX: &str = "on-request.odc.dev/";

/// Prefixes of taints that Kubernetes sets for a transient condition of a node, and removes with it.
const TRANSIENT_PREFIXES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Reports whether labels, permanent taints and volume affinity match.
pub(crate) fn matches(request: &Request, labels: &BTreeMap<String, String>, taints: &[Taint]) -> bool {
    is_selected(labels, &request.selector)
        && tolerates_permanent(taints, &request.tolerations)
        && matches_volumes(request, labels)
}

/// Reports whether a node can use all volumes.
pub(super) fn matches_volumes(request: &Request, labels: &BTreeMap<String, String>) -> bool {
    request.home_affinity.iter().chain(&request.volume_affinity).all(|affinity| affinity.matches(labels))
}

/// Reports whether a node has the selected labels, and no on-request label that is not selected.
pub(crate) fn is_selected(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    has_labels(labels, selector) && unselected_on_request_labels(labels, selector).next().is_none()
}

/// Returns the on-request labels of a node that the selector does not name.
pub(super) fn unselected_on_request_labels<'a>(
    labels: &'a BTreeMap<String, String>,
    selector: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a str> {
    let on_request = labels.keys().map(String::as_str).filter(|key| key.starts_with(ON_REQUEST_LABEL_PREFIX));
    on_request.filter(|key| !selector.contains_key(*key))
}

pub(super) fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Reports whether a node accepts new pods with these tolerations now.
pub(super) fn is_schedulable(node: &Node, tolerations: &[Toleration]) -> bool {
    node.state == NodeState::Schedulable && tolerates(&node.taints, tolerations)
}

/// Reports whether all taints are tolerated.
pub(crate) fn tolerates(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints.iter().all(|taint| is_tolerated(taint, tolerations))
}

/// Reports whether all taints are tolerated that do not reflect a transient condition.
pub(super) fn tolerates_permanent(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    let is_transient = |taint: &Taint| TRANSIENT_PREFIXES.iter().any(|prefix| taint.key.starts_with(prefix));
    taints.iter().all(|taint| is_transient(taint) || is_tolerated(taint, tolerations))
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == Effect::PreferNoSchedule
        || UNREACHABLE_NODE_TAINTS.contains(&taint.key.as_str())
        || tolerations.iter().any(|toleration| matches_taint(toleration, taint))
}

fn matches_taint(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.is_none_or(|effect| {
        taint.effect
            == match effect {
                TolerationEffect::NoSchedule => Effect::NoSchedule,
                TolerationEffect::PreferNoSchedule => Effect::PreferNoSchedule,
                TolerationEffect::NoExecute => Effect::NoExecute,
            }
    });
    let value = match toleration.operator {
        TolerationOperator::Exists => true,
        TolerationOperator::Equal => toleration.value.as_deref().unwrap_or_default() == taint.value,
    };
    effect && value && (key.is_empty() || key == taint.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::fixtures::taint;

    #[test]
    fn on_request_node_is_selected_only_by_its_label() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let (plain, profiling) = (("gpu", "h100"), ("on-request.odc.dev/profiling", "yes"));
        let other = ("on-request.odc.dev/debug", "yes");
        let node = map(&[plain, profiling]);
        for (selector, selected) in [
            (vec![], false),
            (vec![plain], false),
            (vec![profiling], true),
            (vec![plain, profiling], true),
            (vec![other], false),
            (vec![("on-request.odc.dev/profiling", "no")], false),
        ] {
            assert_eq!(is_selected(&node, &map(&selector)), selected, "{selector:?}");
        }
        assert!(is_selected(&map(&[plain]), &map(&[])));
        assert!(!is_selected(&map(&[plain, profiling, other]), &map(&[profiling])));
    }

    fn toleration(key: &str, value: Option<&str>, effect: Option<TolerationEffect>) -> Toleration {
        let operator = if value.is_some() { TolerationOperator::Equal } else { TolerationOperator::Exists };
        let key = Some(key.to_owned()).filter(|key| !key.is_empty());
        Toleration { key, operator, value: value.map(Into::into), effect }
    }

    fn check(taints: &[&str], tolerations: &[Toleration], now: bool, permanent: bool) {
        let parsed: Vec<Taint> = taints.iter().map(|text| taint(text)).collect();
        assert_eq!(tolerates(&parsed, tolerations), now, "{taints:?} and {tolerations:?}");
        assert_eq!(tolerates_permanent(&parsed, tolerations), permanent, "{taints:?} and {tolerations:?}, permanent");
    }

    #[test]
    fn tolerations_match_as_in_kubernetes() {
        use TolerationEffect::{NoExecute, NoSchedule};
        let pool = ["pool=gpu:NoSchedule"];
        check(&[], &[], true, true);
        check(&pool, &[], false, false);
        check(&pool, &[toleration("pool", Some("gpu"), None)], true, true);
        check(&pool, &[toleration("pool", Some("cpu"), None)], false, false);
        check(&pool, &[toleration("other", Some("gpu"), None)], false, false);
        check(&pool, &[toleration("pool", None, None)], true, true);
        check(&pool, &[toleration("pool", None, Some(NoSchedule))], true, true);
        check(&pool, &[toleration("pool", None, Some(NoExecute))], false, false);
        check(&pool, &[toleration("", None, None)], true, true);
        check(&pool, &[toleration("", None, Some(NoExecute))], false, false);
        check(&["pool:NoSchedule"], &[toleration("pool", Some(""), None)], true, true);
        check(&["pool=gpu:NoExecute"], &[toleration("pool", None, Some(NoExecute))], true, true);
        check(&["pool=gpu:NoSchedule", "x:NoSchedule"], &[toleration("pool", None, None)], false, false);
    }

    #[test]
    fn prefer_no_schedule_taint_is_tolerated() {
        check(&["pool=gpu:PreferNoSchedule"], &[], true, true);
    }

    #[test]
    fn taint_of_transient_condition_is_not_permanent() {
        check(
            &["node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"],
            &[],
            true,
            true,
        );
        check(&["node.kubernetes.io/memory-pressure:NoSchedule"], &[], false, true);
        check(&["node.kubernetes.io/unschedulable:NoSchedule", "x:NoSchedule"], &[], false, false);
    }
}
