//! What is decided in situations people know, told line by line.

mod aside;
mod attaching;
mod ends;
mod expecting;
mod gangs;
mod grants;
mod learning;
mod order;
mod placement;
mod preempting;
mod quotas;
mod revoking;
mod words;

use odc_api::quantity::Quantity;
use odc_api::time::stored;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, Placement, Quota, Toleration, TolerationOperator};

use super::fixtures::{Cluster, check, cpu_node, foreign, gpu_node, labelled, node, server_pod, taint, time};
use super::{Server, Want, What};
use crate::plan::Again;
use crate::seen::{Node, Pod, PodPhase, Reach, Readiness, VolumeSeen};

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
