//! The work queues: which objects are to be reconciled, and which loops are to run.

use kube::runtime::reflector::ObjectRef;
use odc_api::v1alpha1::{DevServer, DevServerUser, Disk};
use tokio::sync::{Notify, mpsc};

pub struct WorkQueues {
    servers: mpsc::UnboundedSender<ObjectRef<DevServer>>,
    users: mpsc::UnboundedSender<ObjectRef<DevServerUser>>,
    disks: mpsc::UnboundedSender<ObjectRef<Disk>>,
    namespaces: mpsc::UnboundedSender<String>,
    pub teams: Notify,
    pub disk_operations: Notify,
    pub scheduler: Notify,
    pub flavors: Notify,
}

/// The receiving ends, for the controllers.
pub struct Receivers {
    pub servers: mpsc::UnboundedReceiver<ObjectRef<DevServer>>,
    pub users: mpsc::UnboundedReceiver<ObjectRef<DevServerUser>>,
    pub disks: mpsc::UnboundedReceiver<ObjectRef<Disk>>,
    pub namespaces: mpsc::UnboundedReceiver<String>,
}

// The receivers live as long as the leader, so the result of a send is ignored.
impl WorkQueues {
    pub fn new() -> (Self, Receivers) {
        let (servers, servers_receiver) = mpsc::unbounded_channel();
        let (users, users_receiver) = mpsc::unbounded_channel();
        let (disks, disks_receiver) = mpsc::unbounded_channel();
        let (namespaces, namespaces_receiver) = mpsc::unbounded_channel();
        let queues = Self {
            servers,
            users,
            disks,
            namespaces,
            teams: Notify::new(),
            disk_operations: Notify::new(),
            scheduler: Notify::new(),
            flavors: Notify::new(),
        };
        let receivers = Receivers {
            servers: servers_receiver,
            users: users_receiver,
            disks: disks_receiver,
            namespaces: namespaces_receiver,
        };
        (queues, receivers)
    }

    pub fn enqueue_server(&self, namespace: &str, name: &str) {
        let _ = self.servers.send(ObjectRef::new(name).within(namespace));
    }

    pub fn enqueue_user(&self, name: &str) {
        let _ = self.users.send(ObjectRef::new(name));
    }

    pub fn enqueue_disk(&self, namespace: &str, name: &str) {
        let _ = self.disks.send(ObjectRef::new(name).within(namespace));
    }

    /// Has a namespace checked for cleanup: its user may be deleted.
    pub fn enqueue_namespace(&self, namespace: &str) {
        let _ = self.namespaces.send(namespace.to_owned());
    }

    /// Runs the scheduler and the flavor loop: capacity or the queue may have changed.
    pub fn wake_scheduler(&self) {
        self.scheduler.notify_one();
        self.flavors.notify_one();
    }
}
