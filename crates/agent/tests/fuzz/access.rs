//! Access lists from the Secret and from the operator.

use odc_agent::serve::auth::access_list::{AuthorizedKeys, Credential};
use odc_control::Access;

use crate::runner::Runner;

const DICTIONARY: &[&str] = &[
    "ssh-ed25519 ",
    "ssh-rsa ",
    "ecdsa-sha2-nistp256 ",
    "sk-ssh-ed25519@openssh.com ",
    "ssh-dss ",
    "AAAA",
    "no-pty ",
    "command=\"x\" ",
    "cert-authority ",
    "\n",
    "\r\n",
    "\0",
    "#",
    "ü",
    "ssh-ed25519-cert-v01@openssh.com ",
];

#[test]
fn each_line_is_a_key_or_invalid_and_only_listed_keys_are_allowed() {
    Runner::new("access", 10_000).dictionary(DICTIONARY).run(|input| {
        let text = String::from_utf8_lossy(input);
        let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let spec = Access { keys: lines.clone(), user_cas: vec![], control_cas: lines.clone() };
        let authorized = AuthorizedKeys::parse(&spec, None);
        assert_eq!(authorized.user_keys, authorized.control_cas);
        assert!(authorized.user_cas.keys.is_empty());
        assert!(authorized.user_keys.keys.len() + authorized.user_keys.invalid.len() <= lines.len());
        for (number, _) in &authorized.user_keys.invalid {
            assert!(!lines[*number - 1].trim_matches([' ', '\t', '\r']).is_empty(), "an empty line is ignored");
        }
        for key in &authorized.user_keys.keys {
            // Each key comes from one line, which alone allows it too.
            let alone =
                |line: &String| AuthorizedKeys::parse(&Access { keys: vec![line.clone()], ..Access::default() }, None);
            assert!(lines.iter().any(|line| alone(line).allows(&Credential::Key(key.clone()))));
        }
        let mut reasons: Vec<String> = authorized
            .user_keys
            .invalid
            .iter()
            .map(|(_, reason)| reason.to_string().replace(|symbol: char| symbol.is_ascii_digit(), ""))
            .collect();
        reasons.sort();
        reasons.dedup();
        format!("{} keys, {reasons:?}", authorized.user_keys.keys.len().min(4))
    });
}
