//! What a grant is, and what stands in its way.

use super::*;

#[test]
fn a_grant_is_a_new_run_of_this_leader() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("first", |server| server).server("again", |server| {
        server.admission(|admission| {
            (admission.run, admission.epoch) = (6, 9);
            admission.queued_at = Some(stored(time(-100)));
            admission.position = Some(1);
            admission.reason = Some(Reason::Fragmented.into());
            admission.message = Some("Wait.".into());
        })
    });
    let after = check(cluster, &["grant first on n1", "grant again on n1"]);
    let granted = Admission {
        run: 1,
        epoch: 2,
        nodes: vec!["n1".into()],
        placement: Some(Placement::WholeNode),
        granted_at: Some(stored(time(3_600))),
        queued_at: Some(stored(time(0))),
        ..Admission::default()
    };
    assert_eq!(after.servers[0].admission, Some(granted.clone()));
    let placement = Some(Placement::Fullest);
    let again = Admission { run: 7, epoch: 9, placement, queued_at: Some(stored(time(-100))), ..granted };
    assert_eq!(after.servers[1].admission, Some(again));
}

#[test]
fn a_new_leader_alone_changes_nothing() {
    let mut cluster = Cluster::new([gpu_node("n1", 1)]).server("has", |server| server).server("waits", |server| server);
    let plan = cluster.plan();
    cluster = cluster.after(&plan);
    cluster.policy.epoch = 99;
    check(cluster, &[]);
}

#[test]
fn bound_pods_and_grants_are_use_but_never_twice() {
    let cluster = |change: fn(&mut Pod)| {
        Cluster::new([gpu_node("n1", 8)])
            .server("has", |server| server.gpus(4).granted(2, &["n1"]))
            .server_pod("has", 0, 2, change)
            .server("wants", |server| server.gpus(4))
    };
    check(cluster(|_| {}), &["grant wants on n1"]);
    check(cluster(|pod| pod.node = Some("n1".into())), &["grant wants on n1"]);
    // It is on its way out and will be made anew under its name.
    let deleting = |pod: &mut Pod| (pod.node, pod.deleting) = (Some("n1".into()), Some(time(3_500)));
    check(cluster(deleting), &["grant wants on n1"]);
    // What is left of an earlier run is use like that of others: this run was granted beside it.
    let older = |pod: &mut Pod| {
        pod.node = Some("n1".into());
        pod.server.as_mut().unwrap().run = Some(1);
    };
    check(cluster(older), &["wait wants #1 InsufficientCapacity: Needs 4 nvidia.com/gpu on one node; none is free."]);
}

#[test]
fn an_older_pod_elsewhere_is_use_too() {
    let cluster = Cluster::new([gpu_node("n1", 4), gpu_node("n2", 4)])
        .server("has", |server| server.gpus(4).granted(2, &["n1"]))
        .server_pod("has", 0, 1, |pod| pod.node = Some("n2".into()))
        .server("wants", |server| server.gpus(1));
    check(cluster, &["wait wants #1 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; none is free."]);
}

#[test]
fn pods_that_are_over_use_nothing() {
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let over = Pod { phase, ..foreign("p", "n1", 8) };
        check(Cluster::new([gpu_node("n1", 8)]).pod(over).server("s", |server| server), &["grant s on n1"]);
    }
}

#[test]
fn a_server_gets_only_nodes_that_take_it() {
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
        &["wait s #1 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; no node that it could use takes pods \
           at the moment."],
    );
    let tolerant = |mut server: Server| {
        let toleration = Toleration { key: None, operator: TolerationOperator::Exists, value: None, effect: None };
        server.request.tolerations = vec![toleration];
        server
    };
    check(Cluster::new(nodes()).server("s", tolerant), &["grant s on expelling"]);
    let good = labelled(gpu_node("good", 8), "pool", "a");
    let cluster = Cluster::new(nodes().into_iter().chain([good])).server("s", |s| s.selects("pool", "a"));
    check(cluster, &["grant s on good"]);
}

#[test]
fn volumes_decide_where_a_server_can_be() {
    let reach = |zone: &str| -> Reach {
        let volume = serde_json::json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}],
        }}}});
        VolumeSeen::of(&serde_json::from_value(volume).unwrap()).reach
    };
    let nodes = || [labelled(gpu_node("n1", 8), "zone", "a"), labelled(gpu_node("n2", 8), "zone", "b")];
    let with = |zones: &[&str]| {
        let reach = zones.iter().map(|zone| reach(zone)).collect();
        Cluster::new(nodes()).server("s", |mut server| {
            server.request.reach = reach;
            server
        })
    };
    check(with(&["b"]), &["grant s on n2"]);
    check(
        with(&["a", "b"]),
        &["wait s #1 Unsatisfiable: Needs 1 nvidia.com/gpu on one node; none of the nodes it asks for can reach all \
           of its volumes."],
    );
}
