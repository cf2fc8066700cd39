//! The kinds that are copied.

use kube::api::{ApiResource, DynamicObject};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team};

/// A kind, in the order of writing: the usage of servers needs the prices of flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Flavor,
    User,
    Team,
    Server,
    Disk,
    DiskOperation,
}

impl Kind {
    pub const ALL: [Self; 6] = [Self::Flavor, Self::User, Self::Team, Self::Server, Self::Disk, Self::DiskOperation];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flavor => "DevServerFlavor",
            Self::User => "DevServerUser",
            Self::Team => "Team",
            Self::Server => "DevServer",
            Self::Disk => "Disk",
            Self::DiskOperation => "DiskOperation",
        }
    }

    pub fn resource(self) -> ApiResource {
        match self {
            Self::Flavor => ApiResource::erase::<DevServerFlavor>(&()),
            Self::User => ApiResource::erase::<DevServerUser>(&()),
            Self::Team => ApiResource::erase::<Team>(&()),
            Self::Server => ApiResource::erase::<DevServer>(&()),
            Self::Disk => ApiResource::erase::<Disk>(&()),
            Self::DiskOperation => ApiResource::erase::<DiskOperation>(&()),
        }
    }

    /// Returns the key of an object in its table: the name of users, teams and flavors, else the uid.
    pub fn key(self, object: &DynamicObject) -> Option<String> {
        match self {
            Self::Flavor | Self::User | Self::Team => object.metadata.name.clone(),
            Self::Server | Self::Disk | Self::DiskOperation => object.metadata.uid.clone(),
        }
    }
}
