use super::*;

const ADA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT";
const BOB: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIILM+hvuaMBtP0ZfhmJEZ1T9zcWvQVsNwuLjZ0RZ4J3X";

fn credential(line: &str) -> Credential {
    Credential::Key(List::parse([line]).keys[0].clone())
}

fn access(keys: &[&str]) -> odc_control::Access {
    odc_control::Access {
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        user_cas: vec![],
        control_cas: vec![ADA.to_owned()],
    }
}

#[test]
fn the_secret_counts_until_something_is_said_and_that_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("authorized_keys"), format!("{ADA}\nnonsense\n")).unwrap();
    let (first, unusable) = Access::begin(place.path(), &[], place.path(), None);
    assert_eq!(unusable.len(), 1);
    assert!(first.lists().admits(&credential(ADA)));

    let mut changes = first.changes();
    let done = first.set(access(&[BOB, "nonsense"])).unwrap();
    assert!(done.not_kept.is_none() && done.unusable.len() == 1 && changes.has_changed().unwrap());
    changes.mark_unchanged();
    for access in [first, Access::begin(place.path(), &[], place.path(), None).0] {
        assert!(!access.lists().admits(&credential(ADA)));
        assert!(access.lists().admits(&credential(BOB)));
    }
}

#[test]
fn what_was_said_in_an_earlier_life_of_the_container_is_forgotten() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("authorized_keys"), ADA).unwrap();
    let init = Process { pid: 1, start_ticks: Some(1) };
    let stored = serde_json::to_vec(&Stored { init, access: access(&[BOB]) }).unwrap();
    fs::write(place.path().join(FILE), stored).unwrap();
    assert!(Access::begin(place.path(), &[], place.path(), None).0.lists().admits(&credential(ADA)));
}

#[test]
fn where_there_is_a_place_that_lasts_it_is_remembered() {
    let (place, keep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(place.path().join("authorized_keys"), ADA).unwrap();
    let begin = || Access::begin(place.path(), &[ADA.to_owned()], place.path(), Some(keep.path())).0;
    assert!(begin().lists().admits(&credential(ADA)));
    let said = odc_control::Access { control_cas: vec![BOB.to_owned()], ..access(&[BOB]) };
    assert_eq!(begin().set(said.clone()).unwrap().not_kept, None);
    // The container is started anew, with an empty file system and what was so when its pod was made.
    fs::remove_file(place.path().join(FILE)).unwrap();
    assert_eq!(begin().current(), said);
    // Whatever somebody else put there, the server begins.
    fs::write(keep.path().join(LASTING_FILE), "{").unwrap();
    assert!(begin().lists().admits(&credential(ADA)));
}

#[test]
fn what_cannot_be_kept_counts_all_the_same_and_why_is_said() {
    let place = tempfile::tempdir().unwrap();
    let (access_now, _) = Access::begin(place.path(), &[], &place.path().join("nowhere"), None);
    let done = access_now.set(access(&[BOB])).unwrap();
    assert!(done.not_kept.unwrap().contains("No such file"));
    assert!(access_now.lists().admits(&credential(BOB)));
}

#[test]
fn without_any_file_nobody_gets_in() {
    let place = tempfile::tempdir().unwrap();
    let (access, unusable) = Access::begin(place.path(), &[], place.path(), None);
    assert_eq!((access.lists().as_ref(), unusable), (&Lists::default(), vec![]));
}

#[test]
fn a_list_nobody_could_have_meant_is_refused_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (here, _) = Access::begin(place.path(), &[], place.path(), None);
    here.set(access(&[ADA])).unwrap();
    assert_eq!(here.set(access(&vec![BOB; list::MOST])), Err(Refused::Many(list::MOST + 1)));
    assert_eq!(here.current(), access(&[ADA]));
}
#[test]
fn a_list_that_would_lock_the_operator_out_is_refused_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (here, _) = Access::begin(place.path(), &[], place.path(), None);
    here.set(access(&[ADA])).unwrap();
    let mut changes = here.changes();
    changes.mark_unchanged();
    let small = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQCo9+BpMRYQ/dL3DS2CyJxRF+j6ctbT3/Qp84+KeFhnii7NT7fELilKUSnxS30WAvQCCo2yU1orfgqr41mM70MB";
    for (lines, why) in
        [(vec![], ""), (vec!["# none"], ""), (vec![small, "nonsense"], "; control CA in line 1: its RSA")]
    {
        let control_cas = lines.into_iter().map(str::to_owned).collect();
        let refused = here.set(odc_control::Access { control_cas, ..access(&[BOB]) }).unwrap_err().to_string();
        let sentence =
            "no control CA in the list can be used, so the operator could never come back; nothing was changed";
        assert!(refused.starts_with(&format!("{sentence}{why}")), "{refused}");
    }
    assert_eq!(here.current(), access(&[ADA]));
    assert!(!changes.has_changed().unwrap());
    assert_eq!(Access::begin(place.path(), &[], place.path(), None).0.current(), access(&[ADA]));
}
