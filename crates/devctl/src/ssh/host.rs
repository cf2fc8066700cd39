//! Host names for OpenSSH: `box.odc`, `1.box.odc` for the second node of a multi-node server, and
//! `POD.browse.disk.odc` for a restore point that is open.

pub const SUFFIX: &str = ".odc";

/// The suffix of a pod of `devctl disk browse`. No server has such a host name: a server name contains no dot.
const BROWSE_SUFFIX: &str = ".browse.disk.odc";

/// Returns the host name of a pod of `devctl disk browse`.
pub fn browse_alias(pod: &str) -> String {
    format!("{pod}{BROWSE_SUFFIX}")
}

/// Returns the pod of a host name of `devctl disk browse`.
pub fn browse_pod(host: &str) -> Option<&str> {
    let pod = host.strip_suffix(BROWSE_SUFFIX)?;
    pod.parse::<odc_api::name::ObjectName>().is_ok().then_some(pod)
}

/// A node of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub server: String,
    pub node: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid host {0:?}: expected NAME, NAME{SUFFIX}, or 1.NAME{SUFFIX} for the second node")]
pub struct InvalidHost(String);

impl Host {
    pub fn new(server: &str, node: u32) -> Self {
        Self { server: server.to_owned(), node }
    }

    /// Parses a host name, with or without the suffix.
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        let name = text.strip_suffix(SUFFIX).unwrap_or(text);
        let (node, server) = match name.split_once('.') {
            None => (0, name),
            Some((node, server)) => (node.parse().map_err(|_| InvalidHost(text.to_owned()))?, server),
        };
        // Other characters have a meaning in known_hosts files.
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if server.is_empty() || !server.bytes().all(is_valid) || server.starts_with('-') {
            return Err(InvalidHost(text.to_owned()));
        }
        Ok(Self { server: server.to_owned(), node })
    }

    /// Returns the host name.
    pub fn alias(&self) -> String {
        match self.node {
            0 => format!("{}{SUFFIX}", self.server),
            node => format!("{node}.{}{SUFFIX}", self.server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_parses_server_and_node() {
        for (text, server, node, alias) in [
            ("box.odc", "box", 0, "box.odc"),
            ("box", "box", 0, "box.odc"),
            ("1.box.odc", "box", 1, "1.box.odc"),
            ("0.box.odc", "box", 0, "box.odc"),
            ("a-1", "a-1", 0, "a-1.odc"),
        ] {
            let host = Host::parse(text).unwrap();
            assert_eq!(host, Host::new(server, node), "{text}");
            assert_eq!(host.alias(), alias);
        }
    }

    #[test]
    fn host_of_a_browse_pod_is_no_server() {
        for pod in ["home-1a", "1"] {
            let alias = browse_alias(pod);
            assert_eq!(browse_pod(&alias), Some(pod));
            assert!(Host::parse(&alias).is_err(), "{alias}");
        }
        for other in ["box.odc", ".browse.disk.odc", "a b.browse.disk.odc", "1.disk.odc"] {
            assert_eq!(browse_pod(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        for text in ["", ".odc", "x.box.odc", "1.2.box", "-box", "a b", "a,b", "*", "box\n", "Box", "box@prod"] {
            assert_eq!(Host::parse(text), Err(InvalidHost(text.to_owned())));
        }
    }
}
