//! Decides what a caller of the HTTP API may do.
//!
//! A caller acts for one user and has at most the permissions of the user's role, reduced to the scopes of the API key.
//! What a caller may not see does not exist for them.

mod rules;
#[cfg(test)]
mod tests;

use std::fmt;

use odc_api::v1alpha1::Role;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    /// The current role of the user.
    pub role: Role,
    pub scopes: Scopes,
    pub via: Via,
}

/// How a caller was authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    ApiKey {
        id: String,
    },
    /// A token of the user's service account.
    Kubernetes,
}

/// Part of the permissions of a user, granted to an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    ServersRead,
    ServersWrite,
    DisksRead,
    DisksWrite,
    KeysRead,
    KeysWrite,
    UsageRead,
    UsageWrite,
    AuditRead,
    /// The permissions of an administrator. Useless for other users.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 10] = [
        Self::ServersRead,
        Self::ServersWrite,
        Self::DisksRead,
        Self::DisksWrite,
        Self::KeysRead,
        Self::KeysWrite,
        Self::UsageRead,
        Self::UsageWrite,
        Self::AuditRead,
        Self::Admin,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServersRead => "servers:read",
            Self::ServersWrite => "servers:write",
            Self::DisksRead => "disks:read",
            Self::DisksWrite => "disks:write",
            Self::KeysRead => "keys:read",
            Self::KeysWrite => "keys:write",
            Self::UsageRead => "usage:read",
            Self::UsageWrite => "usage:write",
            Self::AuditRead => "audit:read",
            Self::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    /// Returns the scopes that a credential without scopes has.
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Scope::as_str)).finish()
    }
}

/// A class of operations with the same requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads what all users may know: flavors, availability, the anonymous queue, the version, the caller itself.
    ReadCatalog,
    ReadServers,
    WriteServers,
    ReadDisks,
    WriteDisks,
    ReadKeys,
    WriteKeys,
    ReadUsage,
    /// Reports tokens of language models.
    WriteUsage,
    ReadAudit,
    /// Reads the state of a request.
    ReadRequests,
    /// Reads users and teams.
    ReadUsers,
    /// Reads nodes and the statistics of all users.
    ReadCluster,
    /// Changes users, teams, flavors and nodes.
    WriteCluster,
}

impl Action {
    pub const ALL: [Self; 14] = [
        Self::ReadCatalog,
        Self::ReadServers,
        Self::WriteServers,
        Self::ReadDisks,
        Self::WriteDisks,
        Self::ReadKeys,
        Self::WriteKeys,
        Self::ReadUsage,
        Self::WriteUsage,
        Self::ReadAudit,
        Self::ReadRequests,
        Self::ReadUsers,
        Self::ReadCluster,
        Self::WriteCluster,
    ];

    /// Returns the scope that an API key needs. Reads of shared data need none.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Self::ReadCatalog | Self::ReadRequests | Self::ReadUsers | Self::ReadCluster => None,
            Self::ReadServers => Some(Scope::ServersRead),
            Self::WriteServers => Some(Scope::ServersWrite),
            Self::ReadDisks => Some(Scope::DisksRead),
            Self::WriteDisks => Some(Scope::DisksWrite),
            Self::ReadKeys => Some(Scope::KeysRead),
            Self::WriteKeys => Some(Scope::KeysWrite),
            Self::ReadUsage => Some(Scope::UsageRead),
            Self::WriteUsage => Some(Scope::UsageWrite),
            Self::ReadAudit => Some(Scope::AuditRead),
            Self::WriteCluster => Some(Scope::Admin),
        }
    }

    pub const fn is_write(self) -> bool {
        matches!(self, Self::WriteServers | Self::WriteDisks | Self::WriteKeys | Self::WriteUsage | Self::WriteCluster)
    }

    /// Reports whether the action is about the whole cluster, not about one user.
    pub const fn is_cluster_wide(self) -> bool {
        matches!(self, Self::ReadCluster | Self::WriteCluster)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadCatalog => "catalog.read",
            Self::ReadServers => "servers.read",
            Self::WriteServers => "servers.write",
            Self::ReadDisks => "disks.read",
            Self::WriteDisks => "disks.write",
            Self::ReadKeys => "keys.read",
            Self::WriteKeys => "keys.write",
            Self::ReadUsage => "usage.read",
            Self::WriteUsage => "usage.write",
            Self::ReadAudit => "audit.read",
            Self::ReadRequests => "requests.read",
            Self::ReadUsers => "users.read",
            Self::ReadCluster => "cluster.read",
            Self::WriteCluster => "cluster.write",
        }
    }
}

/// What an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The objects of one user.
    User(&'a str),
    /// The objects of all users, or of none.
    Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// The caller may not know whether the object exists.
    NotFound,
    Forbidden(Reason),
}

/// Why an action is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("requires an API key with the scope {}", .0.as_str())]
    Scope(Scope),
    #[error("requires the role Admin")]
    AdminRequired,
    #[error("requires the role Admin or Auditor")]
    AuditorRequired,
    #[error("the role Auditor can only read")]
    ReadOnly,
}

/// Decides whether a caller may do something.
pub fn decide(caller: &Caller, action: Action, target: Target<'_>) -> Decision {
    rules::RULES.iter().find_map(|rule| rule(caller, action, target)).unwrap_or(Decision::Allow)
}

impl Caller {
    /// Returns the role that the scopes of the caller leave. An administrator's key without the scope `admin` acts as the
    /// key of any other user.
    pub fn effective_role(&self) -> Role {
        match self.role {
            Role::Admin if !self.scopes.contains(Scope::Admin) => Role::User,
            role => role,
        }
    }

    /// Reports whether the caller sees the objects of all users.
    pub fn sees_all_users(&self) -> bool {
        matches!(self.effective_role(), Role::Admin | Role::Auditor)
    }

    /// Reports whether the caller may create a key with these scopes: no key grants more than the one that created it.
    pub fn may_grant(&self, scopes: Scopes) -> bool {
        scopes.is_subset_of(self.scopes)
    }
}
