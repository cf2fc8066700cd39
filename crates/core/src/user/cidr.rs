//! Address ranges in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address range such as `10.0.0.0/8`. The host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    first: IpAddr,
    length: u8,
}

impl Cidr {
    pub fn is_ipv4(self) -> bool {
        self.first.is_ipv4()
    }

    /// Reports whether the range contains all addresses of its family.
    pub fn is_unrestricted(self) -> bool {
        self.length == 0
    }

    fn new(address: IpAddr, length: u8) -> Option<Self> {
        let first = match address {
            IpAddr::V4(address) => {
                let unused = 32_u32.checked_sub(length.into())?;
                let mask = u32::MAX.checked_shl(unused).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
            }
            // Kubernetes rejects IPv4-mapped IPv6 addresses.
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => return None,
            IpAddr::V6(address) => {
                let unused = 128_u32.checked_sub(length.into())?;
                let mask = u128::MAX.checked_shl(unused).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
            }
        };
        Some(Self { first, length })
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let parsed = || {
            let (address, length) = text.split_once('/')?;
            Self::new(address.parse().ok()?, length.parse().ok()?)
        };
        parsed().ok_or_else(|| InvalidCidr(text.to_owned()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCidr(String);

impl fmt::Display for InvalidCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid CIDR {:?}, expected e.g. 10.0.0.0/8 or fd00::/8", self.0)
    }
}

impl std::error::Error for InvalidCidr {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_normalized_to_first_address() {
        for (text, expect) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("FD00:EC2::254/128", "fd00:ec2::254/128"),
            ("fd00:ec2::254/32", "fd00:ec2::/32"),
            ("::1/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), expect, "{text}");
        }
    }

    #[test]
    fn ranges_rejected_by_kubernetes_are_invalid() {
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0/8", "a/8", "10.0.0.0/-1", "::ffff:10.0.0.0/104"] {
            assert_eq!(bad.parse::<Cidr>(), Err(InvalidCidr(bad.into())), "{bad}");
        }
    }
}
