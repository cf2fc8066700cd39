//! Whatever happens, in whatever order: what must never go wrong never does, and what should come about does.

use odc_api::v1alpha1::{Desired, DevServer, HibernationCause, Phase};
use proptest::prelude::*;

use super::script::{Event, event};
use super::{Cluster, api};

#[derive(Clone, Copy, Debug)]
enum Shape {
    Disk,
    Ephemeral,
    Gang,
}

impl Shape {
    fn server(self) -> DevServer {
        match self {
            Self::Disk => DevServer::test(),
            Self::Ephemeral => DevServer::test().ephemeral("10Gi"),
            Self::Gang => DevServer::test().size("flavor-gpu", 1, 2),
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![2 => Just(Shape::Disk), 1 => Just(Shape::Ephemeral), 1 => Just(Shape::Gang)]
}

/// Where a server must end up in a cluster that is well.
fn due(cluster: &Cluster) -> Phase {
    let (status, spec) = (cluster.status(), &cluster.server().spec);
    if let Some(end) = status.phase.filter(|phase| phase.terminal()) {
        return end;
    }
    let asleep = status.hibernation.filter(|hibernation| hibernation.by != HibernationCause::User);
    match spec.desired {
        Desired::Ended => Phase::Cancelled,
        Desired::Hibernated => Phase::Hibernated,
        Desired::Running if asleep.is_some_and(|asleep| asleep.wake_seen == spec.wake) => Phase::Hibernated,
        Desired::Running => Phase::Running,
    }
}

fn play(shape: Shape, queue_first: bool, agents: bool, script: &[Event]) -> Cluster {
    let mut cluster = Cluster::new(shape.server());
    if agents {
        cluster = cluster.with_agents();
    }
    cluster.queue_first = queue_first;
    cluster.work();
    for event in script {
        cluster.happen(event);
        cluster.work();
    }
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every step is watched by the observer, which is most of this test; here it is only said how it must end.
    #[test]
    fn whatever_happens_it_ends_where_its_owner_wants_it(
        shape in shape(),
        queue_first in prop::bool::ANY,
        agents in prop::bool::ANY,
        script in prop::collection::vec(event(), 1..40),
    ) {
        let mut cluster = play(shape, queue_first, agents, &script);
        cluster.heal();
        prop_assert_eq!(cluster.phase(), Some(due(&cluster)), "{:?}", cluster.observer.log);
    }
}

/// Found by the test above, each with what was wrong then.
#[test]
fn what_once_went_wrong_goes_well() {
    use Event::{DeletePod, Down, Fault, Pass, RemoveNode, SecretGone, Silence, StripOwner, Tick};
    let scripts: [(Shape, Vec<Event>); 6] = [
        // The time to start ran out while nobody was there to make the Secret anew.
        (Shape::Disk, vec![Tick(1000), Down(true), SecretGone, Pass(30)]),
        (Shape::Gang, vec![SecretGone, Tick(1000), Down(true), Pass(30)]),
        // The new Secret was made, and the pods after it were told the old key.
        (Shape::Disk, vec![SecretGone, Fault(2, api::Fault::Die), Pass(1)]),
        // A pod without owner was not asked which key it was made for.
        (Shape::Gang, vec![Down(true), SecretGone, StripOwner(0), DeletePod(1)]),
        // The time to start ran out on a node that was gone.
        (Shape::Gang, vec![RemoveNode(0), Tick(1000), Down(true), Pass(30), Silence(1), Down(false)]),
        (Shape::Disk, vec![Tick(1000), Down(true), Pass(30), Silence(0), Down(false)]),
    ];
    for (shape, script) in scripts {
        for queue_first in [false, true] {
            let mut cluster = play(shape, queue_first, false, &script);
            cluster.heal();
            assert_eq!(cluster.phase(), Some(due(&cluster)), "{script:?}: {:?}", cluster.observer.log);
        }
    }
}
