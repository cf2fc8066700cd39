//! Decisions in typical situations, as lines.

mod admit;
mod eta;
mod gangs;
mod history;
mod messages;
mod order;
mod placement;
mod preemption;
mod quota;
mod rejected_writes;
mod release;
mod revocation;
mod volume_limits;

use odc_api::quantity::Quantity;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Admission, Placement, Quota, Toleration, TolerationOperator};

use super::fixtures::{Cluster, check, cpu_node, foreign, gpu_node, labelled, node, server_pod, taint, time};
use super::{Action, QueueIntent, REJECTION_TTL, Server};
use crate::cluster::{Node, Pod, PodPhase, Readiness, Volume, VolumeAffinity};
use crate::plan::Requeue;

#[test]
fn queue_length_counts_pending_servers_of_flavor() {
    let cluster = Cluster::new([gpu_node("n1", 1)])
        .server("running", |server| server.admitted(1, &["n1"]))
        .server("pending", |server| server)
        .server("booked", |server| server.intent(QueueIntent::Postponed))
        .server("over", |server| Server { ended: true, ..server })
        .server("else", |server| Server { flavor: "flavor-cpu".parse().unwrap(), ..server });
    assert_eq!(cluster.snapshot().queue_length(&"flavor-gpu".parse().unwrap()), 1);
}
