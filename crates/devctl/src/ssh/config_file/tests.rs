use proptest::prelude::*;

use super::*;

fn places() -> Places {
    Places::of(Path::new("/home/ada"))
}

const LINE: &str = "Include /home/ada/.ssh/odc/config\n";

#[test]
fn the_line_comes_first_and_goes_again() {
    let text = b"Host *\n  User ada\n\xff not UTF-8\r\n\tno newline at the end";
    let with = with_include(text, &places());
    assert_eq!(with, [LINE.as_bytes(), text].concat());
    assert_eq!(with_include(&with, &places()), with, "a second time changes nothing");
    assert_eq!(without_include(&with, &places()), text);
}

#[test]
fn a_line_in_other_words_is_found() {
    for line in [
        "include ~/.ssh/odc/config",
        "  Include \"/home/ada/.ssh/odc/config\"",
        "INCLUDE=odc/config\r",
        "Include = odc/config",
    ] {
        let text = format!("# mine\n{line}\nHost x\n");
        assert_eq!(with_include(text.as_bytes(), &places()), text.as_bytes(), "{line}");
        assert_eq!(without_include(text.as_bytes(), &places()), b"# mine\nHost x\n", "{line}");
    }
}

#[test]
fn a_line_that_does_not_count_is_moved() {
    let text = b"Host x\n  User y\nInclude odc/config\nHost z\n";
    let with = with_include(text, &places());
    assert_eq!(with, [LINE.as_bytes(), b"Host x\n  User y\nHost z\n"].concat());
}

#[test]
fn other_includes_are_not_ours() {
    let text = b"Include ~/.orbstack/ssh/config\nInclude odc/config other\n# Include odc/config\n";
    assert_eq!(without_include(text, &places()), text);
    assert_eq!(with_include(text, &places()), [LINE.as_bytes(), text].concat());
}

proptest! {
    #[test]
    fn the_rest_stays_byte_for_byte(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let with = with_include(&text, &places());
        prop_assert_eq!(without_include(&with, &places()), text);
    }

    #[test]
    fn so_do_files_that_look_like_ours(text in "((Host|Match|Include|User|#)[ =](x|odc/conf|all)?\r?\n){0,6}") {
        let with = with_include(text.as_bytes(), &places());
        prop_assert_eq!(without_include(&with, &places()), text.as_bytes());
    }
}

/// OpenSSH's own reading of what we write.
#[test]
fn openssh_reads_it_as_meant() {
    let home = tempfile::Builder::new().prefix("a home ").tempdir().unwrap();
    let places = Places::of(home.path());
    std::fs::create_dir_all(places.ssh()).unwrap();
    std::fs::write(places.config(), "Host *\n  User ada\n").unwrap();
    let route = Route {
        kubeconfigs: None,
        devctl: "/opt/100% dev/devctl".into(),
        arguments: vec!["--context".into(), "it's".into()],
        identities: vec![home.path().join("key")],
        places: places.clone(),
        forward_agent: true,
    };
    for change in install(&places, &route).unwrap() {
        assert!(change.is_needed());
        apply(&change).unwrap();
    }
    assert!(install(&places, &route).unwrap().iter().all(|change| !change.is_needed()));

    let output = std::process::Command::new("ssh").arg("-F").arg(places.config()).args(["-G", "box.odc"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let has = |line: String| assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    has("user ada".into());
    has(r"proxycommand '/opt/100%% dev/devctl' --context 'it'\''s' ssh --stdio '%n'".into());
    has(format!("userknownhostsfile {}", places.known_hosts().display()));
    has("stricthostkeychecking true".into());
    has("forwardagent yes".into());
    has("controlmaster auto".into());
    has(format!("identityfile {}", home.path().join("key").display()));
    let other = std::process::Command::new("ssh").arg("-F").arg(places.config()).args(["-G", "elsewhere"]).output();
    assert!(!String::from_utf8_lossy(&other.unwrap().stdout).contains("proxycommand"));

    for change in remove(&places).unwrap().iter().filter(|change| change.is_needed()) {
        apply(change).unwrap();
    }
    assert_eq!(std::fs::read_to_string(places.config()).unwrap(), "Host *\n  User ada\n");
    assert_eq!(std::fs::read_dir(places.ours()).unwrap().count(), 0);
}

#[test]
fn a_file_that_was_not_there_goes_again() {
    let home = tempfile::tempdir().unwrap();
    let places = Places::of(home.path());
    let route = Route {
        kubeconfigs: None,
        devctl: "devctl".into(),
        arguments: vec![],
        identities: vec![],
        places: places.clone(),
        forward_agent: false,
    };
    for change in install(&places, &route).unwrap() {
        apply(&change).unwrap();
    }
    for change in remove(&places).unwrap().iter().filter(|change| change.is_needed()) {
        apply(change).unwrap();
    }
    assert!(!places.config().exists());
    assert!(remove(&places).unwrap().iter().all(|change| !change.is_needed()));
}

#[test]
fn a_key_made_later_is_offered_too() {
    let home = tempfile::tempdir().unwrap();
    let places = Places::of(home.path());
    assert!(
        !with_key(&places, &places.key()).unwrap().is_needed(),
        "whoever has not asked for the file does not get it"
    );
    std::fs::create_dir_all(places.ours()).unwrap();
    std::fs::write(places.our_config(), "Host *.odc\n  User ada\n").unwrap();
    let change = with_key(&places, &places.key()).unwrap();
    assert!(change.is_needed());
    apply(&change).unwrap();
    let text = std::fs::read_to_string(places.our_config()).unwrap();
    assert_eq!(text, format!("Host *.odc\n  User ada\n  IdentityFile {}\n", places.key().display()));
    assert!(!with_key(&places, &places.key()).unwrap().is_needed(), "once is enough");
}
