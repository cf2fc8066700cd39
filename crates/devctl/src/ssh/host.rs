//! The names under which OpenSSH knows servers: `box.odc`, and `1.box.odc` for the second node of a gang.

pub const SUFFIX: &str = ".odc";

/// A server as named to OpenSSH, and one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As it was typed: a name or the beginning of one.
    pub server: String,
    pub node: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no server; use NAME, NAME{SUFFIX}, or 1.NAME{SUFFIX} for the second node of a gang")]
pub struct NotAHost(String);

impl Host {
    pub fn new(server: &str, node: u32) -> Self {
        Self { server: server.to_owned(), node }
    }

    /// Takes apart what somebody typed after `ssh`, with or without our ending.
    pub fn parse(text: &str) -> Result<Self, NotAHost> {
        let name = text.strip_suffix(SUFFIX).unwrap_or(text);
        let (node, server) = match name.split_once('.') {
            None => (0, name),
            Some((node, server)) => (node.parse().map_err(|_| NotAHost(text.to_owned()))?, server),
        };
        // What servers may be called; it also goes into a known-hosts file, where other letters have a meaning.
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if server.is_empty() || !server.bytes().all(fits) || server.starts_with('-') {
            return Err(NotAHost(text.to_owned()));
        }
        Ok(Self { server: server.to_owned(), node })
    }

    /// What OpenSSH is to call it.
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
    fn hosts_are_servers_and_nodes() {
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
    fn other_texts_are_no_hosts() {
        for text in ["", ".odc", "x.box.odc", "1.2.box", "-box", "a b", "a,b", "*", "box\n", "Box", "box@prod"] {
            assert_eq!(Host::parse(text), Err(NotAHost(text.to_owned())));
        }
    }
}
