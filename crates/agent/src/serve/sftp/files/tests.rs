//! Requests to a directory that is there for them.

use super::*;
use std::os::unix::fs::symlink as link;

fn files() -> (tempfile::TempDir, Files) {
    let home = tempfile::tempdir().unwrap();
    let files = Files::new(home.path().to_owned(), LinkOrder::default());
    (home, files)
}

fn name(text: &[u8]) -> Bytes {
    Bytes::copy_from_slice(text)
}

fn code(done: Result<Answer, Status>) -> u32 {
    match done {
        Ok(Answer::Status(status)) | Err(status) => status.code,
        Ok(_) => 0,
    }
}

fn handle(done: Result<Answer, Status>) -> Bytes {
    let Ok(Answer::Handle(handle)) = done else { panic!("{done:?}") };
    handle
}

fn open(files: &mut Files, path: &[u8], flags: u32) -> Result<Answer, Status> {
    files.done(Request::Open { path: name(path), flags, attributes: Attributes::default() })
}

#[test]
fn a_name_that_is_no_text_can_be_written_listed_read_and_removed() {
    let (_home, mut files) = files();
    let odd = b"\xff\xfe name";
    let file = handle(open(&mut files, odd, WRITE | CREATE | EXCLUSIVE));
    assert_eq!(code(files.done(Request::Write { handle: file.clone(), offset: 3, data: name(b"abc") })), 0);
    assert_eq!(code(files.done(Request::Close { handle: file })), 0);

    let list = handle(files.done(Request::OpenDirectory { path: name(b".") }));
    let Ok(Answer::Names(entries)) = files.done(Request::ReadDirectory { handle: list.clone() }) else { panic!() };
    let entry = entries.iter().find(|entry| entry.name == odd).unwrap();
    assert_eq!(entry.attributes.size, Some(6));
    assert!(entry.line.starts_with(b"-rw-") && entry.line.ends_with(odd));
    assert_eq!(code(files.done(Request::ReadDirectory { handle: list })), 1);

    let file = handle(open(&mut files, odd, READ));
    let Ok(Answer::Data(data)) = files.done(Request::Read { handle: file.clone(), offset: 2, length: 100 }) else {
        panic!()
    };
    assert_eq!(data.as_ref(), b"\0abc");
    assert_eq!(code(files.done(Request::Read { handle: file, offset: 6, length: 100 })), 1);
    assert_eq!(code(files.done(Request::Remove { path: name(odd) })), 0);
    assert_eq!(code(open(&mut files, odd, READ)), 2);
}

#[test]
fn paths_lead_where_they_lead_elsewhere_and_loops_lead_nowhere() {
    let (home, mut files) = files();
    let there = fs::canonicalize(home.path()).unwrap();
    fs::create_dir(home.path().join("d")).unwrap();
    link("d", home.path().join("to-d")).unwrap();
    link("loop", home.path().join("loop")).unwrap();
    let mut real = |path: &str| match files.done(Request::RealPath { path: name(path.as_bytes()) }) {
        Ok(Answer::Names(names)) => Ok(PathBuf::from(String::from_utf8(names[0].name.clone()).unwrap())),
        Err(status) => Err(status.code),
        other => panic!("{other:?}"),
    };
    assert_eq!(real("."), Ok(there.clone()));
    assert_eq!(real("to-d/../d/."), Ok(there.join("d")));
    assert_eq!(real("d/new"), Ok(there.join("d/new")));
    assert_eq!(real("/../../x/y/../z"), Ok(PathBuf::from("/x/z")));
    assert_eq!(real("loop"), Err(2));
    assert_eq!(code(open(&mut files, b"loop", READ)), 2);
    assert_eq!(code(files.done(Request::StatLink { path: name(b"loop") })), 0);
}

#[test]
fn long_names_are_taken_up_to_the_limit() {
    let (_home, mut files) = files();
    assert_eq!(code(open(&mut files, &[b'n'; 255], WRITE | CREATE)), 0);
    assert_eq!(code(open(&mut files, &[b'n'; 256], WRITE | CREATE)), 5);
    assert_eq!(code(open(&mut files, b"a\0b", WRITE | CREATE)), 5);
}

#[test]
fn a_rename_replaces_only_if_it_was_asked_to() {
    let (home, mut files) = files();
    for file in ["a", "b"] {
        fs::write(home.path().join(file), file).unwrap();
    }
    let rename = |replace| Request::Rename { from: name(b"a"), to: name(b"b"), replace };
    assert_eq!(code(files.done(rename(false))), 4);
    assert_eq!(code(files.done(rename(true))), 0);
    assert_eq!(fs::read(home.path().join("b")).unwrap(), b"a");
}

#[test]
fn attributes_are_set_and_links_are_not_followed_unless_they_should() {
    let (home, mut files) = files();
    fs::write(home.path().join("f"), "12345").unwrap();
    link("f", home.path().join("l")).unwrap();
    let attributes = Attributes {
        size: Some(3),
        permissions: Some(0o100_600),
        times: Some((1_000_000, 2_000_000)),
        ..Attributes::default()
    };
    assert_eq!(code(files.done(Request::Set { path: name(b"l"), attributes })), 0);
    let only_times = Attributes { times: Some((5, 6)), ..Attributes::default() };
    assert_eq!(code(files.done(Request::SetLink { path: name(b"l"), attributes: only_times })), 0);
    let Ok(Answer::Attributes(there)) = files.done(Request::Stat { path: name(b"f") }) else { panic!() };
    assert_eq!((there.size, there.permissions, there.times), (Some(3), Some(0o100_600), Some((1_000_000, 2_000_000))));
    let Ok(Answer::Attributes(there)) = files.done(Request::StatLink { path: name(b"l") }) else { panic!() };
    assert_eq!(there.times, Some((5, 6)));
}

#[test]
fn a_client_has_so_many_files_open_and_no_more() {
    let (_home, mut files) = files();
    let handles: Vec<Bytes> = (0..MOST_HANDLES).map(|_| handle(open(&mut files, b"f", WRITE | CREATE))).collect();
    assert_eq!(code(open(&mut files, b"f", READ)), 4);
    assert_eq!(code(files.done(Request::OpenDirectory { path: name(b".") })), 4);
    assert_eq!(code(files.done(Request::Close { handle: handles[7].clone() })), 0);
    assert_eq!(code(open(&mut files, b"f", READ)), 0);
}

#[test]
fn handles_that_are_none_are_told_so() {
    let (_home, mut files) = files();
    for handle in [&b""[..], b"\0\0\0\x07", b"longer than any"] {
        assert_eq!(code(files.done(Request::Close { handle: name(handle) })), 2);
        assert_eq!(code(files.done(Request::Read { handle: name(handle), offset: 0, length: 1 })), 2);
    }
}

#[test]
fn a_pipe_nobody_writes_to_is_not_waited_for() {
    let (home, mut files) = files();
    let pipe = home.path().join("pipe");
    rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let reading = open(&mut files, b"pipe", READ);
    assert_eq!(code(reading), 0);
}

#[test]
fn a_full_disk_and_a_read_only_one_are_named() {
    let full = Files::new(PathBuf::from("/"), LinkOrder::default());
    let mut full = full;
    let file = handle(open(&mut full, b"/dev/full", WRITE));
    let done = full.done(Request::Write { handle: file, offset: 0, data: name(b"x") });
    assert_eq!(done.unwrap_err().text, "No space left on device");
}

#[test]
fn limits_and_homes_are_told() {
    let (home, mut files) = files();
    assert!(matches!(files.done(Request::Limits), Ok(Answer::Limits { .. })));
    for path in [&b"~"[..], b"~/"] {
        let Ok(Answer::Names(names)) = files.done(Request::ExpandPath { path: name(path) }) else { panic!() };
        assert_eq!(names[0].name, fs::canonicalize(home.path()).unwrap().as_os_str().as_bytes());
    }
    assert_eq!(code(files.done(Request::ExpandPath { path: name(b"~bob") })), 2);
    assert_eq!(code(files.done(Request::Unknown)), 8);
}
