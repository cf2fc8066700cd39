//! The account of the person's own tools: `kubectl`, scripts, CI.
//!
//! Dev server pods do not run as it. They run as the namespace's `default`, which has no rights, and get no token.

use k8s_openapi::api::core::v1::ServiceAccount;
use odc_api::name::UserName;

use crate::object::{Kind, Object};

/// The same in every namespace, so that the operator's right to write accounts can be limited to this one, and never
/// the user's name: a person called `default` would share an account with the pods.
pub(super) const NAME: &str = "odc-user";

pub(super) fn object(user: &UserName) -> Object {
    let account = ServiceAccount {
        metadata: super::metadata(user, NAME),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    Object::new(Kind::ServiceAccount, &account)
}
