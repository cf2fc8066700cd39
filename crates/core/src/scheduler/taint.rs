//! Taints of nodes, and what servers make of them. The rules are Kubernetes' own.

use odc_api::v1alpha1::{Toleration, TolerationEffect, TolerationOperator};

use crate::seen::{Effect, Taint};

/// Every server's pods stay through these: whether their node is lost is for the operator to say.
const TOLERATED: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Taints by which Kubernetes says how a node is at the moment; they go when that ends.
const PASSING: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// Whether a pod with these tolerations would be let in now.
pub(crate) fn lets_in(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    taints.iter().all(|taint| tolerated(taint, tolerations))
}

/// Whether it would be let in once the node is well.
pub(crate) fn would_let_in(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    let passes = |taint: &Taint| PASSING.iter().any(|prefix| taint.key.starts_with(prefix));
    taints.iter().all(|taint| passes(taint) || tolerated(taint, tolerations))
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == Effect::PreferNoSchedule
        || TOLERATED.contains(&taint.key.as_str())
        || tolerations.iter().any(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
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
    use crate::grants::fixtures::taint;

    fn toleration(key: &str, value: Option<&str>, effect: Option<TolerationEffect>) -> Toleration {
        let operator = if value.is_some() { TolerationOperator::Equal } else { TolerationOperator::Exists };
        let key = Some(key.to_owned()).filter(|key| !key.is_empty());
        Toleration { key, operator, value: value.map(Into::into), effect }
    }

    fn check(taints: &[&str], tolerations: &[Toleration], now: bool, once_well: bool) {
        let on_node: Vec<Taint> = taints.iter().map(|text| taint(text)).collect();
        assert_eq!(lets_in(&on_node, tolerations), now, "{taints:?} and {tolerations:?}");
        assert_eq!(would_let_in(&on_node, tolerations), once_well, "{taints:?} and {tolerations:?}, once well");
    }

    #[test]
    fn tolerations_are_kubernetes_own() {
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
    fn a_wish_to_be_avoided_is_no_refusal() {
        check(&["pool=gpu:PreferNoSchedule"], &[], true, true);
    }

    #[test]
    fn how_a_node_is_at_the_moment_passes() {
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
