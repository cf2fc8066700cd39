//! Whether a certificate lets its holder in, and as whom. Pure: the lists, the time and the server's uid are arguments.
//!
//! The library has checked signature and validity when it asks us. Both are checked here again, so that what is decided
//! does not depend on what a library happens to do first.

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate};

use crate::serve::access::Lists;

/// As whom somebody is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A person: may do all that SSH can.
    User,
    /// The operator: has the subsystem `odc-control` and nothing else.
    Control,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is made for hosts")]
    Type,
    #[error("nobody this server trusts has signed it")]
    Authority,
    #[error("its signature is wrong, or made with SHA-1")]
    Signature,
    #[error("it is not valid yet")]
    Early,
    #[error("it is not valid any more")]
    Expired,
    #[error("it does not name this server, or not for those its signer may speak for")]
    Principal,
    #[error("it has the critical option {0:?}, which is not supported")]
    Option(String),
}

impl Principal {
    /// What a certificate must name. One without names would be good for every server, so it is good for none.
    fn name(self, uid: &str) -> String {
        match self {
            Self::User => format!("user:{uid}"),
            Self::Control => format!("control:{uid}"),
        }
    }
}

/// `now` is in seconds since 1970. That clocks differ is the signer's to allow for, by dating back.
pub fn judge(certificate: &Certificate, now: u64, lists: &Lists, uid: &str) -> Result<Principal, Refused> {
    if certificate.cert_type() != CertType::User {
        return Err(Refused::Type);
    }
    let authority = certificate.signature_key();
    let may_be: Vec<Principal> = [(Principal::User, &lists.user_cas), (Principal::Control, &lists.control_cas)]
        .into_iter()
        .filter_map(|(principal, list)| list.has(authority).then_some(principal))
        .collect();
    if may_be.is_empty() {
        return Err(Refused::Authority);
    }
    if certificate.signature().algorithm() == (Algorithm::Rsa { hash: None }) || certificate.verify_signature().is_err()
    {
        return Err(Refused::Signature);
    }
    if now < certificate.valid_after() {
        return Err(Refused::Early);
    }
    if now >= certificate.valid_before() {
        return Err(Refused::Expired);
    }
    // Critical means: refuse what you do not understand. We understand none: a source address says nothing behind a
    // gateway, and whoever may log in may run what they like.
    if let Some((name, _)) = certificate.critical_options().iter().next() {
        return Err(Refused::Option(name.clone()));
    }
    let named = |principal: &Principal| certificate.valid_principals().contains(&principal.name(uid));
    may_be.into_iter().find(named).ok_or(Refused::Principal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::access::list::List;
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::certificate::Builder;
    use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};

    const UID: &str = "4f6e-1";
    const FROM: u64 = 1000;
    const UNTIL: u64 = 2000;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "").unwrap()
    }

    fn lists(user: &[u8], control: &[u8]) -> Lists {
        let list = |seeds: &[u8]| List {
            keys: seeds.iter().map(|seed| key(*seed).public_key().key_data().clone()).collect(),
            unusable: Vec::new(),
        };
        Lists { keys: List::default(), user_cas: list(user), control_cas: list(control) }
    }

    fn certificate(authority: u8, principals: &[&str], change: impl FnOnce(&mut Builder)) -> Certificate {
        let subject = key(99).public_key().key_data().clone();
        let mut builder = Builder::new(vec![7; 16], subject, FROM, UNTIL).unwrap();
        for principal in principals {
            builder.valid_principal(*principal).unwrap();
        }
        change(&mut builder);
        builder.sign(&key(authority)).unwrap()
    }

    const USER_CA: u8 = 1;
    const CONTROL_CA: u8 = 2;
    const STRANGER: u8 = 3;

    fn check(certificate: &Certificate, now: u64, expect: &Result<Principal, Refused>) {
        assert_eq!(judge(certificate, now, &lists(&[USER_CA], &[CONTROL_CA]), UID), *expect);
    }

    #[test]
    fn each_authority_speaks_for_its_own_principal_and_no_other() {
        let (user, control) = (format!("user:{UID}"), format!("control:{UID}"));
        for (authority, principals, expect) in [
            (USER_CA, vec![user.as_str()], Ok(Principal::User)),
            (CONTROL_CA, vec![control.as_str()], Ok(Principal::Control)),
            (USER_CA, vec!["ada", "user:other", &user], Ok(Principal::User)),
            (USER_CA, vec![control.as_str()], Err(Refused::Principal)),
            (CONTROL_CA, vec![user.as_str()], Err(Refused::Principal)),
            (USER_CA, vec!["user:other"], Err(Refused::Principal)),
            (USER_CA, vec!["user:"], Err(Refused::Principal)),
            (USER_CA, vec![UID], Err(Refused::Principal)),
            (STRANGER, vec![user.as_str(), control.as_str()], Err(Refused::Authority)),
        ] {
            check(&certificate(authority, &principals, |_| ()), FROM, &expect);
        }
    }

    #[test]
    fn a_certificate_for_everybody_is_for_nobody() {
        let everybody = certificate(USER_CA, &[], |builder| drop(builder.all_principals_valid()));
        check(&everybody, FROM, &Err(Refused::Principal));
    }

    #[test]
    fn time_counts_to_the_second() {
        let certificate = certificate(USER_CA, &["user:4f6e-1"], |_| ());
        check(&certificate, FROM - 1, &Err(Refused::Early));
        check(&certificate, FROM, &Ok(Principal::User));
        check(&certificate, UNTIL - 1, &Ok(Principal::User));
        check(&certificate, UNTIL, &Err(Refused::Expired));
    }

    #[test]
    fn every_critical_option_is_refused() {
        for name in ["force-command", "source-address", "verify-required", "new@example.com"] {
            let critical = certificate(USER_CA, &["user:4f6e-1"], |builder| {
                builder.critical_option(name, "x").unwrap();
            });
            check(&critical, FROM, &Err(Refused::Option(name.to_owned())));
        }
        let extension = certificate(USER_CA, &["user:4f6e-1"], |builder| {
            builder.extension("permit-pty", "").unwrap();
        });
        check(&extension, FROM, &Ok(Principal::User));
    }

    #[test]
    fn a_hosts_certificate_is_no_persons() {
        let host = certificate(USER_CA, &["user:4f6e-1"], |builder| {
            builder.cert_type(CertType::Host).unwrap();
        });
        check(&host, FROM, &Err(Refused::Type));
    }

    #[test]
    fn what_was_changed_after_signing_is_worth_nothing() {
        let genuine = certificate(USER_CA, &["user:other1"], |_| ());
        let bytes = genuine.to_bytes().unwrap();
        let place = bytes.windows(11).position(|part| part == b"user:other1").unwrap();
        let mut forged = bytes.clone();
        forged[place..place + 11].copy_from_slice(b"user:4f6e-1");
        check(&Certificate::from_bytes(&forged).unwrap(), FROM, &Err(Refused::Signature));
    }

    #[test]
    fn one_that_is_in_both_lists_speaks_for_both() {
        let both = lists(&[USER_CA], &[USER_CA]);
        for (name, expect) in [("user:4f6e-1", Principal::User), ("control:4f6e-1", Principal::Control)] {
            assert_eq!(judge(&certificate(USER_CA, &[name], |_| ()), FROM, &both, UID), Ok(expect));
        }
    }
}
