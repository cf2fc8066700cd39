//! Admission of servers and what prevents it.

use super::*;

#[test]
fn admission_starts_new_run_with_epoch_of_leader() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("first", |server| server).server("again", |server| {
        server.admission(|admission| {
            (admission.run, admission.epoch) = (6, 9);
            admission.queued_at = Some(to_api_precision(time(-100)));
            admission.position = Some(1);
            admission.reason = Some(Reason::Fragmented.into());
            admission.message = Some("Pending.".into());
        })
    });
    let after = check(cluster, &["admit first on n1", "admit again on n1"]);
    let first = Admission {
        run: 1,
        epoch: 2,
        nodes: vec!["n1".into()],
        placement: Some(Placement::EmptyNode),
        admitted_at: Some(to_api_precision(time(3_600))),
        queued_at: Some(to_api_precision(time(0))),
        ..Admission::default()
    };
    assert_eq!(after.servers[0].admission, Some(first.clone()));
    let placement = Some(Placement::BestFit);
    let again = Admission { run: 7, epoch: 9, placement, queued_at: Some(to_api_precision(time(-100))), ..first };
    assert_eq!(after.servers[1].admission, Some(again));
}

#[test]
fn new_leader_without_changes_writes_nothing() {
    let mut cluster =
        Cluster::new([gpu_node("n1", 1)]).server("running", |server| server).server("pending", |server| server);
    let plan = cluster.plan();
    cluster = cluster.after(&plan);
    cluster.policy.epoch = 99;
    check(cluster, &[]);
}

#[test]
fn bound_pods_and_assignments_are_counted_once() {
    let cluster = |change: fn(&mut Pod)| {
        Cluster::new([gpu_node("n1", 8)])
            .server("has", |server| server.gpus(4).admitted(2, &["n1"]))
            .server_pod("has", 0, 2, change)
            .server("wants", |server| server.gpus(4))
    };
    check(cluster(|_| {}), &["admit wants on n1"]);
    check(cluster(|pod| pod.node = Some("n1".into())), &["admit wants on n1"]);
    // It is terminating and will be recreated with the same name.
    let deleting = |pod: &mut Pod| (pod.node, pod.deletion_timestamp) = (Some("n1".into()), Some(time(3_500)));
    check(cluster(deleting), &["admit wants on n1"]);
    // A pod of an earlier run is counted separately: this run was admitted in addition to it.
    let older = |pod: &mut Pod| {
        pod.node = Some("n1".into());
        pod.server.as_mut().unwrap().run = Some(1);
    };
    check(
        cluster(older),
        &["pending wants #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 4 on one \
                             node; none free."],
    );
}

#[test]
fn pod_of_earlier_run_on_other_node_is_counted() {
    let cluster = Cluster::new([gpu_node("n1", 4), gpu_node("n2", 4)])
        .server("has", |server| server.gpus(4).admitted(2, &["n1"]))
        .server_pod("has", 0, 1, |pod| pod.node = Some("n2".into()))
        .server("wants", |server| server.gpus(1));
    check(
        cluster,
        &["pending wants #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 1 on one node; \
                      none free."],
    );
}

#[test]
fn terminated_pods_use_nothing() {
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let over = Pod { phase, ..foreign("p", "n1", 8) };
        check(Cluster::new([gpu_node("n1", 8)]).pod(over).server("s", |server| server), &["admit s on n1"]);
    }
}

#[test]
fn server_is_admitted_only_on_schedulable_nodes() {
    let nodes = || {
        [
            Node { cordoned: true, ..gpu_node("cordoned", 8) },
            Node { readiness: Readiness::Unready(time(3_599)), ..gpu_node("unready", 8) },
            Node { readiness: Readiness::New, ..gpu_node("new", 8) },
            Node { taints: vec![taint("pool=x:NoSchedule")], ..gpu_node("tainted", 8) },
            Node { taints: vec![taint("pool=x:NoExecute")], ..gpu_node("expelling", 8) },
        ]
    };
    check(
        Cluster::new(nodes()).server("s", |server| server),
        &["pending s #1 InsufficientCapacity: Requires 1 nvidia.com/gpu on one node. No matching node is schedulable."],
    );
    let tolerant = |mut server: Server| {
        let toleration = Toleration { key: None, operator: TolerationOperator::Exists, value: None, effect: None };
        server.request.tolerations = vec![toleration];
        server
    };
    check(Cluster::new(nodes()).server("s", tolerant), &["admit s on expelling"]);
    let good = labelled(gpu_node("good", 8), "pool", "a");
    let cluster = Cluster::new(nodes().into_iter().chain([good])).server("s", |s| s.selects("pool", "a"));
    check(cluster, &["admit s on good"]);
}

#[test]
fn volume_affinity_restricts_nodes() {
    let reach = |zone: &str| -> VolumeAffinity {
        let volume = serde_json::json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}],
        }}}});
        Volume::from_api(&serde_json::from_value(volume).unwrap()).affinity
    };
    let nodes = || [labelled(gpu_node("n1", 8), "zone", "a"), labelled(gpu_node("n2", 8), "zone", "b")];
    let with = |zones: &[&str]| {
        let reach = zones.iter().map(|zone| reach(zone)).collect();
        Cluster::new(nodes()).server("s", |mut server| {
            server.request.volume_affinity = reach;
            server
        })
    };
    check(with(&["b"]), &["admit s on n2"]);
    check(
        with(&["a", "b"]),
        &["pending s #1 Unsatisfiable: Requires 1 nvidia.com/gpu on one node. No matching node satisfies the node \
           affinity of all volumes."],
    );
    let home_in = |zone: &str, labels: [(&str, &str); 2]| {
        let nodes = labels.map(|(name, zone)| labelled(gpu_node(name, 1), "zone", zone));
        let home = reach(zone);
        let at_home = move |mut server: Server| {
            server.request.home_affinity = Some(home.clone());
            server
        };
        Cluster::new(nodes).server("first", at_home.clone()).server("s", at_home)
    };
    check(
        home_in("b", [("n1", "a"), ("n2", "b")]),
        &[
            "admit first on n2",
            "pending s #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 1 on one node; none free. The home \
             is on node n2.",
        ],
    );
}
