//! What is decided in situations people know, told line by line.

use odc_api::quantity::Quantity;
use odc_api::time::stored;
use odc_api::v1alpha1::{Admission, Quota, Toleration, TolerationOperator};

use super::fixtures::{Cluster, check, cpu_node, foreign, gpu_node, labelled, node, server_pod, taint, time};
use super::{Server, Want, What};
use crate::plan::Again;
use crate::seen::{Node, Pod, PodPhase, Reach, Readiness, VolumeSeen};

mod order {
    use super::*;

    #[test]
    fn the_first_who_asked_is_the_first_who_gets() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .server("late", |server| server.gpus(8).since(20))
            .server("early", |server| server.gpus(8).since(10));
        let after = check(
            cluster,
            &[
                "grant early on n1",
                "wait late #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free.",
            ],
        );
        check(after, &[]);
    }

    #[test]
    fn of_two_at_the_same_second_the_name_decides() {
        let mut cluster = Cluster::new([gpu_node("n1", 1)]).server("b", |server| server).server("a", |server| server);
        cluster.servers[0].since = time(7) + std::time::Duration::from_millis(1);
        cluster.servers[1].since = time(7) + std::time::Duration::from_millis(999);
        check(
            cluster,
            &["grant a on n1", "wait b #1 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; none is free."],
        );
    }

    #[test]
    fn a_small_one_does_not_pass_a_large_one_on_the_same_nodes() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .pod(foreign("p", "n1", 0))
            .server("running", |server| server.gpus(4).granted(1, &["n1"]))
            .server("large", |server| server.gpus(8))
            .server("small", |server| server.gpus(1));
        check(
            cluster,
            &[
                "wait large #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; at most 4 are free on one node, \
                 4 in all.",
                "wait small #2 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; that is free, but servers that \
                 asked earlier come first.",
            ],
        );
    }

    #[test]
    fn servers_on_other_nodes_do_not_wait_for_each_other() {
        let pool = |node, pool| labelled(node, "pool", pool);
        let cluster = Cluster::new([pool(gpu_node("n1", 8), "a"), pool(gpu_node("n2", 8), "b")])
            .server("running", |server| server.gpus(8).granted(1, &["n1"]))
            .server("waits", |server| server.gpus(8).selects("pool", "a"))
            .server("else", |server| server.selects("pool", "b"))
            .server("any", |server| server.gpus(2));
        check(
            cluster,
            &[
                "grant else on n2",
                "grant any on n2",
                "wait waits #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free.",
            ],
        );
    }

    #[test]
    fn who_can_never_be_served_holds_nobody_up() {
        let cluster = Cluster::new([gpu_node("n1", 8)]).server("huge", |server| server.gpus(9)).server("s", |s| s);
        check(
            cluster,
            &[
                "grant s on n1",
                "wait huge #1 Unsatisfiable: Needs 9 nvidia.com/gpu on one node; no node has more than 8.",
            ],
        );
    }

    #[test]
    fn who_waits_for_other_peoples_pods_holds_nobody_up() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .pod(foreign("p", "n1", 1))
            .server("whole", |server| server.gpus(8))
            .server("s", |server| server);
        check(
            cluster,
            &[
                "grant s on n1",
                "wait whole #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; at most 6 are free on one node, \
                 6 in all.",
            ],
        );
    }

    #[test]
    fn who_waits_for_a_cordoned_node_does_not_keep_the_others_empty() {
        let cluster = Cluster::new([Node { cordoned: true, ..gpu_node("n1", 8) }, gpu_node("n2", 8)])
            .server("gang", |server| server.gpus(8).nodes(2))
            .server("s", |server| server);
        check(
            cluster,
            &[
                "grant s on n2",
                "wait gang #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 2 nodes; at most 7 are free on one \
                 node, 7 in all.",
            ],
        );
    }

    #[test]
    fn a_node_that_restarts_is_waited_for() {
        let restarting = Node { readiness: Readiness::Unready(time(3_590)), ..gpu_node("n1", 8) };
        let cluster = Cluster::new([restarting, gpu_node("n2", 8)])
            .server("gang", |server| server.gpus(8).nodes(2))
            .server("s", |server| server);
        check(
            cluster,
            &[
                "wait gang #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 2 nodes; only 1 node has enough, \
                 and 8 are free in all.",
                "wait s #2 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; that is free, but servers that asked \
                 earlier come first.",
            ],
        );
    }

    #[test]
    fn who_does_not_compete_is_not_in_the_queue() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .server("booked", |server| server.want(Want::Later))
            .server("sleeping", |server| server.want(Want::Rest))
            .server("over", |server| Server { ended: true, ..server });
        check(cluster, &[]);
    }

    #[test]
    fn leaving_the_queue_is_noted() {
        let queued = |server: Server| {
            let since = server.since;
            server.admission(|admission| {
                *admission = Admission {
                    run: 3,
                    epoch: 1,
                    queued_at: Some(stored(since)),
                    position: Some(4),
                    reason: Some("InsufficientCapacity".into()),
                    message: Some("Too bad.".into()),
                    ..Admission::default()
                }
            })
        };
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .server("booked", |server| queued(server).want(Want::Later))
            .server("sleeping", |server| queued(server).want(Want::Rest));
        let after = check(cluster, &["release booked", "release sleeping"]);
        let kept = Admission { run: 3, epoch: 2, ..Admission::default() };
        assert_eq!(after.servers[0].admission, Some(Admission { queued_at: Some(stored(time(0))), ..kept.clone() }));
        assert_eq!(after.servers[1].admission, Some(kept));
        check(after, &[]);
    }
}

mod grants {
    use super::*;

    #[test]
    fn a_grant_is_a_new_run_of_this_leader() {
        let cluster = Cluster::new([gpu_node("n1", 8)]).server("first", |server| server).server("again", |server| {
            server.admission(|admission| {
                (admission.run, admission.epoch) = (6, 9);
                admission.queued_at = Some(stored(time(-100)));
                admission.position = Some(1);
                admission.reason = Some("Fragmented".into());
                admission.message = Some("Wait.".into());
            })
        });
        let after = check(cluster, &["grant first on n1", "grant again on n1"]);
        let granted = Admission {
            run: 1,
            epoch: 2,
            nodes: vec!["n1".into()],
            granted_at: Some(stored(time(3_600))),
            queued_at: Some(stored(time(0))),
            ..Admission::default()
        };
        assert_eq!(after.servers[0].admission, Some(granted.clone()));
        let again = Admission { run: 7, epoch: 9, queued_at: Some(stored(time(-100))), ..granted };
        assert_eq!(after.servers[1].admission, Some(again));
    }

    #[test]
    fn a_new_leader_alone_changes_nothing() {
        let mut cluster =
            Cluster::new([gpu_node("n1", 1)]).server("has", |server| server).server("waits", |server| server);
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
        check(
            cluster(older),
            &["wait wants #1 InsufficientCapacity: Needs 4 nvidia.com/gpu on one node; none is free."],
        );
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
            &[
                "wait s #1 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; no node that it could use takes pods \
               at the moment.",
            ],
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
            &[
                "wait s #1 Unsatisfiable: Needs 1 nvidia.com/gpu on one node; none of the nodes it asks for can reach all \
               of its volumes.",
            ],
        );
    }
}

mod placement {
    use super::*;

    #[test]
    fn the_fullest_node_that_fits_is_taken() {
        let nodes = || ["n1", "n2", "n3"].map(|name| gpu_node(name, 8));
        let used = |one, two, three| {
            let pods = [("p1", "n1", one), ("p2", "n2", two), ("p3", "n3", three)];
            let mut cluster = Cluster::new(nodes()).server("s", |server| server.gpus(2));
            cluster.pods.extend(pods.map(|(name, node, gpus)| foreign(name, node, gpus)));
            cluster
        };
        check(used(0, 0, 0), &["grant s on n1"]);
        check(used(0, 3, 5), &["grant s on n3"]);
        check(used(0, 3, 7), &["grant s on n2"]);
        check(used(7, 8, 0), &["grant s on n3"]);
    }

    #[test]
    fn a_small_whole_node_stays_whole() {
        let cluster = Cluster::new([gpu_node("n1", 2), gpu_node("n2", 8)]).pod(foreign("p", "n2", 1));
        check(cluster.server("s", |server| server), &["grant s on n2"]);
    }

    #[test]
    fn of_equal_nodes_that_with_less_cpu_is_taken() {
        let mut busy = foreign("p", "n2", 0);
        busy.requests.cpu = 1_000;
        let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
            .pod(busy)
            .pod(foreign("p1", "n1", 1))
            .pod(foreign("p2", "n2", 1));
        check(cluster.server("s", |server| server), &["grant s on n2"]);
    }

    #[test]
    fn servers_without_devices_leave_nodes_with_devices_alone() {
        let cluster = Cluster::new([gpu_node("a-gpu", 8), cpu_node("b-cpu", 4, 16), cpu_node("c-cpu", 4, 16)])
            .server("one", |server| server.cpus(2, 4))
            .server("two", |server| server.cpus(2, 4))
            .server("three", |server| server.cpus(4, 4))
            .server("four", |server| server.cpus(1, 4));
        check(cluster, &["grant one on b-cpu", "grant two on b-cpu", "grant three on c-cpu", "grant four on a-gpu"]);
    }
}

mod gangs {
    use super::*;

    #[test]
    fn a_gang_gets_all_nodes_or_none() {
        let nodes = || ["n1", "n2", "n3"].map(|name| gpu_node(name, 8));
        let cluster = Cluster::new(nodes()).pod(foreign("p", "n2", 1)).server("s", |s| s.gpus(8).nodes(2));
        check(cluster, &["grant s on n1, n3"]);
        let cluster = Cluster::new(nodes())
            .server("has", |server| server.granted(1, &["n2"]))
            .server("s", |server| server.gpus(8).nodes(3));
        check(
            cluster,
            &[
                "wait s #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 3 nodes; only 2 nodes have enough, and \
               23 are free in all.",
            ],
        );
        let cluster = Cluster::new(nodes()).server("s", |server| server.gpus(8).nodes(4));
        check(
            cluster,
            &["wait s #1 Unsatisfiable: Needs 8 nvidia.com/gpu on each of 4 nodes; only 3 such nodes could ever hold \
               that."],
        );
    }

    #[test]
    fn two_gangs_never_hold_half_each() {
        let cluster = Cluster::new((1..=8).map(|number| gpu_node(&format!("n{number}"), 8)))
            .server("one", |server| server.gpus(8).nodes(5))
            .server("two", |server| server.gpus(8).nodes(5));
        let after = check(
            cluster,
            &[
                "grant one on n1, n2, n3, n4, n5",
                "wait two #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 5 nodes; only 3 nodes have enough, \
                 and 24 are free in all.",
            ],
        );
        check(after, &[]);
    }

    #[test]
    fn a_gang_agrees_on_the_topology() {
        let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
        let gang = |nodes| move |server: Server| server.gpus(8).nodes(nodes).topology("zone");
        let nodes = || [zone("n1", "a"), zone("n2", "b"), zone("n3", "b"), zone("n4", "b"), gpu_node("n5", 8)];
        check(Cluster::new(nodes()).server("s", gang(2)), &["grant s on n2, n3"]);
        check(Cluster::new(nodes()).server("s", gang(1)), &["grant s on n1"]);
        check(
            Cluster::new(nodes()).server("has", |server| server.granted(1, &["n3"])).server("s", gang(3)),
            &[
                "wait s #1 Fragmented: Needs 8 nvidia.com/gpu on each of 3 nodes with the same zone; only 2 such nodes have \
               all of that free at once.",
            ],
        );
        check(
            Cluster::new(nodes()).server("s", gang(4)),
            &[
                "wait s #1 Unsatisfiable: Needs 8 nvidia.com/gpu on each of 4 nodes with the same zone; only 3 such nodes \
               could ever hold that.",
            ],
        );
        check(
            Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)]).server("s", gang(2)),
            &[
                "wait s #1 Unsatisfiable: Needs 8 nvidia.com/gpu on each of 2 nodes with the same zone; no node that could \
               hold it has that label.",
            ],
        );
    }

    #[test]
    fn the_tightest_zone_that_will_do_is_taken() {
        let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
        let nodes = [zone("n1", "a"), zone("n2", "a"), zone("n3", "a"), zone("n4", "b"), zone("n5", "b")];
        let cluster = Cluster::new(nodes).server("s", |server| server.gpus(8).nodes(2).topology("zone"));
        check(cluster, &["grant s on n4, n5"]);
    }

    #[test]
    fn a_gang_keeps_only_zones_that_could_hold_it() {
        let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
        let cluster = Cluster::new([zone("n1", "a"), zone("n2", "b"), zone("n3", "b")])
            .server("has", |server| server.granted(1, &["n2"]))
            .server("gang", |server| server.gpus(8).nodes(2).topology("zone"))
            .server("s", |server| server.gpus(8));
        check(
            cluster,
            &[
                "grant s on n1",
                "wait gang #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 2 nodes with the same zone; only 1 \
                 node has enough, and 15 are free in all.",
            ],
        );
    }
}

mod words {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_numbers() {
        let used = |one, two| {
            Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
                .server("one", |server| server.gpus(one).granted(1, &["n1"]))
                .server("two", |server| server.gpus(two).granted(1, &["n2"]))
                .server("s", |server| server.gpus(4))
        };
        let needs = "Needs 4 nvidia.com/gpu on one node;";
        for (one, two, expect) in [
            (5, 5, "Fragmented: {} at most 3 are free on one node, 6 in all."),
            (7, 6, "InsufficientCapacity: {} at most 2 are free on one node, 3 in all."),
            (7, 7, "InsufficientCapacity: {} at most 1 is free on one node, 2 in all."),
            (8, 8, "InsufficientCapacity: {} none is free."),
        ] {
            check(used(one, two), &[&format!("wait s #1 {}", expect.replace("{}", needs))]);
        }
    }

    #[test]
    fn flavors_without_devices_speak_of_cpu_and_memory() {
        let cluster = |nodes: &[Node]| Cluster::new(nodes.to_vec()).server("s", |server| server.cpus(4, 16));
        let needs = "Needs 4 CPU and 16Gi of memory on one node;";
        let mut half = foreign("p", "n1", 0);
        half.requests.cpu = 500;
        for (cluster, expect) in [
            (cluster(&[cpu_node("n1", 2, 64)]), "Unsatisfiable: {} no node has more than 2 CPU."),
            (cluster(&[cpu_node("n1", 8, 8)]), "Unsatisfiable: {} no node has more than 8Gi of memory."),
            (cluster(&[cpu_node("n1", 8, 8), cpu_node("n2", 2, 64)]), "Unsatisfiable: {} no node has all of that."),
            (
                cluster(&[cpu_node("n1", 4, 64)]).pod(half.clone()),
                "InsufficientCapacity: {} at most 3.5 CPU are free on one node, 3.5 in all.",
            ),
            (
                cluster(&[cpu_node("n1", 4, 64), cpu_node("n2", 2, 64)]).pod(half),
                "Fragmented: {} at most 3.5 CPU are free on one node, 5.5 in all.",
            ),
        ] {
            check(cluster, &[&format!("wait s #1 {}", expect.replace("{}", needs))]);
        }
    }

    #[test]
    fn what_is_short_besides_the_device_is_named_too() {
        let mut node = gpu_node("n1", 8);
        node.allocatable.cpu = 8_000;
        let hungry = |mut server: Server| {
            server.request.each.cpu = 6_000;
            server
        };
        let cluster =
            Cluster::new([node.clone()]).server("has", |server| hungry(server).granted(1, &["n1"])).server("s", hungry);
        check(
            cluster,
            &[
                "wait s #1 InsufficientCapacity: Needs 1 nvidia.com/gpu with 6 CPU on one node; at most 2 CPU are free on \
               one node, 2 in all.",
            ],
        );
        node.allocatable.pods = 1;
        let cluster = Cluster::new([node]).server("has", |s| s.granted(1, &["n1"])).server("s", |server| server);
        check(
            cluster,
            &["wait s #1 InsufficientCapacity: Needs 1 nvidia.com/gpu with room for a pod on one node; no node takes \
               one more pod."],
        );
    }

    #[test]
    fn enough_of_each_but_not_together_is_fragmentation() {
        let mut busy = foreign("p", "n1", 0);
        busy.requests.cpu = 255_500;
        let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
            .pod(busy)
            .server("has", |server| server.gpus(8).granted(1, &["n2"]))
            .server("s", |server| server);
        check(
            cluster,
            &["wait s #1 Fragmented: Needs 1 nvidia.com/gpu on one node; no node has all of that free at once."],
        );
    }

    #[test]
    fn what_no_node_has_right_is_named() {
        let needs = "wait s #1 Unsatisfiable: Needs 1 nvidia.com/gpu on one node;";
        let said = |cluster: Cluster, expect: &str| {
            check(cluster, &[&format!("{needs} {expect}.")]);
        };
        said(Cluster::new([]).server("s", |server| server), "the cluster has no node");
        said(
            Cluster::new([gpu_node("n1", 8)]).server("s", |server| server.selects("pool", "a").selects("disk", "fast")),
            "no node has the labels it asks for (disk=fast, pool=a)",
        );
        let tainted = Node { taints: vec![taint("a:NoSchedule")], ..gpu_node("n1", 8) };
        said(
            Cluster::new([tainted]).server("s", |server| server),
            "every node it could use has a taint that its flavor does not tolerate",
        );
        said(Cluster::new([cpu_node("n1", 8, 8)]).server("s", |server| server), "no node has any");
        said(
            Cluster::new([labelled(node("n1"), "pool", "a")]).server("s", |server| server.selects("pool", "a")),
            "no node with the labels it asks for has any",
        );
    }
}

mod quotas {
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
    fn what_is_more_than_the_whole_quota_is_said_so() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .user_quota("ada", devices(1))
            .server("s", |server| server.gpus(2).nodes(2));
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
                "wait third #1 QuotaExceeded: The quota of user ada is 2 servers, sleeping ones included, and 2 were asked \
                 for before this one: end one of those, or ask an administrator to raise the quota.",
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
    fn a_quota_that_a_later_server_uses_up_frees_the_nodes_of_the_earlier() {
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
                "grant second on n2",
                "grant third on n1",
                "wait first #1 QuotaExceeded: The quota of user ada is 8 devices, and this server needs 8 besides the 1 in \
                 use: end or hibernate another one, or ask an administrator to raise the quota.",
            ],
        );
        check(after, &[]);
    }
}

mod ends {
    use super::*;

    #[test]
    fn a_grant_is_given_back_when_the_last_pod_is_gone() {
        let resting = || {
            Cluster::new([gpu_node("n1", 8)])
                .server("s", |server| server.gpus(8).granted(3, &["n1"]).want(Want::Rest))
                .server("next", |server| server.gpus(8))
        };
        let deleting = |pod: &mut Pod| (pod.node, pod.deleting) = (Some("n1".into()), Some(time(3_500)));
        let waits = "wait next #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free.";
        check(resting().server_pod("s", 0, 3, deleting), &[waits]);
        // Somebody took its owner reference away, or it is of another run: it is there all the same.
        let stripped = |pod: &mut Pod| pod.server.as_mut().unwrap().owner = None;
        check(resting().server_pod("s", 0, 3, stripped), &[waits]);
        check(resting().server_pod("s", 7, 1, |_| {}), &[waits]);
        let after = check(resting(), &["release s", "grant next on n1"]);
        assert_eq!(after.servers[0].admission, Some(Admission { run: 3, epoch: 2, ..Admission::default() }));
        check(after, &[]);
    }

    #[test]
    fn what_has_ended_gives_back_whatever_it_wants() {
        let cluster =
            Cluster::new([gpu_node("n1", 8)]).server("s", |s| Server { ended: true, ..s.granted(1, &["n1"]) });
        check(cluster, &["release s"]);
    }

    #[test]
    fn pods_of_another_namespace_are_not_ones_own() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .server("s", |server| server.granted(1, &["n1"]).want(Want::Rest))
            .server_pod("s", 0, 1, |pod| pod.namespace = "dev-eve".into());
        check(cluster, &["release s"]);
    }

    #[test]
    fn what_only_waits_for_something_keeps_its_grant() {
        let cluster = Cluster::new([gpu_node("n1", 8)]).server("s", |s| s.granted(1, &["n1"]).want(Want::Later));
        check(cluster, &[]);
    }
}

mod revoking {
    use super::*;

    fn granted(node: Node) -> Cluster {
        Cluster::new([node]).server("s", |server| server.gpus(4).granted(1, &["n1"]))
    }

    fn bound(pod: &mut Pod) {
        pod.node = Some("n1".into());
    }

    #[test]
    fn a_node_that_is_gone_or_lost_loses_its_grants() {
        let gone = granted(gpu_node("n2", 8)).server_pod("s", 0, 1, bound);
        let after = check(gone, &["revoke s #1 NodeLost: Node n1 does not exist any more."]);
        let back = Admission {
            run: 1,
            epoch: 2,
            queued_at: Some(stored(time(0))),
            position: Some(1),
            reason: Some("NodeLost".into()),
            message: Some("Node n1 does not exist any more.".into()),
            ..Admission::default()
        };
        assert_eq!(after.servers[0].admission, Some(back));
        let after = check(after, &["grant s on n2"]);
        assert_eq!(after.servers[0].admission.as_ref().map(|admission| admission.run), Some(2));
        check(after, &[]);

        let silent = |since| granted(Node { readiness: Readiness::Unready(time(since)), ..gpu_node("n1", 8) });
        check(silent(3_000), &["revoke s #1 NodeLost: Node n1 does not answer any more and counts as lost."]);
        let waiting = silent(3_001);
        assert_eq!(waiting.plan().again, Again::After(std::time::Duration::from_secs(1)));
        check(waiting, &[]);
        check(granted(Node { readiness: Readiness::New, ..gpu_node("n1", 8) }), &[]);
    }

    #[test]
    fn a_stop_in_order_is_not_hurried_by_a_lost_node() {
        let lost = Node { readiness: Readiness::Unready(time(0)), ..gpu_node("n1", 8) };
        let mut cluster = granted(lost).server_pod("s", 0, 1, bound);
        cluster.servers[0].want = Want::Rest;
        check(cluster, &[]);
    }

    #[test]
    fn a_pod_that_was_ended_takes_its_grant_with_it() {
        let evicted = |pod: &mut Pod| {
            bound(pod);
            pod.phase = PodPhase::Failed;
            let server = pod.server.as_mut().unwrap();
            server.reason = Some("UnexpectedAdmissionError".into());
            server.message = Some("no healthy devices.".into());
        };
        let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, evicted);
        let plan = cluster.plan();
        assert_eq!(plan.refused.len(), 1);
        assert_eq!(plan.again, Again::After(cluster.policy.retry_after));
        let said = "UnexpectedAdmissionError: no healthy devices";
        let after = check(cluster, &[&format!("revoke s #1 Unschedulable: Node n1 ended the pod: {said}.")]);
        let refused = format!(
            "wait s #1 Unschedulable: Needs 4 nvidia.com/gpu on one node; node n1 did not take it ({said}) and is tried \
             again when it changes."
        );
        let after = check(after, &[&refused]);
        let after = check(after, &[]);

        // Others are not refused.
        let other = check(after.clone().server("other", |server| server.gpus(8)), &["grant other on n1"]);
        drop(other);
        // It goes where it is not refused, comes back when the node is another one, and some time later anyway.
        let mut elsewhere = after.clone();
        elsewhere.nodes.push(gpu_node("n2", 8));
        check(elsewhere, &["grant s on n2"]);
        let mut changed = after.clone();
        changed.nodes[0].allocatable.cpu += 1;
        let plan = changed.plan();
        assert_eq!((plan.decisions[0].what, plan.unfit.of_server("uid-s").count()), (What::Grant, 0));
        let mut later = after;
        later.now = time(3_900);
        check(later, &["grant s on n1"]);
    }

    #[test]
    fn a_node_that_changed_and_changed_back_has_changed() {
        let over = |pod: &mut Pod| {
            bound(pod);
            pod.phase = PodPhase::Failed;
        };
        let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, over);
        let mut cluster = check(cluster, &["revoke s #1 Unschedulable: Node n1 ended the pod: it did not say why."]);
        cluster.nodes[0].readiness = Readiness::Unready(cluster.now);
        let plan = cluster.plan();
        let mut cluster = cluster.after(&plan);
        cluster.nodes[0].readiness = Readiness::Ready;
        check(cluster, &["grant s on n1"]);
    }

    #[test]
    fn a_pod_on_its_way_out_was_not_refused() {
        let ending = |pod: &mut Pod| {
            bound(pod);
            (pod.phase, pod.deleting) = (PodPhase::Failed, Some(time(3_599)));
        };
        check(granted(gpu_node("n1", 8)).server_pod("s", 0, 1, ending), &[]);
    }

    #[test]
    fn a_pod_of_another_run_says_nothing() {
        let over = |pod: &mut Pod| {
            bound(pod);
            pod.phase = PodPhase::Failed;
        };
        check(granted(gpu_node("n1", 8)).server_pod("s", 0, 0, over), &[]);
    }

    #[test]
    fn a_pod_without_a_place_goes_back_to_the_queue() {
        let unplaced = |since: i64| {
            move |pod: &mut Pod| {
                let server = pod.server.as_mut().unwrap();
                (server.unschedulable, server.message) = (Some(time(since)), Some("0/1 nodes are available.".into()));
            }
        };
        let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, unplaced(3_596));
        assert_eq!(cluster.plan().again, Again::After(std::time::Duration::from_secs(1)));
        check(cluster, &[]);
        let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, unplaced(3_595));
        assert_eq!(cluster.plan().refused.len(), 1);
        check(cluster, &["revoke s #1 Unschedulable: Node n1 did not take the pod: 0/1 nodes are available."]);

        // It found a place after all.
        let placed = |pod: &mut Pod| {
            unplaced(3_000)(pod);
            bound(pod);
        };
        check(granted(gpu_node("n1", 8)).server_pod("s", 0, 1, placed), &[]);

        // A closed node is not held against it once it opens.
        let closed = Node { cordoned: true, ..gpu_node("n1", 8) };
        assert_eq!(granted(closed).server_pod("s", 0, 1, unplaced(3_000)).plan().refused, []);
    }

    #[test]
    fn the_later_of_two_grants_of_the_same_room_is_taken_back() {
        let grant = |epoch, second| {
            move |server: Server| {
                server.gpus(8).granted(1, &["n1"]).admission(|admission| {
                    (admission.epoch, admission.granted_at) = (epoch, Some(stored(time(second))));
                })
            }
        };
        let double = |first, second| {
            Cluster::new([gpu_node("n1", 8)]).server("a", grant(first, 60)).server("b", grant(second, 50))
        };
        let took = "Unschedulable: Others took the room on node n1 before the server could start there.";
        check(double(1, 2), &[&format!("revoke b #1 {took}")]);
        check(double(2, 1), &[&format!("revoke a #1 {took}")]);
        check(double(1, 1), &[&format!("revoke a #1 {took}")]);
        let after = check(double(1, 2), &[&format!("revoke b #1 {took}")]);
        check(after, &["wait b #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free."]);
    }

    #[test]
    fn a_pod_that_is_bound_has_won() {
        let cluster = Cluster::new([gpu_node("n1", 8)])
            .server("first", |server| server.gpus(8).granted(1, &["n1"]))
            .server("second", |server| server.gpus(8).granted(1, &["n1"]))
            .server_pod("second", 0, 1, bound);
        let took = "Unschedulable: Others took the room on node n1 before the server could start there.";
        check(cluster, &[&format!("revoke first #1 {took}")]);
    }

    #[test]
    fn foreign_pods_take_back_only_what_has_not_begun() {
        let cluster = granted(gpu_node("n1", 8)).pod(foreign("p", "n1", 6));
        let took = "Unschedulable: Others took the room on node n1 before the server could start there.";
        assert_eq!(cluster.plan().refused, []);
        check(cluster.clone(), &[&format!("revoke s #1 {took}")]);
        check(cluster.server_pod("s", 0, 1, bound), &[]);
    }

    #[test]
    fn a_gang_is_taken_back_as_a_whole() {
        let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
            .server("s", |server| server.gpus(8).nodes(2).granted(1, &["n1", "n2"]))
            .server_pod("s", 0, 1, bound);
        check(cluster.clone(), &[]);
        let after = check(
            cluster.pod(foreign("p", "n2", 1)),
            &["revoke s #1 Unschedulable: Others took the room on node n2 before the server could start there."],
        );
        assert_eq!(after.servers[0].admission.as_ref().unwrap().nodes, Vec::<String>::new());
    }

    #[test]
    fn who_was_taken_back_keeps_the_place() {
        // Nobody behind it gets what it will be given in the next round.
        let cluster = Cluster::new([gpu_node("n2", 8)])
            .server("s", |server| server.gpus(8).granted(1, &["n1"]))
            .server("behind", |server| server.gpus(8));
        let after = check(
            cluster,
            &[
                "revoke s #1 NodeLost: Node n1 does not exist any more.",
                "wait behind #2 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; that is free, but servers that \
                 asked earlier come first.",
            ],
        );
        let after = check(
            after,
            &[
                "grant s on n2",
                "wait behind #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free.",
            ],
        );
        check(after, &[]);
    }

    #[test]
    fn who_does_not_want_to_run_now_is_taken_back_without_a_place() {
        let cluster = Cluster::new([]).server("s", |server| server.granted(1, &["n1"]).want(Want::Later));
        let after = check(cluster, &["revoke s NodeLost: Node n1 does not exist any more."]);
        let after = check(after, &["release s"]);
        check(after, &[]);
    }

    #[test]
    fn the_server_of_a_pod_is_known_without_its_owner_reference() {
        let cluster = granted(gpu_node("n1", 4)).server("next", |server| server.gpus(4));
        let mut pod = server_pod(&cluster.servers[0], 0, 1);
        bound(&mut pod);
        pod.server.as_mut().unwrap().owner = None;
        check(
            cluster.pod(pod),
            &["wait next #1 InsufficientCapacity: Needs 4 nvidia.com/gpu on one node; none is free."],
        );
    }
}

#[test]
fn the_queue_of_a_flavor_is_who_competes_for_it() {
    let cluster = Cluster::new([gpu_node("n1", 1)])
        .server("has", |server| server.granted(1, &["n1"]))
        .server("waits", |server| server)
        .server("booked", |server| server.want(Want::Later))
        .server("over", |server| Server { ended: true, ..server })
        .server("else", |server| Server { flavor: "flavor-cpu".parse().unwrap(), ..server });
    assert_eq!(cluster.world().queue_length(&"flavor-gpu".parse().unwrap()), 1);
}
