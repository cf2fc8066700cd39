//! The namespaces of ODC.

use std::fmt::Display;

use crate::name::UserName;

/// The default namespace of the control plane.
pub const SYSTEM: &str = "odc-system";

/// Returns the name of a user's namespace.
pub fn for_user<T: Display + ?Sized>(user: &T) -> String {
    format!("dev-{user}")
}

/// Returns the user that a namespace belongs to by its name. The operator created it only if it also has the label
/// [`crate::label::OWNER`].
pub fn owner(namespace: &str) -> Option<UserName> {
    namespace.strip_prefix("dev-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_derived_from_the_user_name() {
        let ada: UserName = "ada".parse().unwrap();
        assert_eq!(for_user(&ada), "dev-ada");
        assert_eq!(owner("dev-ada"), Some(ada));
        assert_eq!(owner("dev-"), None);
        assert_eq!(owner("kube-system"), None);
    }
}
