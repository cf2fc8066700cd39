//! Flavors: how much of each there is, and whether it can be used.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorStatus, Per, Schedulable, Toleration};

use crate::amounts::Amounts;
use crate::grants::Facts;
use crate::grants::is_open;
use crate::grants::room::{Place, Room};
use crate::scheduler::is_selected;
use crate::seen::Runtime;

/// What the nodes of a flavor have, in devices; where it has none, in servers that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub total: i64,
    pub free: i64,
    /// The largest count that would start on one node.
    pub largest_block: i64,
    /// Nodes of which nothing is used and that would take as much as a node of the flavor has.
    pub whole_nodes_free: i64,
    /// Whether the smallest server would start; not known where there is no node.
    pub schedulable: Schedulable,
    /// Its runtime class does not exist.
    pub lacks_runtime: bool,
}

/// What of one node counts for a flavor.
#[derive(Clone, Copy, Default)]
struct Share {
    total: i64,
    free: i64,
    block: i64,
    whole: bool,
}

/// Counts what bound pods and grants leave. Who waits is not looked at: a queue is no use. Of a flavor in maintenance
/// nothing is free, whatever nobody uses: the few who may try it know that they may. Nor is anything of one whose runtime
/// class does not exist, as the API server would refuse its pods.
pub fn capacity(flavor: &DevServerFlavor, world: &Facts<'_>) -> Capacity {
    let room = Room::left(world);
    let (named, plain) = (flavor.spec.runtime_class.as_ref(), Runtime::default());
    let runtime = named.and_then(|named| world.runtimes.iter().copied().find(|class| class.name == named.as_str()));
    let lacks_runtime = named.is_some() && runtime.is_none();
    let runtime = runtime.unwrap_or(&plain);
    let tolerations: Vec<Toleration> = flavor.spec.tolerations.iter().chain(&runtime.tolerations).cloned().collect();
    let mut selector = flavor.spec.node_selector.clone();
    selector.extend(runtime.selector.clone());
    let places = room.all().map(|(_, place)| place);
    let places = places.filter(|place| belongs(flavor, &selector, &tolerations, place));
    let offered = |share: Share| match flavor.spec.maintenance {
        None if !lacks_runtime => share,
        _ => Share { total: share.total, ..Share::default() },
    };
    let shares: Vec<Share> = places.map(|place| offered(share(flavor, &runtime.overhead, place))).collect();
    let sum = |amount: fn(&Share) -> i64| shares.iter().map(amount).fold(0, i64::saturating_add);
    let largest_block = shares.iter().map(|share| share.block).max().unwrap_or_default();
    Capacity {
        total: sum(|share| share.total),
        free: sum(|share| share.free),
        largest_block,
        whole_nodes_free: sum(|share| share.whole.into()),
        schedulable: match largest_block {
            _ if shares.is_empty() => Schedulable::Unknown,
            block if block >= smallest(flavor) => Schedulable::Yes,
            _ => Schedulable::No,
        },
        lacks_runtime,
    }
}

/// What to tell about a flavor. `defaults` is how many flavors say that they are the default. `record` is only carried
/// along: it is the scheduler's to write.
pub fn status(
    flavor: &DevServerFlavor,
    capacity: &Capacity,
    queue_length: usize,
    defaults: usize,
    now: Timestamp,
) -> DevServerFlavorStatus {
    let before = flavor.status.clone().unwrap_or_default();
    let (ready, reason, message) = verdict(flavor, capacity, defaults);
    let generation = flavor.metadata.generation;
    let mut conditions = before.conditions;
    condition::set(&mut conditions, condition::new(Type::Ready, ready, reason, &message, generation, stored(now)));
    DevServerFlavorStatus {
        observed_generation: generation,
        conditions,
        total: Some(capacity.total),
        free: Some(capacity.free),
        largest_block: Some(capacity.largest_block),
        whole_nodes_free: Some(capacity.whole_nodes_free),
        queue_length: Some(i64::try_from(queue_length).unwrap_or(i64::MAX)),
        schedulable: Some(capacity.schedulable),
        record: before.record,
    }
}

fn verdict(flavor: &DevServerFlavor, capacity: &Capacity, defaults: usize) -> (Status, Reason, String) {
    if flavor.spec.default && defaults > 1 {
        let message = format!(
            "{defaults} flavors say default: true, so servers that name no flavor get none: set it to false on all but \
             one."
        );
        (Status::False, Reason::SeveralDefaultFlavors, message)
    } else if let Some(class) = flavor.spec.runtime_class.as_ref().filter(|_| capacity.lacks_runtime) {
        let message = format!(
            "Its RuntimeClass {class} does not exist, so none of its servers can start: create it, or correct the \
             flavor's runtimeClass."
        );
        (Status::False, Reason::NotSupported, message)
    } else if capacity.schedulable == Schedulable::Unknown {
        (Status::False, Reason::NoNodes, no_nodes(flavor))
    } else {
        (Status::True, Reason::Reconciled, "Nodes of this flavor are ready.".to_owned())
    }
}

fn no_nodes(flavor: &DevServerFlavor) -> String {
    let labels: Vec<String> = flavor.spec.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!(" with the labels {}", labels.join(", ")) };
    let device = flavor.spec.device.as_ref().map(|device| format!(" and has {}", device.resource)).unwrap_or_default();
    format!("No node{labels} is ready, takes servers{device}: add one, or correct the flavor's node selector.")
}

/// Whether a node is one of the flavor's; labels and tolerations are also those of its runtime.
fn belongs(
    flavor: &DevServerFlavor,
    selector: &BTreeMap<String, String>,
    tolerations: &[Toleration],
    place: &Place<'_>,
) -> bool {
    let device = flavor.spec.device.as_ref();
    is_open(place.node, tolerations)
        && is_selected(&place.node.labels, selector)
        && device.is_none_or(|device| place.node.allocatable.device(&device.resource) > 0)
}

/// `overhead` is what the runtime takes for each server.
fn share(flavor: &DevServerFlavor, overhead: &Amounts, place: &Place<'_>) -> Share {
    let allocatable = &place.node.allocatable;
    let Some(device) = &flavor.spec.device else {
        let (total, free) = (servers(flavor, overhead, allocatable), servers(flavor, overhead, &place.free));
        return Share { total, free, block: free, whole: place.servers == 0 && free > 0 };
    };
    let (total, free) = (allocatable.device(&device.resource), place.free.device(&device.resource).max(0));
    let block = block(flavor, &place.free.minus(overhead), free);
    Share { total, free, block, whole: free >= total && block >= i64::from(device.per_node) }
}

/// How many of the free devices one server could have, with the CPU and memory that go with them.
fn block(flavor: &DevServerFlavor, free: &Amounts, devices: i64) -> i64 {
    match flavor.spec.resources.per {
        Per::Device if free.pods > 0 => devices.min(times(flavor, &Amounts::default(), free)),
        Per::Server if free.pods > 0 && times(flavor, &Amounts::default(), free) > 0 => devices,
        _ => 0,
    }
}

/// How many servers without devices fit.
fn servers(flavor: &DevServerFlavor, overhead: &Amounts, amounts: &Amounts) -> i64 {
    times(flavor, overhead, amounts).min(amounts.pods).max(0)
}

/// How often the flavor's CPU and memory are there, with something more each time.
fn times(flavor: &DevServerFlavor, more: &Amounts, amounts: &Amounts) -> i64 {
    let resources = &flavor.spec.resources;
    let times = |have: i64, need: i64, more: i64| match need.saturating_add(more) {
        need @ 1.. => have.max(0) / need,
        _ => i64::MAX,
    };
    let cpu = times(amounts.cpu, resources.cpu.milli_value(), more.cpu);
    cpu.min(times(amounts.memory, resources.memory.value(), more.memory))
}

/// The smallest count a server may have; where there are no devices, one server.
fn smallest(flavor: &DevServerFlavor) -> i64 {
    let counts = flavor.spec.device.iter().flat_map(|device| &device.counts);
    counts.min().copied().map_or(1, i64::from).max(1)
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{Maintenance, Record};

    use super::*;
    use crate::grants::Want;
    use crate::grants::fixtures::{Cluster, amounts, cpu_node, foreign, gpu_node, labelled, taint, time};
    use crate::seen::{Node, Readiness};

    /// The fixture flavors select by this label.
    fn of_pool(mut node: Node, pool: &str) -> Node {
        node.labels.insert("example.org/pool".into(), pool.into());
        node
    }

    fn check(flavor: &DevServerFlavor, cluster: &Cluster, expect: (i64, i64, i64, i64, Schedulable)) {
        check_facts(flavor, &cluster.world(), expect);
    }

    fn check_facts(flavor: &DevServerFlavor, world: &Facts<'_>, expect: (i64, i64, i64, i64, Schedulable)) {
        let Capacity { total, free, largest_block, whole_nodes_free, schedulable, .. } = capacity(flavor, world);
        assert_eq!((total, free, largest_block, whole_nodes_free, schedulable), expect);
    }

    fn gpus(nodes: impl IntoIterator<Item = Node>) -> Cluster {
        Cluster::new(nodes.into_iter().map(|node| of_pool(node, "pool-gpu")))
    }

    #[test]
    fn devices_are_counted_on_nodes_that_work() {
        use Schedulable::{No, Unknown, Yes};
        let flavor = DevServerFlavor::test();
        check(&flavor, &Cluster::new([]), (0, 0, 0, 0, Unknown));
        check(&flavor, &Cluster::new([gpu_node("n1", 8)]), (0, 0, 0, 0, Unknown));
        check(&flavor, &gpus([gpu_node("n1", 0)]), (0, 0, 0, 0, Unknown));
        check(&flavor, &gpus([gpu_node("n1", 8), gpu_node("n2", 8)]), (16, 16, 8, 2, Yes));
        check(&flavor, &gpus([gpu_node("n1", 8), Node { cordoned: true, ..gpu_node("n2", 8) }]), (8, 8, 8, 1, Yes));
        let unready = Node { readiness: Readiness::Unready(time(0)), ..gpu_node("n1", 8) };
        check(&flavor, &gpus([unready]), (0, 0, 0, 0, Unknown));
        let tainted = Node { taints: vec![taint("a:NoSchedule")], ..gpu_node("n1", 8) };
        check(&flavor, &gpus([tainted]), (0, 0, 0, 0, Unknown));
        check(&flavor, &gpus([gpu_node("n1", 8)]).pod(foreign("p", "n1", 8)), (8, 0, 0, 0, No));
    }

    #[test]
    fn nodes_on_request_count_for_flavors_that_ask_for_them() {
        let mut flavor = DevServerFlavor::test();
        let mut profiling = gpu_node("n2", 8);
        profiling.labels.insert("on-request.odc.dev/profiling".into(), "yes".into());
        let cluster = gpus([gpu_node("n1", 4), profiling]);
        check(&flavor, &cluster, (4, 4, 4, 0, Schedulable::Yes));
        flavor.spec.node_selector.insert("on-request.odc.dev/profiling".into(), "yes".into());
        check(&flavor, &cluster, (8, 8, 8, 1, Schedulable::Yes));
    }

    #[test]
    fn nothing_is_free_in_maintenance() {
        let mut flavor = DevServerFlavor::test();
        let cluster = gpus([gpu_node("n1", 8), gpu_node("n2", 8)]);
        check(&flavor, &cluster, (16, 16, 8, 2, Schedulable::Yes));
        let pause = Maintenance { message: "New drivers until noon.".into(), allow: vec!["ada".parse().unwrap()] };
        flavor.spec.maintenance = Some(pause);
        check(&flavor, &cluster, (16, 0, 0, 0, Schedulable::No));
    }

    #[test]
    fn pods_and_grants_are_use() {
        let flavor = DevServerFlavor::test();
        let cluster = gpus([gpu_node("n1", 8), gpu_node("n2", 8)])
            .pod(foreign("p", "n1", 3))
            .server("s", |server| server.gpus(2).granted(1, &["n1"]))
            .server("w", |server| server.gpus(8));
        check(&flavor, &cluster, (16, 11, 8, 1, Schedulable::Yes));
    }

    #[test]
    fn a_bound_pod_of_a_grant_is_counted_once() {
        let cluster = gpus([gpu_node("n1", 8)])
            .server("s", |server| server.gpus(2).granted(1, &["n1"]).want(Want::Rest))
            .server_pod("s", 0, 1, |pod| pod.node = Some("n1".into()));
        check(&DevServerFlavor::test(), &cluster, (8, 6, 6, 0, Schedulable::Yes));
    }

    #[test]
    fn a_block_has_its_cpu_and_memory() {
        // 24 cores for each device.
        let mut node = gpu_node("n1", 8);
        node.allocatable.cpu = 100_000;
        let mut flavor = DevServerFlavor::test();
        check(&flavor, &gpus([node.clone()]), (8, 8, 4, 0, Schedulable::Yes));
        flavor.spec.resources.per = Per::Server;
        check(&flavor, &gpus([node.clone()]), (8, 8, 8, 1, Schedulable::Yes));
        node.allocatable.cpu = 23_999;
        check(&flavor, &gpus([node]), (8, 8, 0, 0, Schedulable::No));
    }

    #[test]
    fn the_smallest_allowed_server_decides() {
        let mut flavor = DevServerFlavor::test();
        let cluster = gpus([gpu_node("n1", 8)]).pod(foreign("p", "n1", 7));
        check(&flavor, &cluster, (8, 1, 1, 0, Schedulable::Yes));
        flavor.spec.device.as_mut().unwrap().counts = vec![4, 2];
        check(&flavor, &cluster, (8, 1, 1, 0, Schedulable::No));
    }

    #[test]
    fn a_node_with_an_ill_device_is_not_whole() {
        check(&DevServerFlavor::test(), &gpus([gpu_node("n1", 7)]), (7, 7, 7, 0, Schedulable::Yes));
    }

    #[test]
    fn without_devices_servers_are_counted() {
        // 4 cores and 16Gi for each server.
        let cpus = |nodes: Vec<Node>| Cluster::new(nodes.into_iter().map(|node| of_pool(node, "pool-cpu")));
        let flavor = DevServerFlavor::test_cpu();
        let cluster = cpus(vec![cpu_node("n1", 18, 64), cpu_node("n2", 32, 40)]);
        check(&flavor, &cluster, (6, 6, 4, 2, Schedulable::Yes));
        let mut crowded = cpu_node("n1", 18, 64);
        crowded.allocatable.pods = 1;
        check(&flavor, &cpus(vec![crowded]), (1, 1, 1, 1, Schedulable::Yes));
        let used = cluster.server("s", |server| server.cpus(4, 16).granted(1, &["n1"]));
        check(&flavor, &used, (6, 5, 3, 1, Schedulable::Yes));
    }

    /// 1 core and 4Gi for each pod, on nodes with the label `sandbox`.
    fn gvisor() -> Runtime {
        let overhead = amounts(1_000, 4 << 30, 0);
        let selector = [("sandbox".to_owned(), "gvisor".to_owned())].into();
        Runtime { name: "gvisor".into(), overhead, selector, ..Runtime::default() }
    }

    #[test]
    fn the_runtime_takes_its_part_of_every_server() {
        let runtime = gvisor();
        let sandboxed = |node: Node| labelled(node, "sandbox", "gvisor");
        // 4 cores and 16Gi for each server, so 5 and 20Gi.
        let mut flavor = DevServerFlavor::test_cpu();
        let node = of_pool(cpu_node("n1", 20, 80), "pool-cpu");
        let cluster = Cluster::new([sandboxed(node.clone()), Node { name: "n2".into(), ..node }]);
        let world = Facts { runtimes: vec![&runtime], ..cluster.world() };
        check_facts(&flavor, &world, (10, 10, 5, 2, Schedulable::Yes));
        flavor.spec.runtime_class = Some("gvisor".parse().unwrap());
        check_facts(&flavor, &world, (4, 4, 4, 1, Schedulable::Yes));

        // 24 cores for each device, and one more for each server.
        let mut flavor = DevServerFlavor::test();
        let mut node = gpu_node("n1", 8);
        node.allocatable.cpu = 96_000;
        let cluster = gpus([sandboxed(node)]);
        let world = Facts { runtimes: vec![&runtime], ..cluster.world() };
        check_facts(&flavor, &world, (8, 8, 4, 0, Schedulable::Yes));
        flavor.spec.runtime_class = Some("gvisor".parse().unwrap());
        check_facts(&flavor, &world, (8, 8, 3, 0, Schedulable::Yes));
    }

    #[test]
    fn a_runtime_that_does_not_exist_starts_nothing() {
        let mut flavor = DevServerFlavor::test();
        flavor.spec.runtime_class = Some("gvisor".parse().unwrap());
        let cluster = gpus([gpu_node("n1", 8)]);
        check(&flavor, &cluster, (8, 0, 0, 0, Schedulable::No));
        let missing = "Its RuntimeClass gvisor does not exist, so none of its servers can start: create it, or correct \
                       the flavor's runtimeClass.";
        assert_eq!(ready(&flavor, 0, &cluster), ("NotSupported".to_owned(), missing.to_owned()));
    }

    #[test]
    fn absurd_amounts_do_no_harm() {
        let mut node = gpu_node("n1", i64::MAX);
        node.allocatable = node.allocatable.plus(&node.allocatable);
        let cluster = gpus([node.clone(), Node { name: "n2".into(), ..node }]).pod(foreign("p", "n2", i64::MAX));
        assert_eq!(capacity(&DevServerFlavor::test(), &cluster.world()).total, i64::MAX);
    }

    fn ready(flavor: &DevServerFlavor, defaults: usize, cluster: &Cluster) -> (String, String) {
        let status = status(flavor, &capacity(flavor, &cluster.world()), 3, defaults, time(0));
        let ready = condition::find(&status.conditions, Type::Ready).unwrap();
        assert_eq!(ready.status == "True", ready.reason == "Reconciled");
        (ready.reason.to_string(), ready.message.to_string())
    }

    #[test]
    fn a_flavor_says_what_it_lacks() {
        let said = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        let (flavor, cluster) = (DevServerFlavor::test(), gpus([gpu_node("n1", 8)]));
        assert_eq!(ready(&flavor, 0, &cluster), said("Reconciled", "Nodes of this flavor are ready."));
        let nothing = "No node with the labels example.org/pool=pool-gpu is ready, takes servers and has nvidia.com/gpu: \
                       add one, or correct the flavor's node selector.";
        assert_eq!(ready(&flavor, 0, &Cluster::new([])), said("NoNodes", nothing));
        let several = "2 flavors say default: true, so servers that name no flavor get none: set it to false on all but \
                       one.";
        let default = flavor.clone().default_flavor();
        assert_eq!(ready(&default, 2, &cluster), said("SeveralDefaultFlavors", several));
        assert_eq!(ready(&default, 1, &cluster).0, "Reconciled");
        assert_eq!(ready(&flavor, 2, &cluster).0, "Reconciled");
    }

    #[test]
    fn the_same_flavor_gets_the_same_status_at_any_time() {
        let cluster = gpus([gpu_node("n1", 8)]);
        let mut flavor = DevServerFlavor::test();
        flavor.metadata.generation = Some(4);
        let record = Some(Record::default());
        flavor.status = Some(DevServerFlavorStatus { record: record.clone(), ..DevServerFlavorStatus::default() });
        let capacity = capacity(&flavor, &cluster.world());
        let first = status(&flavor, &capacity, 3, 0, time(1));
        assert_eq!((first.observed_generation, first.queue_length, &first.record), (Some(4), Some(3), &record));
        flavor.status = Some(first.clone());
        assert_eq!(status(&flavor, &capacity, 3, 0, "2027-01-31T09:00:00.5Z".parse().unwrap()), first);
    }
}
