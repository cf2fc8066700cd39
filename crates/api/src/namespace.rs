//! The namespaces of ODC.

use crate::name::UserName;

/// The control plane.
pub const SYSTEM: &str = "odc-system";
/// Image builds.
pub const BUILDS: &str = "odc-builds";

/// The namespace of a user, which makes everything in it theirs.
pub fn of(user: &UserName) -> String {
    format!("dev-{user}")
}

/// The user a namespace belongs to by its name. The operator made it only if it also carries [`crate::label::OWNER`].
pub fn owner(namespace: &str) -> Option<UserName> {
    namespace.strip_prefix("dev-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_its_owner() {
        let ada: UserName = "ada".parse().unwrap();
        assert_eq!(of(&ada), "dev-ada");
        assert_eq!(owner("dev-ada"), Some(ada));
        assert_eq!(owner("dev-"), None);
        assert_eq!(owner("kube-system"), None);
    }
}
