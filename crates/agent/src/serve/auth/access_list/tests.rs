use super::*;
use std::fs;

const ADA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT";
const BOB: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIILM+hvuaMBtP0ZfhmJEZ1T9zcWvQVsNwuLjZ0RZ4J3X";

fn credential(line: &str) -> Credential {
    Credential::Key(KeyList::parse([line]).keys[0].clone())
}

fn spec(keys: &[&str]) -> odc_control::Access {
    odc_control::Access {
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        user_cas: vec![],
        control_cas: vec![ADA.to_owned()],
    }
}

fn load(dir: &tempfile::TempDir) -> (Access, Vec<String>) {
    Access::load(dir.path(), &[], dir.path(), None)
}

fn allows(access: &Access, key: &str) -> bool {
    access.authorized_keys().allows(&credential(key))
}

#[test]
fn new_list_replaces_the_secret_and_survives_a_restart_of_serve() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("authorized_keys"), format!("{ADA}\nnonsense\n")).unwrap();
    let (first, invalid) = load(&dir);
    assert_eq!(invalid.len(), 1);
    assert!(allows(&first, ADA));

    let mut changes = first.changes();
    let update = first.set(&spec(&[BOB, "nonsense"])).unwrap();
    assert!(update.persist_error.is_none() && update.invalid.len() == 1 && changes.has_changed().unwrap());
    changes.mark_unchanged();
    for access in [first, load(&dir).0] {
        assert!(!allows(&access, ADA));
        assert!(allows(&access, BOB));
    }
}

#[test]
fn list_of_an_earlier_container_run_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("authorized_keys"), ADA).unwrap();
    persisted_state::store_in_earlier_run(&dir.path().join(FILE), &spec(&[BOB])).unwrap();
    assert!(allows(&load(&dir).0, ADA));
}

#[test]
fn list_in_the_persist_directory_survives_a_restart_of_the_container() {
    let (dir, persist_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("authorized_keys"), ADA).unwrap();
    let load = || Access::load(dir.path(), &[ADA.to_owned()], dir.path(), Some(persist_dir.path())).0;
    assert!(allows(&load(), ADA));
    let new = odc_control::Access { control_cas: vec![BOB.to_owned()], ..spec(&[BOB]) };
    assert_eq!(load().set(&new).unwrap().persist_error, None);
    // A restarted container has an empty state directory and the Secret from when its pod was created.
    fs::remove_file(dir.path().join(FILE)).unwrap();
    assert_eq!(*load().authorized_keys(), AuthorizedKeys::parse(&new, None));
    // An invalid file is ignored.
    fs::write(persist_dir.path().join(PERSIST_FILE), "{").unwrap();
    assert!(allows(&load(), ADA));
}

#[test]
fn list_that_cannot_be_persisted_is_applied_and_the_error_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (access, _) = Access::load(dir.path(), &[], &dir.path().join("missing"), None);
    let update = access.set(&spec(&[BOB])).unwrap();
    assert!(update.persist_error.unwrap().contains("No such file"));
    assert!(allows(&access, BOB));
}

#[test]
fn without_files_no_key_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (access, invalid) = load(&dir);
    assert_eq!((access.authorized_keys().as_ref(), invalid), (&AuthorizedKeys::default(), vec![]));
}

#[test]
fn oversized_list_is_rejected_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (access, _) = load(&dir);
    access.set(&spec(&[ADA])).unwrap();
    assert_eq!(access.set(&spec(&vec![BOB; MAX_KEYS])), Err(AccessError::TooMany(MAX_KEYS + 1)));
    assert_eq!(*access.authorized_keys(), AuthorizedKeys::parse(&spec(&[ADA]), None));
}

#[test]
fn list_without_control_ca_is_rejected_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (access, _) = load(&dir);
    access.set(&spec(&[ADA])).unwrap();
    let mut changes = access.changes();
    changes.mark_unchanged();
    let small = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQCo9+BpMRYQ/dL3DS2CyJxRF+j6ctbT3/Qp84+KeFhnii7NT7fELilKUSnxS30WAvQCCo2yU1orfgqr41mM70MB";
    for (lines, reason) in
        [(vec![], ""), (vec!["# none"], ""), (vec![small, "nonsense"], "; control CA in line 1: RSA key")]
    {
        let control_cas = lines.into_iter().map(str::to_owned).collect();
        let error = access.set(&odc_control::Access { control_cas, ..spec(&[BOB]) }).unwrap_err().to_string();
        let expect = format!("rejected access list: it contains no usable control CA{reason}");
        assert!(error.starts_with(&expect), "{error}");
    }
    assert_eq!(*access.authorized_keys(), AuthorizedKeys::parse(&spec(&[ADA]), None));
    assert!(!changes.has_changed().unwrap());
    assert_eq!(*load(&dir).0.authorized_keys(), AuthorizedKeys::parse(&spec(&[ADA]), None));
}
