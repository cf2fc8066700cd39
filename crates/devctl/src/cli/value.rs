//! Argument types that are parsed.

use std::fmt::Display;
use std::str::FromStr;

use odc_api::duration::Duration;
use odc_api::name::{FlavorName, ObjectName, PortName};

use crate::request::args::PriorityArg;

/// A number of hours: `8`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours(pub Duration);

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The duration parser handles fractions of hours exactly.
        let number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let hours = format!("{text}h").parse().ok().filter(|_| number);
        hours
            .map(Self)
            .ok_or_else(|| format!("invalid number of hours {text:?}: expected 8 or 0.5, or use --lifetime 4h30m"))
    }
}

/// `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected NAME=VALUE")?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// `NAME=SECRET/KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretAssignment {
    pub name: String,
    pub secret: ObjectName,
    pub key: String,
}

impl FromStr for SecretAssignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected NAME=SECRET/KEY";
        let (name, reference) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(form)?;
        let (secret, key) = reference.split_once('/').filter(|(_, key)| !key.is_empty()).ok_or(form)?;
        let secret = secret.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name: name.to_owned(), secret, key: key.to_owned() })
    }
}

/// `PVC:/path[:ro]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub claim: ObjectName,
    pub path: odc_api::mount_path::MountPath,
    pub read_only: bool,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (claim, path, mode) = (parts.next(), parts.next(), parts.next());
        let (Some(claim), Some(path), None) = (claim, path, parts.next()) else {
            return Err("expected PVC:/path or PVC:/path:ro".to_owned());
        };
        let read_only = match mode {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(other) => return Err(format!("invalid mode {other:?}: expected ro or rw")),
        };
        let claim = claim.parse().map_err(|error| format!("{error}"))?;
        let path = path.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { claim, path, read_only })
    }
}

/// `NAME=PORT[:private|team|public]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortArg {
    pub name: PortName,
    pub port: u16,
    pub share: odc_api::v1alpha1::Share,
}

impl FromStr for PortArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use odc_api::v1alpha1::Share;
        let form = "expected NAME=PORT, NAME=PORT:team or NAME=PORT:public";
        let (name, rest) = text.split_once('=').ok_or(form)?;
        let (port, share) = match rest.split_once(':') {
            None => (rest, Share::Private),
            Some((port, "private")) => (port, Share::Private),
            Some((port, "team")) => (port, Share::Team),
            Some((port, "public")) => (port, Share::Public),
            Some(_) => return Err(form.to_owned()),
        };
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(form)?;
        Ok(Self { name: name.parse().map_err(|error| format!("{error}"))?, port, share })
    }
}

/// An amount, or `none` for unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

impl<T: FromStr<Err: Display>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let amount = text.parse().map_err(|error| format!("expected an amount or none: {error}"))?;
        Ok(Self(Some(amount)))
    }
}

/// A priority, or `none` for the ceiling of the team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityCeilingArg(pub Option<PriorityArg>);

impl FromStr for PriorityCeilingArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let priority = <PriorityArg as clap::ValueEnum>::from_str(text, true);
        priority.map(|priority| Self(Some(priority))).map_err(|_| "expected low, normal, high or none".to_owned())
    }
}

/// `FLAVOR=N`, or `FLAVOR=none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorLimit {
    pub flavor: FlavorName,
    pub devices: Limit<u32>,
}

impl FromStr for FlavorLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (flavor, devices) = text.split_once('=').ok_or("expected FLAVOR=N or FLAVOR=none")?;
        Ok(Self { flavor: flavor.parse().map_err(|error| format!("{error}"))?, devices: devices.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_an_amount_or_none() {
        assert_eq!("8".parse(), Ok(Limit(Some(8_u32))));
        assert_eq!("none".parse(), Ok(Limit::<u32>(None)));
        assert_eq!(
            "-1".parse::<Limit<u32>>(),
            Err("expected an amount or none: invalid digit found in string".to_owned())
        );
        let limit = |text: &str| text.parse().map(|FlavorLimit { flavor, devices }| (flavor.to_string(), devices.0));
        assert_eq!(limit("h100=8"), Ok(("h100".to_owned(), Some(8))));
        assert_eq!(limit("h100=none"), Ok(("h100".to_owned(), None)));
        for invalid in ["h100", "h100=", "=8", "H 100=8", "h100=many"] {
            assert!(limit(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn hours_accept_fractions_only() {
        assert_eq!("0.5".parse(), Ok(Hours(Duration::minutes(30))));
        assert_eq!("8".parse(), Ok(Hours(Duration::hours(8))));
        for invalid in ["", "8h", "-1", "1e3", "."] {
            assert!(invalid.parse::<Hours>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn mount_parses_claim_path_and_mode() {
        let mount: Mount = "data:/data:ro".parse().unwrap();
        assert_eq!((mount.claim.as_str(), mount.path.as_str(), mount.read_only), ("data", "/data", true));
        assert!(!"data:/data".parse::<Mount>().unwrap().read_only);
        for invalid in ["data", "data:/data:x", "data:/data:ro:x", "Data:/data", "data:relative"] {
            assert!(invalid.parse::<Mount>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn assignment_splits_at_the_first_equals_sign() {
        let assignment: Assignment = "A=b=c".parse().unwrap();
        assert_eq!((&assignment.name[..], &assignment.value[..]), ("A", "b=c"));
        assert!("=x".parse::<Assignment>().is_err());
        assert!("TOKEN=hub".parse::<SecretAssignment>().is_err());
        let secret: SecretAssignment = "TOKEN=hub/token".parse().unwrap();
        assert_eq!((secret.secret.as_str(), &secret.key[..]), ("hub", "token"));
    }

    #[test]
    fn ports_are_private_by_default() {
        use odc_api::v1alpha1::Share;
        assert_eq!("app=8000".parse::<PortArg>().unwrap().share, Share::Private);
        assert_eq!("app=8000:team".parse::<PortArg>().unwrap().share, Share::Team);
        for invalid in ["8000", "app=0", "app=70000", "app=8000:all", "App=8000"] {
            assert!(invalid.parse::<PortArg>().is_err(), "{invalid}");
        }
    }
}
