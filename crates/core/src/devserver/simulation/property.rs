//! Random sequences of events: the invariants hold, and the server reaches its desired phase.

use odc_api::v1alpha1::{Desired, DevServer, HibernationCause, Phase};
use proptest::prelude::*;

use super::event::{Event, event};
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

/// Returns the phase that the server must reach in a healthy cluster.
fn expected_phase(cluster: &Cluster) -> Phase {
    let (status, spec) = (cluster.status(), &cluster.server().spec);
    if let Some(end) = status.phase.filter(|phase| phase.is_terminal()) {
        return end;
    }
    let hibernation = status.hibernation.filter(|hibernation| hibernation.cause != HibernationCause::User);
    match spec.desired {
        Desired::Ended => Phase::Cancelled,
        Desired::Hibernated => Phase::Hibernated,
        Desired::Running if hibernation.is_some_and(|hibernation| hibernation.observed_wake == spec.wake) => {
            Phase::Hibernated
        }
        Desired::Running => Phase::Running,
    }
}

fn play(shape: Shape, scheduler_first: bool, agents: bool, script: &[Event]) -> Cluster {
    let mut cluster = Cluster::new(shape.server());
    if agents {
        cluster = cluster.with_agents();
    }
    cluster.scheduler_first = scheduler_first;
    cluster.work();
    for event in script {
        cluster.apply(event);
        cluster.work();
    }
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The observer checks the invariants at each step. This only checks the final phase.
    #[test]
    fn server_reaches_desired_phase_after_any_events(
        shape in shape(),
        scheduler_first in prop::bool::ANY,
        agents in prop::bool::ANY,
        script in prop::collection::vec(event(), 1..40),
    ) {
        let mut cluster = play(shape, scheduler_first, agents, &script);
        cluster.heal();
        prop_assert_eq!(cluster.phase(), Some(expected_phase(&cluster)), "{:?}", cluster.observer.log);
    }
}

/// Regressions found by the test above.
#[test]
fn regressions_reach_desired_phase() {
    use Event::{
        DeleteNode, DeletePod, DeleteSecret, Fault, Interleave, LoseContact, OrphanPod, Pass, SetOperatorDown, Tick,
        Wake,
    };
    let scripts: [(Shape, Vec<Event>); 7] = [
        // The start timed out while the operator was down and could not recreate the Secret.
        (Shape::Disk, vec![Tick(1000), SetOperatorDown(true), DeleteSecret, Pass(30)]),
        (Shape::Gang, vec![DeleteSecret, Tick(1000), SetOperatorDown(true), Pass(30)]),
        // After the Secret was recreated, pods were created with the old key.
        (Shape::Disk, vec![DeleteSecret, Fault(2, api::Fault::Crash), Pass(1)]),
        // The key of an orphaned pod was ignored.
        (Shape::Gang, vec![SetOperatorDown(true), DeleteSecret, OrphanPod(0), DeletePod(1)]),
        // The start timed out on a deleted node.
        (
            Shape::Gang,
            vec![DeleteNode(0), Tick(1000), SetOperatorDown(true), Pass(30), LoseContact(1), SetOperatorDown(false)],
        ),
        (Shape::Disk, vec![Tick(1000), SetOperatorDown(true), Pass(30), LoseContact(0), SetOperatorDown(false)]),
        // A ready pod with the key of the deleted Secret was replaced.
        (Shape::Gang, vec![Pass(1), Interleave(0, Box::new(DeletePod(0))), Wake, DeleteSecret]),
    ];
    for (shape, script) in scripts {
        for (scheduler_first, agents) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut cluster = play(shape, scheduler_first, agents, &script);
            cluster.heal();
            assert_eq!(cluster.phase(), Some(expected_phase(&cluster)), "{script:?}: {:?}", cluster.observer.log);
        }
    }
}
