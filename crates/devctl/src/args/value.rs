//! Values that are more than a word.

use std::fmt::Display;
use std::str::FromStr;

use odc_api::duration::Duration;
use odc_api::name::{FlavorName, ObjectName, PortName};

use super::create::Urgency;

/// Hours as people write them: `8`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours(pub Duration);

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The parser of durations knows fractions of hours, and is exact.
        let number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let hours = format!("{text}h").parse().ok().filter(|_| number);
        hours.map(Self).ok_or_else(|| format!("{text:?} is no number of hours; write 8 or 0.5, or use --time 4h30m"))
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
        let (name, value) =
            text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("write it as NAME=VALUE")?;
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
        let shape = "write it as NAME=SECRET/KEY";
        let (name, place) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(shape)?;
        let (secret, key) = place.split_once('/').filter(|(_, key)| !key.is_empty()).ok_or(shape)?;
        let secret = secret.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name: name.to_owned(), secret, key: key.to_owned() })
    }
}

/// `CLAIM:/path[:ro]`.
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
            return Err("write it as CLAIM:/path or CLAIM:/path:ro".to_owned());
        };
        let read_only = match mode {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(other) => return Err(format!("{other:?} is no mode; write :ro, or nothing to be able to write")),
        };
        let claim = claim.parse().map_err(|error| format!("{error}"))?;
        let path = path.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { claim, path, read_only })
    }
}

/// `NAME=PORT[:private|team|public]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    pub name: PortName,
    pub port: u16,
    pub share: odc_api::v1alpha1::Share,
}

impl FromStr for Door {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use odc_api::v1alpha1::Share;
        let form = "write it as NAME=PORT, or NAME=PORT:team or NAME=PORT:public to share it";
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

/// An amount, or `none` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

impl<T: FromStr<Err: Display>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let amount = text.parse().map_err(|error| format!("give a number, or none for no limit ({error})"))?;
        Ok(Self(Some(amount)))
    }
}

/// A priority, or `none` for no ceiling of one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling(pub Option<Urgency>);

impl FromStr for Ceiling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let urgency = <Urgency as clap::ValueEnum>::from_str(text, true);
        urgency.map(|most| Self(Some(most))).map_err(|_| "give low, normal, high, or none".to_owned())
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
        let (flavor, devices) = text.split_once('=').ok_or("write it as FLAVOR=N, or FLAVOR=none")?;
        Ok(Self { flavor: flavor.parse().map_err(|error| format!("{error}"))?, devices: devices.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_amounts_or_none() {
        assert_eq!("8".parse(), Ok(Limit(Some(8_u32))));
        assert_eq!("none".parse(), Ok(Limit::<u32>(None)));
        assert_eq!(
            "-1".parse::<Limit<u32>>(),
            Err("give a number, or none for no limit (invalid digit found in string)".to_owned())
        );
        let limit = |text: &str| text.parse().map(|FlavorLimit { flavor, devices }| (flavor.to_string(), devices.0));
        assert_eq!(limit("h100=8"), Ok(("h100".to_owned(), Some(8))));
        assert_eq!(limit("h100=none"), Ok(("h100".to_owned(), None)));
        for wrong in ["h100", "h100=", "=8", "H 100=8", "h100=many"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hours_may_have_fractions_and_nothing_else() {
        assert_eq!("0.5".parse(), Ok(Hours(Duration::minutes(30))));
        assert_eq!("8".parse(), Ok(Hours(Duration::hours(8))));
        for bad in ["", "8h", "-1", "1e3", "."] {
            assert!(bad.parse::<Hours>().is_err(), "{bad}");
        }
    }

    #[test]
    fn mounts_say_claim_path_and_mode() {
        let mount: Mount = "data:/data:ro".parse().unwrap();
        assert_eq!((mount.claim.as_str(), mount.path.as_str(), mount.read_only), ("data", "/data", true));
        assert!(!"data:/data".parse::<Mount>().unwrap().read_only);
        for bad in ["data", "data:/data:x", "data:/data:ro:x", "Data:/data", "data:relative"] {
            assert!(bad.parse::<Mount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn assignments_keep_every_later_equals_sign() {
        let assigned: Assignment = "A=b=c".parse().unwrap();
        assert_eq!((&assigned.name[..], &assigned.value[..]), ("A", "b=c"));
        assert!("=x".parse::<Assignment>().is_err());
        assert!("TOKEN=hub".parse::<SecretAssignment>().is_err());
        let secret: SecretAssignment = "TOKEN=hub/token".parse().unwrap();
        assert_eq!((secret.secret.as_str(), &secret.key[..]), ("hub", "token"));
    }

    #[test]
    fn doors_are_private_unless_said_otherwise() {
        use odc_api::v1alpha1::Share;
        assert_eq!("app=8000".parse::<Door>().unwrap().share, Share::Private);
        assert_eq!("app=8000:team".parse::<Door>().unwrap().share, Share::Team);
        for bad in ["8000", "app=0", "app=70000", "app=8000:all", "App=8000"] {
            assert!(bad.parse::<Door>().is_err(), "{bad}");
        }
    }
}
