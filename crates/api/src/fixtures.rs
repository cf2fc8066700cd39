//! Objects for tests: valid objects with builder methods. All names differ, so that a swapped name is detected.

#![expect(clippy::expect_used, reason = "all texts are literals, and an invalid one must fail the test")]

pub mod case;

use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use crate::name::UserName;
use crate::v1alpha1::{
    Access, Desired, DevServer, DevServerFlavor, DevServerFlavorSpec, DevServerSpec, DevServerStatus, DevServerUser,
    DevServerUserSpec, Device, Disk, DiskAction, DiskOperation, DiskOperationSpec, DiskRetention, DiskSchedule,
    DiskSpec, DiskStatus, Home, Idle, IdleAction, Limits, Per, Phase, Privilege, Quota, Resources, Role, Scheduling,
    Team, TeamPriority, TeamSpec,
};

/// A public key without a private key.
pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT ada@laptop";

/// Parses an RFC 3339 time.
pub fn time(text: &str) -> Time {
    Time(text.parse::<Timestamp>().expect("a time like 2026-01-31T09:00:00Z"))
}

fn parsed<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a valid literal")
}

impl DevServer {
    /// Returns the server `server-1` of `ada`: one device of the flavor `flavor-gpu`, home on the claim `claim-home`.
    pub fn test() -> Self {
        let spec = DevServerSpec {
            team: None,
            flavor: Some(parsed("flavor-gpu")),
            count: Some(1),
            nodes: 1,
            desired: Desired::Running,
            wake: None,
            image: None,
            lifetime: parsed("8h"),
            idle: Idle::default(),
            home: Home::Claim(parsed("claim-home")),
            volumes: vec![],
            access: Access::default(),
            env: vec![],
            setup: None,
            scheduling: Scheduling::default(),
        };
        let metadata = ObjectMeta {
            name: Some("server-1".into()),
            namespace: Some("dev-ada".into()),
            uid: Some("uid-server-1".into()),
            generation: Some(1),
            resource_version: Some("100".into()),
            ..ObjectMeta::default()
        };
        Self { metadata, spec, status: None }
    }

    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.metadata.name = Some(name.into());
        self.metadata.uid = Some(format!("uid-{name}"));
        self
    }

    #[must_use]
    pub fn owned_by(mut self, user: &str) -> Self {
        self.metadata.namespace = Some(crate::namespace::for_user(&parsed::<UserName>(user)));
        self
    }

    #[must_use]
    pub fn size(mut self, flavor: &str, count: u32, nodes: u32) -> Self {
        self.spec.flavor = Some(parsed(flavor));
        self.spec.count = Some(count);
        self.spec.nodes = nodes;
        self
    }

    #[must_use]
    pub fn lifetime(mut self, lifetime: &str) -> Self {
        self.spec.lifetime = parsed(lifetime);
        self
    }

    #[must_use]
    pub fn idle(mut self, timeout: &str, action: IdleAction) -> Self {
        self.spec.idle = Idle { timeout: parsed(timeout), action };
        self
    }

    /// Sets an ephemeral home, and the idle action End, because the server cannot be hibernated.
    #[must_use]
    pub fn ephemeral(mut self, size: &str) -> Self {
        self.spec.home = Home::Ephemeral(parsed(size));
        self.spec.idle.action = IdleAction::End;
        self
    }

    /// Changes the spec and increments the generation.
    #[must_use]
    pub fn desired(mut self, desired: Desired) -> Self {
        self.spec.desired = desired;
        self.metadata.generation = self.metadata.generation.map(|generation| generation + 1);
        self
    }

    #[must_use]
    pub fn in_phase(mut self, phase: Phase) -> Self {
        self.status.get_or_insert_default().phase = Some(phase);
        self
    }

    #[must_use]
    pub fn status(mut self, change: impl FnOnce(&mut DevServerStatus)) -> Self {
        change(self.status.get_or_insert_default());
        self
    }
}

impl Disk {
    /// Returns the disk `disk-home` of `ada`, of 50Gi and never used.
    pub fn test() -> Self {
        let spec = DiskSpec {
            display_name: None,
            size: parsed("50Gi"),
            storage_class: None,
            source: None,
            schedule: DiskSchedule::default(),
            retention: DiskRetention::default(),
            deleted: false,
        };
        let metadata = ObjectMeta {
            name: Some("disk-home".into()),
            namespace: Some("dev-ada".into()),
            uid: Some("uid-disk-home".into()),
            generation: Some(1),
            resource_version: Some("200".into()),
            ..ObjectMeta::default()
        };
        Self { metadata, spec, status: None }
    }

    #[must_use]
    pub fn status(mut self, change: impl FnOnce(&mut DiskStatus)) -> Self {
        change(self.status.get_or_insert_default());
        self
    }
}

impl DiskOperation {
    /// Returns an operation on `disk-home`, named after its uid.
    pub fn test(uid: &str, action: DiskAction) -> Self {
        let spec = DiskOperationSpec { disk: parsed("disk-home"), action, arguments: None, note: None };
        let mut operation = Self::new(uid, spec);
        operation.metadata.namespace = Some("dev-ada".into());
        operation.metadata.uid = Some(uid.into());
        operation.metadata.generation = Some(1);
        operation
    }
}

impl DevServerFlavor {
    /// Returns the flavor `flavor-gpu`: eight GPUs on a node, each with 24 cores and 240Gi.
    pub fn test() -> Self {
        let device = Device {
            resource: "nvidia.com/gpu".into(),
            model: Some("H100".into()),
            memory: Some(parsed("80Gi")),
            per_node: 8,
            counts: vec![1, 2, 4, 8],
        };
        let spec = DevServerFlavorSpec {
            display_name: None,
            device: Some(device),
            resources: Resources { per: Per::Device, cpu: parsed("24"), memory: parsed("240Gi") },
            node_selector: [("example.org/pool".into(), "pool-gpu".into())].into(),
            tolerations: vec![],
            runtime_class: None,
            privilege: Privilege::Restricted,
            pull_secret: None,
            volumes: vec![],
            limits: Limits::default(),
            price_per_device_hour: None,
            default: false,
            maintenance: None,
            gang_topology_key: None,
            warm_pool: None,
            spot: false,
        };
        Self::new("flavor-gpu", spec)
    }

    /// Returns the flavor `flavor-cpu`: four cores and 16Gi for each server, no devices.
    pub fn test_cpu() -> Self {
        let mut flavor = Self::test();
        flavor.metadata.name = Some("flavor-cpu".into());
        flavor.spec.device = None;
        flavor.spec.resources = Resources { per: Per::Server, cpu: parsed("4"), memory: parsed("16Gi") };
        flavor.spec.node_selector = [("example.org/pool".into(), "pool-cpu".into())].into();
        flavor
    }

    #[must_use]
    pub fn default_flavor(mut self) -> Self {
        self.spec.default = true;
        self
    }

    #[must_use]
    pub fn limits(mut self, lifetime: &str, extension: &str, total: &str) -> Self {
        self.spec.limits =
            Limits { lifetime: Some(parsed(lifetime)), extension: Some(parsed(extension)), total: Some(parsed(total)) };
        self
    }
}

impl DevServerUser {
    /// Returns the user `ada`, without quota.
    pub fn test() -> Self {
        let spec = DevServerUserSpec {
            display_name: Some("Ada".into()),
            identities: vec![],
            keys: vec![parsed(KEY)],
            github: None,
            quota: Quota::default(),
            weight: 1,
            priority_ceiling: None,
            defaults: None,
            role: Role::User,
        };
        Self::new("ada", spec)
    }

    #[must_use]
    pub fn quota(mut self, quota: Quota) -> Self {
        self.spec.quota = quota;
        self
    }
}

impl Team {
    /// Returns the team `team-vision` with the member `ada`, without quota.
    pub fn test() -> Self {
        let spec = TeamSpec {
            display_name: None,
            members: vec![parsed("ada")],
            quota: Quota::default(),
            weight: 1,
            borrowing_limit: None,
            priority: TeamPriority::default(),
        };
        Self::new("team-vision", spec)
    }
}
