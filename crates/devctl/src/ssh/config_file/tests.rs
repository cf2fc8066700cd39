use proptest::prelude::*;

use super::*;

fn paths() -> SshPaths {
    SshPaths::new(Path::new("/home/ada"))
}

const INCLUDE: &str = "Include /home/ada/.ssh/odc/config\n";

#[test]
fn include_is_added_first_and_removed() {
    let text = b"Host *\n  User ada\n\xff not UTF-8\r\n\tno newline at the end";
    let with = with_include(text, &paths());
    assert_eq!(with, [INCLUDE.as_bytes(), text].concat());
    assert_eq!(with_include(&with, &paths()), with, "idempotent");
    assert_eq!(without_include(&with, &paths()), text);
}

#[test]
fn include_in_other_notation_is_recognized() {
    for line in [
        "include ~/.ssh/odc/config",
        "  Include \"/home/ada/.ssh/odc/config\"",
        "INCLUDE=odc/config\r",
        "Include = odc/config",
    ] {
        let text = format!("# mine\n{line}\nHost x\n");
        assert_eq!(with_include(text.as_bytes(), &paths()), text.as_bytes(), "{line}");
        assert_eq!(without_include(text.as_bytes(), &paths()), b"# mine\nHost x\n", "{line}");
    }
}

#[test]
fn include_after_host_is_moved_first() {
    let text = b"Host x\n  User y\nInclude odc/config\nHost z\n";
    let with = with_include(text, &paths());
    assert_eq!(with, [INCLUDE.as_bytes(), b"Host x\n  User y\nHost z\n"].concat());
}

#[test]
fn other_includes_are_kept() {
    let text = b"Include ~/.orbstack/ssh/config\nInclude odc/config other\n# Include odc/config\n";
    assert_eq!(without_include(text, &paths()), text);
    assert_eq!(with_include(text, &paths()), [INCLUDE.as_bytes(), text].concat());
}

proptest! {
    #[test]
    fn rest_of_the_file_is_preserved(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let with = with_include(&text, &paths());
        prop_assert_eq!(without_include(&with, &paths()), text);
    }

    #[test]
    fn files_with_similar_lines_are_preserved(text in "((Host|Match|Include|User|#)[ =](x|odc/conf|all)?\r?\n){0,6}") {
        let with = with_include(text.as_bytes(), &paths());
        prop_assert_eq!(without_include(&with, &paths()), text.as_bytes());
    }
}

#[test]
fn openssh_parses_the_installed_config() {
    let home = tempfile::Builder::new().prefix("a home ").tempdir().unwrap();
    let paths = SshPaths::new(home.path());
    std::fs::create_dir_all(paths.ssh()).unwrap();
    std::fs::write(paths.user_config(), "Host *\n  User ada\n").unwrap();
    let options = SshOptions {
        kubeconfigs: None,
        devctl: "/opt/100% dev/devctl".into(),
        arguments: vec!["--context".into(), "it's".into()],
        identities: vec![home.path().join("key")],
        paths: paths.clone(),
        forward_agent: true,
    };
    for change in install(&paths, &options).unwrap() {
        assert!(change.is_needed());
        apply(&change).unwrap();
    }
    assert!(install(&paths, &options).unwrap().iter().all(|change| !change.is_needed()));

    let output = std::process::Command::new("ssh").arg("-F").arg(paths.user_config()).args(["-G", "box.odc"]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let has = |line: String| assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    has("user ada".into());
    has(r#"proxycommand '/opt/100%% dev/devctl' --context "it's" ssh --stdio '%n'"#.into());
    has(format!("userknownhostsfile {}", paths.known_hosts().display()));
    has("stricthostkeychecking true".into());
    has("forwardagent yes".into());
    has("controlmaster auto".into());
    has(format!("identityfile {}", home.path().join("key").display()));
    let other = std::process::Command::new("ssh").arg("-F").arg(paths.user_config()).args(["-G", "elsewhere"]).output();
    assert!(!String::from_utf8_lossy(&other.unwrap().stdout).contains("proxycommand"));

    for change in remove(&paths).unwrap().iter().filter(|change| change.is_needed()) {
        apply(change).unwrap();
    }
    assert_eq!(std::fs::read_to_string(paths.user_config()).unwrap(), "Host *\n  User ada\n");
    assert_eq!(std::fs::read_dir(paths.dir()).unwrap().count(), 0);
}

#[test]
fn created_user_config_is_deleted_on_remove() {
    let home = tempfile::tempdir().unwrap();
    let paths = SshPaths::new(home.path());
    let options = SshOptions {
        kubeconfigs: None,
        devctl: "devctl".into(),
        arguments: vec![],
        identities: vec![],
        paths: paths.clone(),
        forward_agent: false,
    };
    for change in install(&paths, &options).unwrap() {
        apply(&change).unwrap();
    }
    for change in remove(&paths).unwrap().iter().filter(|change| change.is_needed()) {
        apply(change).unwrap();
    }
    assert!(!paths.user_config().exists());
    assert!(remove(&paths).unwrap().iter().all(|change| !change.is_needed()));
}

#[test]
fn new_key_is_added_to_the_installed_config() {
    let home = tempfile::tempdir().unwrap();
    let paths = SshPaths::new(home.path());
    assert!(!with_key(&paths, &paths.key()).unwrap().is_needed(), "not installed");
    std::fs::create_dir_all(paths.dir()).unwrap();
    std::fs::write(paths.config(), "Host *.odc\n  User ada\n").unwrap();
    let change = with_key(&paths, &paths.key()).unwrap();
    assert!(change.is_needed());
    apply(&change).unwrap();
    let text = std::fs::read_to_string(paths.config()).unwrap();
    assert_eq!(text, format!("Host *.odc\n  User ada\n  IdentityFile {}\n", paths.key().display()));
    assert!(!with_key(&paths, &paths.key()).unwrap().is_needed(), "idempotent");
}

#[test]
fn diff_shows_changes_with_context() {
    let diff = |before: &[u8], after: Option<&[u8]>| {
        Change { path: "config".into(), before: before.to_vec(), after: after.map(<[u8]>::to_vec) }.diff()
    };
    assert_eq!(
        diff(b"a\nb\nc\nd\n", Some(b"a\nb\nc\nnew\nd\n")),
        "--- config\n+++ config\n@@ -2,3 +2,4 @@\n b\n c\n+new\n d\n"
    );
    assert_eq!(diff(b"", Some(b"x\n")), "--- /dev/null\n+++ config\n@@ -0,0 +1 @@\n+x\n");
    assert_eq!(diff(b"x\n", None), "--- config\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
}
