//! Lists of keys: of the server's Secret, of the operator, and, by way of both, of whatever people pasted somewhere.

use odc_agent::serve::access::{Credential, Lists};
use odc_control::Access;

use crate::campaign::Campaign;

const WORDS: &[&str] = &[
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
fn a_line_is_a_key_or_is_named_and_only_keys_that_are_there_get_in() {
    Campaign::new("access", 10_000).words(WORDS).run(|input| {
        let text = String::from_utf8_lossy(input);
        let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let said = Access { keys: lines.clone(), user_cas: vec![], control_cas: lines.clone() };
        let lists = Lists::parse(&said, None);
        assert_eq!(lists.keys, lists.control_cas);
        assert!(lists.user_cas.keys.is_empty());
        assert!(lists.keys.keys.len() + lists.keys.unusable.len() <= lines.len());
        for (number, _) in &lists.keys.unusable {
            assert!(!lines[*number - 1].trim_matches([' ', '\t', '\r']).is_empty(), "an empty line is nothing");
        }
        for key in &lists.keys.keys {
            // Each comes from one line, which alone would let it in too.
            let alone = |line: &String| Lists::parse(&Access { keys: vec![line.clone()], ..Access::default() }, None);
            assert!(lines.iter().any(|line| alone(line).admits(&Credential::Key(key.clone()))));
        }
        let mut reasons: Vec<String> = lists
            .keys
            .unusable
            .iter()
            .map(|(_, reason)| reason.to_string().replace(|symbol: char| symbol.is_ascii_digit(), ""))
            .collect();
        reasons.sort();
        reasons.dedup();
        format!("{} keys, {reasons:?}", lists.keys.keys.len().min(4))
    });
}
