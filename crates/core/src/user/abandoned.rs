//! What is left of a user who is gone.

use odc_api::label;

use super::upkeep::target;
use super::{account, binding};
use crate::object::Kind;
use crate::plan::{Target, Write};
use crate::seen::Child;

/// What a namespace still holds. Each must be counted by asking the API server itself: a watch that is behind would make a
/// full namespace look empty, and deleting it would delete the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// `PersistentVolumeClaims`: people's data.
    pub claims: usize,
    /// Pods, ended or not. Those that are stopping still need the walls around them.
    pub pods: usize,
    /// Servers nobody has deleted yet.
    pub servers: Vec<Target>,
    /// Servers that are being deleted and still there.
    pub leaving: usize,
}

/// Takes away what the user had: rights first, so that nothing new comes, then the servers, which stop in order. The
/// namespace goes last and only when nobody's data is in it; with it go the operator's own rights there.
///
/// Only for users of whom the API server itself says that they are gone. Only a namespace with both our name and our label
/// is ours. `children` are the objects in it.
pub fn abandoned(namespace: &Child, holds: &Holds, children: &[&Child]) -> Vec<Write> {
    if namespace.deleting || !is_ours(namespace) {
        return vec![];
    }
    let here = |child: &&&Child| child.namespace.as_ref() == Some(&namespace.name);
    let rights: Vec<&Child> = [(Kind::RoleBinding, binding::USER), (Kind::ServiceAccount, account::NAME)]
        .into_iter()
        .flat_map(|(kind, name)| {
            children.iter().filter(here).filter(move |child| child.kind == kind && child.name == name)
        })
        .copied()
        .collect();
    let Holds { claims, pods, servers, leaving } = holds;
    if rights.is_empty() && servers.is_empty() && *leaving == 0 && *pods == 0 && *claims == 0 {
        return vec![Write::Delete(target(namespace))];
    }
    let rights = rights.into_iter().filter(|child| !child.deleting).map(target);
    // Nothing else may be deleted here, whoever asks.
    let is_server =
        |server: &&Target| server.kind == Kind::DevServer && server.namespace.as_ref() == Some(&namespace.name);
    rights.chain(servers.iter().filter(is_server).cloned()).map(Write::Delete).collect()
}

fn is_ours(namespace: &Child) -> bool {
    let owner = odc_api::namespace::owner(&namespace.name);
    owner.is_some_and(|owner| namespace.label(label::OWNER) == Some(owner.as_str()))
}
