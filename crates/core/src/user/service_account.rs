//! The service account for the user's tools: `kubectl`, scripts, CI.
//!
//! Server pods do not use it. They run as the namespace's `default` account, which has no permissions, without a token.

use k8s_openapi::api::core::v1::ServiceAccount;
use odc_api::name::UserName;

use crate::manifest::{Kind, Object};

/// The same in all namespaces, so that the operator's permission to write service accounts can be restricted to it. It is
/// not the user's name: a user called `default` would share the account of the pods.
pub(super) const NAME: &str = "odc-user";

pub(super) fn object(user: &UserName) -> Object {
    let account = ServiceAccount {
        metadata: super::metadata(user, NAME),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    Object::new(Kind::ServiceAccount, &account)
}
