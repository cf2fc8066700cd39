//! Quotas of users and teams.

use super::*;

fn devices(devices: u32) -> Quota {
    Quota { devices: Some(devices), ..Quota::default() }
}

#[test]
fn a_quota_holds_at_the_grant_and_holds_nobody_else_up() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", devices(4))
        .server("has", |server| server.gpus(3).granted(1, &["n1"]))
        .server("more", |server| server.gpus(2))
        .server("fits", |server| server.gpus(1))
        .server("bobs", |server| server.gpus(4).owner("bob"));
    let after = check(
        cluster,
        &[
            "grant fits on n1",
            "grant bobs on n1",
            "wait more #1 QuotaExceeded: The quota of user ada is 4 devices, and this server needs 2 besides the 4 in \
             use: end or hibernate another one, or ask an administrator to raise the quota.",
        ],
    );
    check(after, &[]);
}

#[test]
fn a_quota_can_be_of_one_flavor() {
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
            "grant fits on n1",
            "grant bobs on n1",
            "wait more #1 QuotaExceeded: The quota of user ada is 2 flavor-gpu, and this server needs 1 besides the 2 in \
             use: end or hibernate another one, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn what_is_more_than_the_whole_quota_is_said_so() {
    let cluster =
        Cluster::new([gpu_node("n1", 8)]).user_quota("ada", devices(1)).server("s", |server| server.gpus(2).nodes(2));
    check(
        cluster,
        &[
            "wait s #1 QuotaExceeded: The quota of user ada is 1 device, and this server needs 4: ask for less, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn the_team_counts_besides_the_user() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .team_quota("team-vision", devices(4))
        .server("bobs", |server| server.gpus(4).owner("bob").team("team-vision"))
        .server("s", |server| server.team("team-vision"))
        .server("own", |server| server);
    check(
        cluster,
        &[
            "grant bobs on n1",
            "grant own on n1",
            "wait s #1 QuotaExceeded: The quota of team team-vision is 4 devices, and this server needs 1 besides the \
             4 in use: end or hibernate another one, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn cpu_and_memory_are_limited_exactly() {
    let quota = |cpu: &str, memory: &str| {
        let read = |text: &str| Some(text.parse::<Quantity>().unwrap());
        let quota = Quota { cpu: read(cpu), memory: read(memory), ..Quota::default() };
        Cluster::new([cpu_node("n1", 64, 256)])
            .user_quota("ada", quota)
            .server("has", |server| server.cpus(4, 16).granted(1, &["n1"]))
            .server("s", |server| server.cpus(2, 8))
    };
    check(quota("6", "24Gi"), &["grant s on n1"]);
    let help = "end or hibernate another one, or ask an administrator to raise the quota.";
    check(
        quota("5.999999999", "24Gi"),
        &[&format!(
            "wait s #1 QuotaExceeded: The quota of user ada is 5.999 CPU, and this server needs 2 besides the 4 in \
             use: {help}"
        )],
    );
    check(
        quota("6", "23Gi"),
        &[&format!(
            "wait s #1 QuotaExceeded: The quota of user ada is 23Gi of memory, and this server needs 8Gi besides the \
             16Gi in use: {help}"
        )],
    );
}

#[test]
fn servers_are_counted_in_their_order_asleep_or_not() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", Quota { servers: Some(2), ..Quota::default() })
        .server("over", |server| Server { ended: true, ..server })
        .server("asleep", |server| server.want(Want::Rest))
        .server("second", |server| server)
        .server("third", |server| server);
    check(
        cluster,
        &[
            "grant second on n1",
            "wait third #1 QuotaExceeded: The quota of user ada is 2 servers, sleeping ones included, and this is \
             number 3: end an earlier one, or ask an administrator to raise the quota.",
        ],
    );
}

#[test]
fn a_lowered_quota_takes_nothing_away() {
    let quota = Quota { servers: Some(0), devices: Some(1), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", quota)
        .server("has", |server| server.gpus(4).granted(1, &["n1"]));
    check(cluster, &[]);
}

#[test]
fn who_asks_for_none_of_it_may_go_on_above_the_quota() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", devices(1))
        .server("has", |server| server.gpus(4).granted(1, &["n1"]))
        .server("s", |server| server.cpus(1, 1));
    check(cluster, &["grant s on n1"]);
}

#[test]
fn for_whom_nodes_are_kept_quota_is_kept_too() {
    let pool = |node, pool| labelled(node, "pool", pool);
    let cluster = Cluster::new([pool(gpu_node("n1", 8), "a"), pool(gpu_node("n2", 8), "b")])
        .user_quota("ada", devices(8))
        .server("bobs", |server| server.gpus(4).owner("bob").granted(1, &["n1"]))
        .server("first", |server| server.gpus(8).selects("pool", "a"))
        .server("second", |server| server.gpus(1).selects("pool", "b"))
        .server("third", |server| server.gpus(4).owner("bob").selects("pool", "a"));
    let after = check(
        cluster,
        &[
            "wait first #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; at most 4 are free on one node, 4 in all.",
            "wait second #2 QuotaExceeded: The quota of user ada is 8 devices, and this server needs 1 besides the 8 \
             kept for servers of the user ahead of it: end or hibernate another one, or ask an administrator to raise \
             the quota.",
            "wait third #3 InsufficientCapacity: Needs 4 nvidia.com/gpu on one node; that is free, but servers ahead \
             of it in the queue come first.",
        ],
    );
    check(after, &[]);
}

/// Ada may have two devices and was granted three, the last two of them by two leaders at once.
fn overdrawn(epochs: [i64; 3]) -> Cluster {
    let mut cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", Quota { devices: Some(2), ..Quota::default() })
        .server("first", |server| server.granted(1, &["n1"]))
        .server("second", |server| server.granted(1, &["n1"]))
        .server("third", |server| server.granted(1, &["n1"]));
    for (server, epoch) in cluster.servers.iter_mut().zip(epochs) {
        server.admission.as_mut().unwrap().epoch = epoch;
    }
    cluster
}

#[test]
fn a_quota_that_two_leaders_gave_from_is_taken_back_before_pods_have_it() {
    let message = "The quota of user ada was used up at the same time.";
    let after = check(overdrawn([1, 1, 2]), &[&format!("revoke third #1 QuotaExceeded: {message}")]);
    // It waits for its turn like everybody else.
    assert!(after.servers[2].admission.as_ref().unwrap().nodes.is_empty());
    // Of one leader it is a quota that was lowered, and what a pod has already nobody takes away.
    check(overdrawn([1, 1, 1]), &[]);
    let mut lowered = overdrawn([1, 1, 2]);
    lowered.servers[2].admission.as_mut().unwrap().granted_at = Some(stored(time(600)));
    check(lowered, &[]);
    check(overdrawn([1, 1, 2]).server_pod("third", 0, 1, |pod| pod.node = Some("n1".into())), &[]);
}

#[test]
fn a_server_that_runs_counts_before_those_that_came_in_the_same_second() {
    let quota = Quota { servers: Some(1), ..Quota::default() };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .user_quota("ada", quota)
        .server("second", |server| server.granted(1, &["n1"]))
        .server("first", |server| server.since(-10));
    let plan = cluster.plan();
    assert!(plan.decisions.iter().all(|decision| decision.what != What::Grant), "{plan:#?}");
}
