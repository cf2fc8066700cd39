//! All kinds of requests that the HTTP API sends to the Kubernetes API.
//!
//! The API creates no pods and changes no object: it watches, reads, and asks for reviews that are not stored. The table is
//! the basis of its RBAC rules and is compared with the audit log of the API server.

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: &'static str,
    pub group: &'static str,
    /// Plural, with the subresource.
    pub resource: &'static str,
    pub purpose: &'static str,
}

const fn call(verb: &'static str, group: &'static str, resource: &'static str, purpose: &'static str) -> Call {
    Call { verb, group, resource, purpose }
}

/// The maximum number of kinds of requests.
pub const MAX_CALLS: usize = 20;

/// Lists are streamed by watches, so the verb `list` is not needed for watched kinds.
pub const CALLS: &[Call] = &[
    call("watch", "odc.dev", "devservers", "answer reads from memory, events"),
    call("watch", "odc.dev", "disks", "answer reads from memory"),
    call("watch", "odc.dev", "diskoperations", "answer reads from memory"),
    call("watch", "odc.dev", "devserverflavors", "answer reads from memory"),
    call("watch", "odc.dev", "devserverusers", "roles of callers"),
    call("watch", "odc.dev", "teams", "answer reads from memory"),
    call("watch", "", "nodes", "answer reads from memory"),
    call("create", "authentication.k8s.io", "tokenreviews", "check tokens of Kubernetes"),
    call("get", "", "pods/log", "logs of a server"),
    call("list", "", "events", "events of a server"),
    call("get", "", "configmaps", "listing of a restore point"),
    call("list", "", "persistentvolumeclaims", "claims that can be mounted"),
    call("list", "queue.odc.dev", "queues", "queue of each flavor"),
    call("list", "queue.odc.dev", "queueentries", "pending servers with estimates"),
    call("list", "queue.odc.dev", "availabilities", "estimated starts of new servers"),
    call("create", "queue.odc.dev", "dryruns", "estimated start of one server"),
    call("create", "queue.odc.dev", "whatifs", "effect of other quotas"),
    call("create", "queue.odc.dev", "heartbeats", "pass heartbeats to agents"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_few_and_change_nothing() {
        assert!(CALLS.len() <= MAX_CALLS);
        for call in CALLS {
            let is_review = matches!(call.group, "queue.odc.dev" | "authentication.k8s.io");
            assert!(matches!(call.verb, "get" | "list" | "watch") || (call.verb == "create" && is_review), "{call:?}");
        }
    }
}
