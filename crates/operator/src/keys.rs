//! Fresh SSH key pairs.

use anyhow::Context as _;
use odc_core::devserver::build::Keys;
use russh::keys::ssh_key::LineEnding;

use crate::agents::authority::fresh_key;

pub fn fresh(server: &str) -> anyhow::Result<Keys> {
    let (host_private, host_public) = pair(&format!("odc:{server}"))?;
    let (gang_private, gang_public) = pair(&format!("odc-gang:{server}"))?;
    Ok(Keys { host_private, host_public, gang_private, gang_public })
}

fn pair(comment: &str) -> anyhow::Result<(String, String)> {
    let private = fresh_key(comment)?;
    let mut public = private.public_key().clone();
    // The comment names the server only where the key lies; elsewhere the key alone counts.
    public.set_comment("");
    let text = private.to_openssh(LineEnding::LF).context("writing an SSH key")?;
    Ok((text.to_string(), public.to_openssh().context("writing an SSH key")?.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use russh::keys::PrivateKey;

    use super::*;

    #[test]
    fn keys_are_openssh_keys_and_never_the_same() {
        let one = fresh("a").unwrap();
        assert!(one.host_private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
        assert!(one.host_public.parse::<odc_api::ssh_key::PublicKey>().is_ok(), "{}", one.host_public);
        assert_ne!(one.host_public, one.gang_public);
        assert_ne!(one.host_public, fresh("a").unwrap().host_public);
        let read = PrivateKey::from_openssh(&one.host_private).unwrap();
        assert!(read.public_key().to_openssh().unwrap().starts_with(&one.host_public));
    }
}
