//! Who gets in by key, and who does not any more.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::certificates::Authorities;
use crate::server::{Plan, Running, Server, keygen};

#[test]
fn any_name_is_the_same_user() {
    let server = Server::start();
    for name in ["root", "ada", "dev", "no such user"] {
        let output = server.client("ssh").args(["-l", name, "127.0.0.1", "id -u; echo $USER"]).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[test]
fn keys_of_all_modern_kinds_get_in_and_small_or_unknown_ones_do_not() {
    let plan = Plan::new();
    let mut keys = fs::read_to_string(plan.path("id.pub")).unwrap();
    for (kind, bits) in [("ecdsa", "256"), ("ecdsa", "521"), ("rsa", "3072"), ("rsa", "2048")] {
        let name = format!("{kind}{bits}");
        let made = std::process::Command::new("ssh-keygen")
            .current_dir(plan.path("."))
            .args(["-q", "-t", kind, "-b", bits, "-N", "", "-f", &name])
            .status();
        assert!(made.unwrap().success());
        keys.push_str(&fs::read_to_string(plan.path(&format!("{name}.pub"))).unwrap());
    }
    keys.push_str("this is no key\n");
    keygen(plan.place_path(), "stranger");
    fs::write(plan.path("keys/authorized_keys"), keys).unwrap();
    let server = plan.start();
    for (key, code) in
        [("id", 0), ("ecdsa256", 0), ("ecdsa521", 0), ("rsa3072", 0), ("rsa2048", 255), ("stranger", 255)]
    {
        let output = with_key(&server, key).arg("true").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{key}: {output:?}");
    }
    server.wait_for_text("log", "in line 5: its RSA key has 2048 bits");
    server.wait_for_text("log", "in line 6: it is not a public key");
}

fn with_key(server: &Server, key: &str) -> std::process::Command {
    let mut command = std::process::Command::new("ssh");
    let file = format!("IdentityFile={}", server.path(key).display());
    let client = server.client("ssh");
    let own = format!("IdentityFile={}", server.path("id").display());
    let words = client.get_args().map(|word| if word == own.as_str() { file.clone().into() } else { word.to_owned() });
    command.args(words).arg("dev@127.0.0.1").stdin(Stdio::null()).env_remove("SSH_AUTH_SOCK");
    command
}

#[test]
fn there_are_no_passwords() {
    let server = Server::start();
    let output = server
        .client("ssh")
        .args(["-o", "PubkeyAuthentication=no", "-o", "BatchMode=no", "dev@127.0.0.1", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Permission denied (publickey)"), "{said}");
}

#[test]
fn the_algorithms_are_modern() {
    let server = Server::start();
    for (option, taken) in [
        ("KexAlgorithms=curve25519-sha256", true),
        ("KexAlgorithms=diffie-hellman-group14-sha256", false),
        ("Ciphers=aes256-gcm@openssh.com", true),
        ("Ciphers=aes128-gcm@openssh.com", true),
        ("Ciphers=chacha20-poly1305@openssh.com", true),
        ("Ciphers=aes256-ctr", true),
        ("Ciphers=aes256-cbc", false),
    ] {
        let output = server.ssh(&["-o", option]).arg("true").output().unwrap();
        assert_eq!(output.status.success(), taken, "{option}: {output:?}");
    }
    let output = server.ssh(&["-o", "Ciphers=aes256-ctr", "-o", "MACs=hmac-sha1"]).arg("true").output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn new_keys_are_agreed_on_while_data_flows() {
    let server = Server::start();
    let mut command = server.ssh(&["-o", "RekeyLimit=1M"]);
    let mut client = Running::start(command.arg("cat | wc -c").stdin(Stdio::piped()).stdout(Stdio::piped()));
    client.0.stdin.take().unwrap().write_all(&crate::server::noise(20 << 20)).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(client.0.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(said.trim(), (20 << 20).to_string());
    let output = server.ssh(&["-o", "RekeyLimit=1M"]).arg("head -c 20971520 /dev/zero").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 20 << 20));
}

#[test]
fn who_is_taken_off_the_list_is_out_within_a_second_and_the_others_stay() {
    let plan = Plan::new();
    let authorities = Authorities::make(&plan);
    keygen(plan.place_path(), "bob");
    let both = fs::read_to_string(plan.path("id.pub")).unwrap() + &fs::read_to_string(plan.path("bob.pub")).unwrap();
    fs::write(plan.path("keys/authorized_keys"), both).unwrap();
    let server = plan.start();
    let mark = |name: &str| format!("touch {}; exec sleep 1000", server.path(name).display());
    let mut ada = Running::start(with_key(&server, "id").arg(mark("ada-is-in")).stderr(Stdio::piped()));
    let mut bob = Running::start(with_key(&server, "bob").arg(mark("bob-is-in")));
    for name in ["ada-is-in", "bob-is-in"] {
        crate::server::eventually(name, || server.path(name).exists().then_some(()));
    }
    let list = odc_control::Access {
        keys: vec![server.text("bob.pub").trim().to_owned()],
        user_cas: Vec::new(),
        control_cas: vec![server.text("control_ca.pub").trim().to_owned()],
    };
    let request = odc_control::write_request(&odc_control::Request::SetAccess(list)).unwrap();
    let said = authorities.control(&server, String::from_utf8(request).unwrap().trim_end());
    assert!(said.contains(r#""type":"accessSet","unusable":[]"#), "{said}");
    let begun = Instant::now();
    assert_eq!(ada.code(), Some(255));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(with_key(&server, "id").arg("true").output().unwrap().status.code() == Some(255));
    assert!(with_key(&server, "bob").arg("pgrep -c sleep").output().unwrap().stdout == b"1\n");
    assert_eq!(bob.0.try_wait().unwrap(), None);
}

#[test]
fn the_administrators_words_come_before_the_login_and_only_if_there_are_any() {
    let words = |server: &Server| {
        let output = server.ssh(&["-v"]).arg("echo in").output().unwrap();
        assert_eq!(output.stdout, b"in\n");
        String::from_utf8(output.stderr).unwrap()
    };
    let server = Plan::new().env("ODC_BANNER", "For members of the lab.\nEverything is logged.\n").start();
    assert!(words(&server).contains("For members of the lab.\r\nEverything is logged.\r\n"), "{}", words(&server));
    // Those who may not come in read them too.
    let stranger = server.ssh(&["-v", "-o", "PubkeyAuthentication=no"]).arg("true").output().unwrap();
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("For members of the lab."));
    assert!(!words(&Server::start()).contains("For members"));
}
