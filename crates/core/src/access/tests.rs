use super::*;

fn caller(role: Role, scopes: Scopes) -> Caller {
    Caller { user: "ada".to_owned(), role, scopes, via: Via::Kubernetes }
}

fn scopes(names: &str) -> Scopes {
    names.split_whitespace().map(|name| Scope::from_name(name).unwrap()).collect()
}

const OWN: Target<'_> = Target::User("ada");
const OTHER: Target<'_> = Target::User("bob");

/// Returns the decision as a word: `allow`, `hidden`, or the reason.
fn word(decision: &Decision) -> String {
    match decision {
        Decision::Allow => "allow".to_owned(),
        Decision::NotFound => "hidden".to_owned(),
        Decision::Forbidden(reason) => reason.to_string(),
    }
}

#[test]
fn decisions_follow_role_scope_and_owner() {
    use Action::{ReadAudit, ReadCatalog, ReadCluster, ReadServers, WriteCluster, WriteKeys, WriteServers};
    let all = Scopes::all();
    let read = scopes("servers:read");
    let no_admin = scopes("servers:read servers:write");
    let needs_admin = "requires the role Admin";
    let needs_auditor = "requires the role Admin or Auditor";
    let read_only = "the role Auditor can only read";
    let table = [
        (Role::User, all, ReadServers, OWN, "allow"),
        (Role::User, all, ReadServers, OTHER, "hidden"),
        (Role::User, all, WriteServers, OTHER, "hidden"),
        (Role::User, all, ReadServers, Target::Cluster, needs_auditor),
        (Role::User, all, ReadCatalog, Target::Cluster, "allow"),
        (Role::User, all, ReadCluster, Target::Cluster, needs_auditor),
        (Role::User, all, WriteCluster, Target::Cluster, needs_admin),
        (Role::User, all, ReadAudit, OWN, "allow"),
        (Role::User, read, ReadServers, OWN, "allow"),
        (Role::User, read, WriteServers, OWN, "requires an API key with the scope servers:write"),
        (Role::User, read, WriteServers, OTHER, "hidden"),
        (Role::User, scopes("admin"), WriteCluster, Target::Cluster, needs_admin),
        (Role::User, scopes("admin"), ReadServers, OWN, "requires an API key with the scope servers:read"),
        (Role::Auditor, all, ReadServers, OTHER, "allow"),
        (Role::Auditor, all, ReadAudit, Target::Cluster, "allow"),
        (Role::Auditor, all, WriteServers, OTHER, read_only),
        (Role::Auditor, all, WriteServers, OWN, read_only),
        (Role::Auditor, all, WriteKeys, OWN, "allow"),
        (Role::Auditor, all, WriteKeys, OTHER, read_only),
        (Role::Auditor, all, WriteCluster, Target::Cluster, read_only),
        (Role::Admin, all, WriteServers, OTHER, "allow"),
        (Role::Admin, all, WriteCluster, Target::Cluster, "allow"),
        (Role::Admin, no_admin, WriteServers, OTHER, "hidden"),
        (Role::Admin, no_admin, WriteServers, OWN, "allow"),
        (Role::Admin, no_admin, WriteCluster, Target::Cluster, "requires an API key with the scope admin"),
        (Role::Admin, scopes("admin"), WriteServers, OTHER, "requires an API key with the scope servers:write"),
    ];
    for (role, scopes, action, target, expected) in table {
        let decision = decide(&caller(role, scopes), action, target);
        assert_eq!(word(&decision), expected, "{role:?} with {scopes:?}: {action:?} of {target:?}");
    }
}

/// Returns every set of scopes.
fn all_scope_sets() -> impl Iterator<Item = Scopes> {
    (0..1u16 << Scope::ALL.len()).map(Scopes)
}

#[test]
fn scope_never_adds_to_the_role() {
    for role in [Role::User, Role::Admin, Role::Auditor] {
        let full = caller(role, Scopes::all());
        for scopes in all_scope_sets() {
            let key = caller(role, scopes);
            for action in Action::ALL {
                for target in [OWN, OTHER, Target::Cluster] {
                    if decide(&key, action, target) == Decision::Allow {
                        assert_eq!(decide(&full, action, target), Decision::Allow, "{key:?} {action:?} {target:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn key_grants_only_its_own_scopes() {
    let reader = caller(Role::User, scopes("servers:read keys:write"));
    assert!(reader.may_grant(scopes("servers:read")));
    assert!(!reader.may_grant(scopes("servers:write")));
    assert!(!reader.may_grant(Scopes::all()));
}

#[test]
fn names_of_scopes_are_unique() {
    for scope in Scope::ALL {
        assert_eq!(Scope::from_name(scope.as_str()), Some(scope));
    }
}
