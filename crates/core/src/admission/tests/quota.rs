//! Quotas of users and teams.

use super::*;

fn devices(devices: u32) -> Quota {
    Quota { devices: Some(devices), ..Quota::default() }
}

#[test]
fn server_above_quota_does_not_block_others() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", devices(4))
        .server("has", |server| server.gpus(3).admitted(1, &["n1"]))
        .server("more", |server| server.gpus(2))
        .server("fits", |server| server.gpus(1))
        .server("bobs", |server| server.gpus(4).owner("bob"));
    let after = check(
        cluster,
        &[
            "admit fits on n1",
            "admit bobs on n1",
            "pending more #1 QuotaExceeded: Exceeds quota of user ada: requested 2 devices, used 4, limit 4. Stop or \
             hibernate another server, or ask an administrator to raise the quota.",
        ],
    );
    check(after, &[]);
}

#[test]
fn quota_of_one_flavor_is_enforced() {
    let only =
        |flavor: &str, devices: u32| Quota { flavors: [(flavor.to_owned(), devices)].into(), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", only("flavor-gpu", 2))
        .user_quota("bob", only("another", 0))
        .server("fits", |server| server.gpus(2))
        .server("more", |server| server.gpus(1))
        .server("bobs", |server| server.gpus(4).owner("bob"));
    check(
        cluster,
        &[
            "admit fits on n1",
            "admit bobs on n1",
            "pending more #1 QuotaExceeded: Exceeds quota of user ada: requested 1 flavor-gpu, used 2, limit 2. Stop \
             or hibernate another server, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn request_larger_than_quota_is_reported() {
    let cluster =
        Cluster::new([gpu_node("n1", 8)]).user_quota("ada", devices(1)).server("s", |server| server.gpus(2).nodes(2));
    check(
        cluster,
        &["pending s #1 QuotaExceeded: Exceeds quota of user ada: requested 4 devices, used 0, limit 1. Request \
             less, or ask an administrator to raise the quota."],
    );
}

#[test]
fn quota_of_team_is_enforced() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .team_quota("team-vision", devices(4))
        .server("bobs", |server| server.gpus(4).owner("bob").team("team-vision"))
        .server("s", |server| server.team("team-vision"))
        .server("own", |server| server);
    check(
        cluster,
        &[
            "admit bobs on n1",
            "admit own on n1",
            "pending s #1 QuotaExceeded: Exceeds quota of team team-vision: requested 1 device, used 4, limit 4. \
             Stop or hibernate another server, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn cpu_and_memory_quota_is_exact() {
    let quota = |cpu: &str, memory: &str| {
        let read = |text: &str| Some(text.parse::<Quantity>().unwrap());
        let quota = Quota { cpu: read(cpu), memory: read(memory), ..Quota::default() };
        Cluster::new([cpu_node("n1", 64, 256)])
            .user_quota("ada", quota)
            .server("has", |server| server.cpus(4, 16).admitted(1, &["n1"]))
            .server("s", |server| server.cpus(2, 8))
    };
    check(quota("6", "24Gi"), &["admit s on n1"]);
    let hint = "Stop or hibernate another server, or ask an administrator to raise the quota.";
    check(
        quota("5.999999999", "24Gi"),
        &[&format!(
            "pending s #1 QuotaExceeded: Exceeds quota of user ada: requested 2 CPU, used 4, limit 5.999. {hint}"
        )],
    );
    check(
        quota("6", "23Gi"),
        &[&format!(
            "pending s #1 QuotaExceeded: Exceeds quota of user ada: requested 8Gi of memory, used 16Gi, limit 23Gi. {hint}"
        )],
    );
}

#[test]
fn server_quota_counts_hibernated_servers_in_order() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", Quota { servers: Some(2), ..Quota::default() })
        .server("over", |server| Server { ended: true, ..server })
        .server("hibernated", |server| server.intent(QueueIntent::Stopped))
        .server("second", |server| server)
        .server("third", |server| server);
    check(
        cluster,
        &[
            "admit second on n1",
            "pending third #1 QuotaExceeded: Exceeds quota of user ada: requested 1 server, used 2 (hibernated \
             servers included), limit 2. Delete a server, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn lowered_quota_revokes_nothing() {
    let quota = Quota { servers: Some(0), devices: Some(1), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", quota)
        .server("has", |server| server.gpus(4).admitted(1, &["n1"]));
    check(cluster, &[]);
}

#[test]
fn server_without_devices_ignores_exceeded_device_quota() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", devices(1))
        .server("has", |server| server.gpus(4).admitted(1, &["n1"]))
        .server("s", |server| server.cpus(1, 1));
    check(cluster, &["admit s on n1"]);
}

#[test]
fn held_nodes_hold_quota_too() {
    let pool = |node, pool| labelled(node, "pool", pool);
    let cluster = Cluster::new([pool(gpu_node("n1", 8), "a"), pool(gpu_node("n2", 8), "b")])
        .user_quota("ada", devices(8))
        .server("bobs", |server| server.gpus(4).owner("bob").admitted(1, &["n1"]))
        .server("first", |server| server.gpus(8).selects("pool", "a"))
        .server("second", |server| server.gpus(1).selects("pool", "b"))
        .server("third", |server| server.gpus(4).owner("bob").selects("pool", "a"));
    let after = check(
        cluster,
        &[
            "pending first #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; at most 4 \
             free on a node, 4 in total.",
            "pending second #2 QuotaExceeded: Exceeds quota of user ada: requested 1 device, used 0, reserved 8 for \
             servers ahead in the queue, limit 8. Stop or hibernate another server, or ask an administrator to raise \
             the quota.",
            "pending third #3 Reserved: Requires 4 nvidia.com/gpu on one node. Capacity is free but \
             reserved for servers ahead in the queue.",
        ],
    );
    check(after, &[]);
}

/// Returns three admissions of one device each with a quota of two, the last two by different leaders at the same time.
fn conflicting_admissions(epochs: [i64; 3]) -> Cluster {
    let mut cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", Quota { devices: Some(2), ..Quota::default() })
        .server("first", |server| server.admitted(1, &["n1"]))
        .server("second", |server| server.admitted(1, &["n1"]))
        .server("third", |server| server.admitted(1, &["n1"]));
    for (server, epoch) in cluster.servers.iter_mut().zip(epochs) {
        server.admission.as_mut().unwrap().epoch = epoch;
    }
    cluster
}

#[test]
fn quota_conflict_of_two_leaders_is_revoked_before_binding() {
    let message = "Admission revoked: quota of user ada was exhausted by a concurrent admission.";
    let after = check(conflicting_admissions([1, 1, 2]), &[&format!("revoke third #1 QuotaExceeded: {message}")]);
    // It is pending again.
    assert!(after.servers[2].admission.as_ref().unwrap().nodes.is_empty());
    // Admissions of one leader mean that the quota was lowered; bound pods are kept.
    check(conflicting_admissions([1, 1, 1]), &[]);
    let mut lowered = conflicting_admissions([1, 1, 2]);
    lowered.servers[2].admission.as_mut().unwrap().admitted_at = Some(to_api_precision(time(600)));
    check(lowered, &[]);
    check(conflicting_admissions([1, 1, 2]).server_pod("third", 0, 1, |pod| pod.node = Some("n1".into())), &[]);
}

#[test]
fn running_server_counts_before_pending_servers_in_server_quota() {
    let quota = Quota { servers: Some(1), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", quota)
        .server("second", |server| server.admitted(1, &["n1"]))
        .server("first", |server| server.queued_at(-10));
    let plan = cluster.plan();
    assert!(plan.decisions.iter().all(|decision| decision.action != Action::Admit), "{plan:#?}");
}
