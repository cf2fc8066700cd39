//! The capacity and status of flavors.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Status, Type};
use odc_api::v1alpha1::{DevServerFlavor, DevServerFlavorSpec, DevServerFlavorStatus, Per, Schedulable, Toleration};

use crate::admission::Snapshot;
use crate::admission::capacity::{FreeCapacity, NodeCapacity};
use crate::admission::is_schedulable;
use crate::cluster::RuntimeClass;
use crate::resources::Resources;
use crate::scheduler::is_selected;

/// The capacity of a flavor's nodes in devices, or in servers for flavors without devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub total: i64,
    pub free: i64,
    /// The largest count that fits on one node.
    pub largest_block: i64,
    /// The number of empty nodes with the flavor's full number of devices.
    pub whole_nodes_free: i64,
    /// Whether the smallest server fits; unknown without nodes.
    pub schedulable: Schedulable,
    pub runtime_class_missing: bool,
}

/// The capacity of one node for a flavor.
#[derive(Clone, Copy, Default)]
struct FlavorNodeCapacity {
    total: i64,
    free: i64,
    block: i64,
    whole: bool,
}

/// The nodes that servers of a flavor can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConstraints {
    pub selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
}

impl NodeConstraints {
    /// Merges the constraints of a flavor, the labels requested by a server, and the runtime class of the flavor.
    pub fn new(
        flavor: &DevServerFlavorSpec,
        node_labels: &BTreeMap<String, String>,
        runtime: Option<&RuntimeClass>,
    ) -> Self {
        let (mut selector, mut tolerations) = (flavor.node_selector.clone(), flavor.tolerations.clone());
        selector.extend(node_labels.clone());
        if let Some(runtime) = runtime {
            selector.extend(runtime.selector.clone());
            tolerations.extend(runtime.tolerations.iter().cloned());
        }
        Self { selector, tolerations }
    }
}

/// What bound pods and admissions leave for all flavors. Pending servers are not counted.
pub struct FlavorCapacities<'a> {
    free: FreeCapacity<'a>,
    runtimes: Vec<&'a RuntimeClass>,
}

impl<'a> FlavorCapacities<'a> {
    pub fn new(snapshot: &Snapshot<'a>) -> Self {
        Self { free: FreeCapacity::after_assignments(snapshot), runtimes: snapshot.runtimes.clone() }
    }

    /// Returns the capacity for a flavor. One in maintenance, or with a missing runtime class, has no free capacity.
    pub fn of(&self, flavor: &DevServerFlavor) -> Capacity {
        let (named, plain) = (flavor.spec.runtime_class.as_ref(), RuntimeClass::default());
        let runtime = named.and_then(|named| self.runtimes.iter().copied().find(|class| class.name == named.as_str()));
        let runtime_class_missing = named.is_some() && runtime.is_none();
        let constraints = NodeConstraints::new(&flavor.spec, &BTreeMap::new(), runtime);
        let runtime = runtime.unwrap_or(&plain);
        let nodes = self.free.iter();
        let nodes = nodes.filter(|capacity| matches_node(flavor, &constraints, capacity));
        let offered = |node: FlavorNodeCapacity| match flavor.spec.maintenance {
            None if !runtime_class_missing => node,
            _ => FlavorNodeCapacity { total: node.total, ..FlavorNodeCapacity::default() },
        };
        let nodes: Vec<FlavorNodeCapacity> =
            nodes.map(|capacity| offered(node_capacity(flavor, &runtime.overhead, capacity))).collect();
        let sum = |amount: fn(&FlavorNodeCapacity) -> i64| nodes.iter().map(amount).fold(0, i64::saturating_add);
        let largest_block = nodes.iter().map(|node| node.block).max().unwrap_or_default();
        Capacity {
            total: sum(|node| node.total),
            free: sum(|node| node.free),
            largest_block,
            whole_nodes_free: sum(|node| node.whole.into()),
            schedulable: match largest_block {
                _ if nodes.is_empty() => Schedulable::Unknown,
                block if block >= smallest(flavor) => Schedulable::Yes,
                _ => Schedulable::No,
            },
            runtime_class_missing,
        }
    }
}

/// Returns the status of a flavor. `defaults` is the number of default flavors. `history` is carried over; the
/// flavor loop replaces it by the scheduler's pending one.
pub fn status(
    flavor: &DevServerFlavor,
    capacity: &Capacity,
    queue_length: usize,
    defaults: usize,
    now: Timestamp,
) -> DevServerFlavorStatus {
    let before = flavor.status.clone().unwrap_or_default();
    let (ready, reason, message) = readiness(flavor, capacity, defaults);
    let generation = flavor.metadata.generation;
    let mut conditions = before.conditions;
    condition::set(
        &mut conditions,
        condition::new(Type::Ready, ready, reason, &message, generation, to_api_precision(now)),
    );
    DevServerFlavorStatus {
        observed_generation: generation,
        conditions,
        total: Some(capacity.total),
        free: Some(capacity.free),
        largest_block: Some(capacity.largest_block),
        whole_nodes_free: Some(capacity.whole_nodes_free),
        queue_length: Some(i64::try_from(queue_length).unwrap_or(i64::MAX)),
        schedulable: Some(capacity.schedulable),
        history: before.history,
    }
}

fn readiness(flavor: &DevServerFlavor, capacity: &Capacity, defaults: usize) -> (Status, Reason, String) {
    if flavor.spec.default && defaults > 1 {
        let message = format!(
            "{defaults} flavors are the default, so spec.flavor is required. Set default: false on all but one."
        );
        (Status::False, Reason::MultipleDefaultFlavors, message)
    } else if let Some(class) = flavor.spec.runtime_class.as_ref().filter(|_| capacity.runtime_class_missing) {
        let message = format!(
            "RuntimeClass {class} not found; servers of this flavor cannot start. Create it, or fix spec.runtimeClass."
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
    let labels = (!labels.is_empty()).then(|| format!("matches {}", labels.join(", ")));
    let device = flavor.spec.device.as_ref().map(|device| format!("provides {}", device.resource));
    let constraints: Vec<String> = labels.into_iter().chain(device).collect();
    match constraints.as_slice() {
        [] => "No node is ready and schedulable. Add a node.".to_owned(),
        all => {
            let all = all.join(" and ");
            format!("No ready and schedulable node {all}. Add a node, or fix spec.nodeSelector.")
        }
    }
}

/// Reports whether a node can run servers of the flavor.
fn matches_node(flavor: &DevServerFlavor, constraints: &NodeConstraints, capacity: &NodeCapacity<'_>) -> bool {
    let device = flavor.spec.device.as_ref();
    is_schedulable(capacity.node, &constraints.tolerations)
        && is_selected(&capacity.node.labels, &constraints.selector)
        && device.is_none_or(|device| capacity.node.allocatable.device(&device.resource) > 0)
}

/// `overhead` is the overhead of the runtime class per server.
fn node_capacity(flavor: &DevServerFlavor, overhead: &Resources, capacity: &NodeCapacity<'_>) -> FlavorNodeCapacity {
    let allocatable = &capacity.node.allocatable;
    let Some(device) = &flavor.spec.device else {
        let (total, free) = (servers(flavor, overhead, allocatable), servers(flavor, overhead, &capacity.free));
        return FlavorNodeCapacity { total, free, block: free, whole: capacity.servers == 0 && free > 0 };
    };
    let (total, free) = (allocatable.device(&device.resource), capacity.free.device(&device.resource).max(0));
    let block = block(flavor, &capacity.free.saturating_sub(overhead), free);
    FlavorNodeCapacity { total, free, block, whole: free >= total && block >= i64::from(device.per_node) }
}

/// Returns how many of the free devices one server can use, given the CPU and memory they require.
fn block(flavor: &DevServerFlavor, free: &Resources, devices: i64) -> i64 {
    match flavor.spec.resources.per {
        Per::Device if free.pods > 0 => devices.min(fit_count(flavor, &Resources::default(), free)),
        Per::Server if free.pods > 0 && fit_count(flavor, &Resources::default(), free) > 0 => devices,
        _ => 0,
    }
}

/// Returns how many servers without devices fit.
fn servers(flavor: &DevServerFlavor, overhead: &Resources, resources: &Resources) -> i64 {
    fit_count(flavor, overhead, resources).min(resources.pods).max(0)
}

/// Returns how often the flavor's CPU and memory, plus `overhead`, fit into `resources`.
fn fit_count(flavor: &DevServerFlavor, overhead: &Resources, resources: &Resources) -> i64 {
    let unit = &flavor.spec.resources;
    let count = |available: i64, unit: i64, overhead: i64| match unit.saturating_add(overhead) {
        required @ 1.. => available.max(0) / required,
        _ => i64::MAX,
    };
    let cpu = count(resources.cpu, unit.cpu.milli_value(), overhead.cpu);
    cpu.min(count(resources.memory, unit.memory.value(), overhead.memory))
}

/// Returns the smallest allowed count; 1 for flavors without devices.
fn smallest(flavor: &DevServerFlavor) -> i64 {
    let counts = flavor.spec.device.iter().flat_map(|device| &device.counts);
    counts.min().copied().map_or(1, i64::from).max(1)
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{FlavorHistory, Maintenance};

    use super::*;
    use crate::admission::QueueIntent;
    use crate::admission::fixtures::{Cluster, amounts, cpu_node, foreign, gpu_node, labelled, taint, time};
    use crate::cluster::{Node, Readiness};

    /// Sets the label that the fixture flavors select.
    fn in_pool(mut node: Node, pool: &str) -> Node {
        node.labels.insert("example.org/pool".into(), pool.into());
        node
    }

    fn check(flavor: &DevServerFlavor, cluster: &Cluster, expect: (i64, i64, i64, i64, Schedulable)) {
        check_facts(flavor, &cluster.snapshot(), expect);
    }

    fn check_facts(flavor: &DevServerFlavor, snapshot: &Snapshot<'_>, expect: (i64, i64, i64, i64, Schedulable)) {
        let Capacity { total, free, largest_block, whole_nodes_free, schedulable, .. } =
            FlavorCapacities::new(snapshot).of(flavor);
        assert_eq!((total, free, largest_block, whole_nodes_free, schedulable), expect);
    }

    fn gpus(nodes: impl IntoIterator<Item = Node>) -> Cluster {
        Cluster::new(nodes.into_iter().map(|node| in_pool(node, "pool-gpu")))
    }

    #[test]
    fn only_schedulable_nodes_are_counted() {
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
    fn on_request_nodes_count_only_for_flavors_that_select_them() {
        let mut flavor = DevServerFlavor::test();
        let mut profiling = gpu_node("n2", 8);
        profiling.labels.insert("on-request.odc.dev/profiling".into(), "yes".into());
        let cluster = gpus([gpu_node("n1", 4), profiling]);
        check(&flavor, &cluster, (4, 4, 4, 0, Schedulable::Yes));
        flavor.spec.node_selector.insert("on-request.odc.dev/profiling".into(), "yes".into());
        check(&flavor, &cluster, (8, 8, 8, 1, Schedulable::Yes));
    }

    #[test]
    fn flavor_in_maintenance_has_no_free_capacity() {
        let mut flavor = DevServerFlavor::test();
        let cluster = gpus([gpu_node("n1", 8), gpu_node("n2", 8)]);
        check(&flavor, &cluster, (16, 16, 8, 2, Schedulable::Yes));
        let pause = Maintenance { message: "New drivers until noon.".into(), allow: vec!["ada".parse().unwrap()] };
        flavor.spec.maintenance = Some(pause);
        check(&flavor, &cluster, (16, 0, 0, 0, Schedulable::No));
    }

    #[test]
    fn pods_and_admissions_use_capacity() {
        let flavor = DevServerFlavor::test();
        let cluster = gpus([gpu_node("n1", 8), gpu_node("n2", 8)])
            .pod(foreign("p", "n1", 3))
            .server("s", |server| server.gpus(2).admitted(1, &["n1"]))
            .server("w", |server| server.gpus(8));
        check(&flavor, &cluster, (16, 11, 8, 1, Schedulable::Yes));
    }

    #[test]
    fn bound_pod_of_admission_is_counted_once() {
        let cluster = gpus([gpu_node("n1", 8)])
            .server("s", |server| server.gpus(2).admitted(1, &["n1"]).intent(QueueIntent::Stopped))
            .server_pod("s", 0, 1, |pod| pod.node = Some("n1".into()));
        check(&DevServerFlavor::test(), &cluster, (8, 6, 6, 0, Schedulable::Yes));
    }

    #[test]
    fn largest_block_is_limited_by_cpu_and_memory() {
        // 24 cores per device.
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
    fn smallest_count_decides_whether_schedulable() {
        let mut flavor = DevServerFlavor::test();
        let cluster = gpus([gpu_node("n1", 8)]).pod(foreign("p", "n1", 7));
        check(&flavor, &cluster, (8, 1, 1, 0, Schedulable::Yes));
        flavor.spec.device.as_mut().unwrap().counts = vec![4, 2];
        check(&flavor, &cluster, (8, 1, 1, 0, Schedulable::No));
    }

    #[test]
    fn node_with_failed_device_is_not_whole() {
        check(&DevServerFlavor::test(), &gpus([gpu_node("n1", 7)]), (7, 7, 7, 0, Schedulable::Yes));
    }

    #[test]
    fn capacity_without_devices_counts_servers() {
        // 4 cores and 16Gi per server.
        let cpus = |nodes: Vec<Node>| Cluster::new(nodes.into_iter().map(|node| in_pool(node, "pool-cpu")));
        let flavor = DevServerFlavor::test_cpu();
        let cluster = cpus(vec![cpu_node("n1", 18, 64), cpu_node("n2", 32, 40)]);
        check(&flavor, &cluster, (6, 6, 4, 2, Schedulable::Yes));
        let mut crowded = cpu_node("n1", 18, 64);
        crowded.allocatable.pods = 1;
        check(&flavor, &cpus(vec![crowded]), (1, 1, 1, 1, Schedulable::Yes));
        let used = cluster.server("s", |server| server.cpus(4, 16).admitted(1, &["n1"]));
        check(&flavor, &used, (6, 5, 3, 1, Schedulable::Yes));
    }

    /// 1 core and 4Gi per pod, on nodes with the label `sandbox`.
    fn gvisor() -> RuntimeClass {
        let overhead = amounts(1_000, 4 << 30, 0);
        let selector = [("sandbox".to_owned(), "gvisor".to_owned())].into();
        RuntimeClass { name: "gvisor".into(), overhead, selector, ..RuntimeClass::default() }
    }

    #[test]
    fn runtime_class_overhead_reduces_capacity() {
        let runtime = gvisor();
        let sandboxed = |node: Node| labelled(node, "sandbox", "gvisor");
        // 4 cores and 16Gi per server, with overhead 5 and 20Gi.
        let mut flavor = DevServerFlavor::test_cpu();
        let node = in_pool(cpu_node("n1", 20, 80), "pool-cpu");
        let cluster = Cluster::new([sandboxed(node.clone()), Node { name: "n2".into(), ..node }]);
        let snapshot = Snapshot { runtimes: vec![&runtime], ..cluster.snapshot() };
        check_facts(&flavor, &snapshot, (10, 10, 5, 2, Schedulable::Yes));
        flavor.spec.runtime_class = Some("gvisor".parse().unwrap());
        check_facts(&flavor, &snapshot, (4, 4, 4, 1, Schedulable::Yes));

        // 24 cores per device, and one more per server.
        let mut flavor = DevServerFlavor::test();
        let mut node = gpu_node("n1", 8);
        node.allocatable.cpu = 96_000;
        let cluster = gpus([sandboxed(node)]);
        let snapshot = Snapshot { runtimes: vec![&runtime], ..cluster.snapshot() };
        check_facts(&flavor, &snapshot, (8, 8, 4, 0, Schedulable::Yes));
        flavor.spec.runtime_class = Some("gvisor".parse().unwrap());
        check_facts(&flavor, &snapshot, (8, 8, 3, 0, Schedulable::Yes));
    }

    #[test]
    fn missing_runtime_class_leaves_no_capacity() {
        let mut flavor = DevServerFlavor::test();
        flavor.spec.runtime_class = Some("gvisor".parse().unwrap());
        let cluster = gpus([gpu_node("n1", 8)]);
        check(&flavor, &cluster, (8, 0, 0, 0, Schedulable::No));
        let missing =
            "RuntimeClass gvisor not found; servers of this flavor cannot start. Create it, or fix spec.runtimeClass.";
        assert_eq!(ready(&flavor, 0, &cluster), ("NotSupported".to_owned(), missing.to_owned()));
    }

    #[test]
    fn capacity_saturates() {
        let mut node = gpu_node("n1", i64::MAX);
        node.allocatable = node.allocatable.saturating_add(&node.allocatable);
        let cluster = gpus([node.clone(), Node { name: "n2".into(), ..node }]).pod(foreign("p", "n2", i64::MAX));
        assert_eq!(FlavorCapacities::new(&cluster.snapshot()).of(&DevServerFlavor::test()).total, i64::MAX);
    }

    fn ready(flavor: &DevServerFlavor, defaults: usize, cluster: &Cluster) -> (String, String) {
        let capacity = FlavorCapacities::new(&cluster.snapshot()).of(flavor);
        let status = status(flavor, &capacity, 3, defaults, time(0));
        let ready = condition::find(&status.conditions, Type::Ready).unwrap();
        assert_eq!(ready.status == "True", ready.reason == "Reconciled");
        (ready.reason.to_string(), ready.message.to_string())
    }

    #[test]
    fn not_ready_message_names_cause() {
        let expect = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        let (flavor, cluster) = (DevServerFlavor::test(), gpus([gpu_node("n1", 8)]));
        assert_eq!(ready(&flavor, 0, &cluster), expect("Reconciled", "Nodes of this flavor are ready."));
        let nothing = "No ready and schedulable node matches example.org/pool=pool-gpu and provides nvidia.com/gpu. Add a node, or \
                       fix spec.nodeSelector.";
        assert_eq!(ready(&flavor, 0, &Cluster::new([])), expect("NoNodes", nothing));
        let several = "2 flavors are the default, so spec.flavor is required. Set default: false on all but one.";
        let default = flavor.clone().default_flavor();
        assert_eq!(ready(&default, 2, &cluster), expect("MultipleDefaultFlavors", several));
        assert_eq!(ready(&default, 1, &cluster).0, "Reconciled");
        assert_eq!(ready(&flavor, 2, &cluster).0, "Reconciled");
    }

    #[test]
    fn status_does_not_depend_on_time() {
        let cluster = gpus([gpu_node("n1", 8)]);
        let mut flavor = DevServerFlavor::test();
        flavor.metadata.generation = Some(4);
        let history = Some(FlavorHistory::default());
        flavor.status = Some(DevServerFlavorStatus { history: history.clone(), ..DevServerFlavorStatus::default() });
        let capacity = FlavorCapacities::new(&cluster.snapshot()).of(&flavor);
        let first = status(&flavor, &capacity, 3, 0, time(1));
        assert_eq!((first.observed_generation, first.queue_length, &first.history), (Some(4), Some(3), &history));
        flavor.status = Some(first.clone());
        assert_eq!(status(&flavor, &capacity, 3, 0, "2027-01-31T09:00:00.5Z".parse().unwrap()), first);
    }
}
