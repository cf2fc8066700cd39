//! Key authentication and revocation.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use crate::certificates::Authorities;
use crate::server::{Running, Server, ServerBuilder, keygen};

#[test]
fn every_login_name_is_the_same_user() {
    let server = Server::start();
    for name in ["root", "ada", "dev", "no such user"] {
        let output = server.client("ssh").args(["-l", name, "127.0.0.1", "id -u; echo $USER"]).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[test]
fn supported_keys_are_accepted_and_small_or_unknown_ones_rejected() {
    let builder = ServerBuilder::new();
    let mut keys = fs::read_to_string(builder.path("id.pub")).unwrap();
    for (kind, bits) in [("ecdsa", "256"), ("ecdsa", "521"), ("rsa", "3072"), ("rsa", "2048")] {
        let name = format!("{kind}{bits}");
        let made = std::process::Command::new("ssh-keygen")
            .current_dir(builder.path("."))
            .args(["-q", "-t", kind, "-b", bits, "-N", "", "-f", &name])
            .status();
        assert!(made.unwrap().success());
        keys.push_str(&fs::read_to_string(builder.path(&format!("{name}.pub"))).unwrap());
    }
    keys.push_str("not a key\n");
    keygen(builder.dir_path(), "unknown");
    fs::write(builder.path("keys/authorized_keys"), keys).unwrap();
    let server = builder.start();
    for (key, code) in [("id", 0), ("ecdsa256", 0), ("ecdsa521", 0), ("rsa3072", 0), ("rsa2048", 255), ("unknown", 255)]
    {
        let output = with_key(&server, key).arg("true").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{key}: {output:?}");
    }
    server.wait_for_text("log", "in line 5: RSA key with 2048 bits");
    server.wait_for_text("log", "in line 6: not a public key");
}

fn with_key(server: &Server, key: &str) -> std::process::Command {
    let mut command = std::process::Command::new("ssh");
    let file = format!("IdentityFile={}", server.path(key).display());
    let client = server.client("ssh");
    let default_identity = format!("IdentityFile={}", server.path("id").display());
    let args = client
        .get_args()
        .map(|arg| if arg == default_identity.as_str() { file.clone().into() } else { arg.to_owned() });
    command.args(args).arg("dev@127.0.0.1").stdin(Stdio::null()).env_remove("SSH_AUTH_SOCK");
    command
}

#[test]
fn passwords_are_not_supported() {
    let server = Server::start();
    let output = server
        .client("ssh")
        .args(["-o", "PubkeyAuthentication=no", "-o", "BatchMode=no", "dev@127.0.0.1", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("Permission denied (publickey)"), "{text}");
}

#[test]
fn only_modern_algorithms_are_supported() {
    let server = Server::start();
    for (option, supported) in [
        ("KexAlgorithms=curve25519-sha256", true),
        ("KexAlgorithms=diffie-hellman-group14-sha256", false),
        ("Ciphers=aes256-gcm@openssh.com", true),
        ("Ciphers=aes128-gcm@openssh.com", true),
        ("Ciphers=chacha20-poly1305@openssh.com", true),
        ("Ciphers=aes256-ctr", true),
        ("Ciphers=aes256-cbc", false),
    ] {
        let output = server.ssh(&["-o", option]).arg("true").output().unwrap();
        assert_eq!(output.status.success(), supported, "{option}: {output:?}");
    }
    let output = server.ssh(&["-o", "Ciphers=aes256-ctr", "-o", "MACs=hmac-sha1"]).arg("true").output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn client_rekeying_preserves_data() {
    let server = Server::start();
    let mut command = server.ssh(&["-o", "RekeyLimit=1M"]);
    let mut client = Running::start(command.arg("cat | wc -c").stdin(Stdio::piped()).stdout(Stdio::piped()));
    client.0.stdin.take().unwrap().write_all(&crate::server::random_bytes(20 << 20)).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(client.0.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert_eq!(text.trim(), (20 << 20).to_string());
    let output = server.ssh(&["-o", "RekeyLimit=1M"]).arg("head -c 20971520 /dev/zero").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 20 << 20));
}

#[test]
fn session_of_revoked_key_is_closed() {
    let builder = ServerBuilder::new();
    let authorities = Authorities::create(&builder);
    keygen(builder.dir_path(), "bob");
    let both =
        fs::read_to_string(builder.path("id.pub")).unwrap() + &fs::read_to_string(builder.path("bob.pub")).unwrap();
    fs::write(builder.path("keys/authorized_keys"), both).unwrap();
    let server = builder.start();
    let mark = |name: &str| format!("touch {}; exec sleep 1000", server.path(name).display());
    let mut ada = Running::start(with_key(&server, "id").arg(mark("ada-is-in")).stderr(Stdio::piped()));
    let mut bob = Running::start(with_key(&server, "bob").arg(mark("bob-is-in")));
    for name in ["ada-is-in", "bob-is-in"] {
        crate::server::wait_until(name, || server.path(name).exists().then_some(()));
    }
    let list = odc_control::Access {
        keys: vec![server.text("bob.pub").trim().to_owned()],
        user_cas: Vec::new(),
        control_cas: vec![server.text("control_ca.pub").trim().to_owned()],
    };
    let request = odc_control::write_request(&odc_control::Request::SetAccess(list)).unwrap();
    let text = authorities.control(&server, String::from_utf8(request).unwrap().trim_end());
    assert!(text.contains(r#""type":"accessSet","invalid":[]"#), "{text}");
    assert_eq!(ada.code(), Some(255));
    assert!(with_key(&server, "id").arg("true").output().unwrap().status.code() == Some(255));
    assert!(with_key(&server, "bob").arg("pgrep -c sleep").output().unwrap().stdout == b"1\n");
    assert_eq!(bob.0.try_wait().unwrap(), None);
}

#[test]
fn banner_is_shown_before_authentication_if_configured() {
    let stderr = |server: &Server| {
        let output = server.ssh(&["-v"]).arg("echo in").output().unwrap();
        assert_eq!(output.stdout, b"in\n");
        String::from_utf8(output.stderr).unwrap()
    };
    let server = ServerBuilder::new().env("ODC_BANNER", "For members of the lab.\nEverything is logged.\n").start();
    assert!(stderr(&server).contains("For members of the lab.\r\nEverything is logged.\r\n"), "{}", stderr(&server));
    // Unauthenticated clients see it too.
    let unauthenticated = server.ssh(&["-v", "-o", "PubkeyAuthentication=no"]).arg("true").output().unwrap();
    assert!(String::from_utf8_lossy(&unauthenticated.stderr).contains("For members of the lab."));
    assert!(!stderr(&Server::start()).contains("For members"));
}
