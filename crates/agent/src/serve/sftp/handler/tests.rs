use super::*;
use std::os::unix::fs::symlink as link;

fn fixture() -> (tempfile::TempDir, SftpHandler) {
    let home = tempfile::tempdir().unwrap();
    let handler = SftpHandler::new(home.path().to_owned(), SymlinkOrder::default());
    (home, handler)
}

fn name(text: &[u8]) -> Bytes {
    Bytes::copy_from_slice(text)
}

fn code(result: Result<Response, Status>) -> u32 {
    match result {
        Ok(Response::Status(status)) | Err(status) => status.code,
        Ok(_) => 0,
    }
}

fn handle(result: Result<Response, Status>) -> Bytes {
    let Ok(Response::Handle(handle)) = result else { panic!("{result:?}") };
    handle
}

fn open(handler: &mut SftpHandler, path: &[u8], flags: u32) -> Result<Response, Status> {
    handler.handle_request(Request::Open { path: name(path), flags, attrs: FileAttrs::default() })
}

#[test]
fn non_utf8_name_can_be_written_listed_read_and_removed() {
    let (_home, mut handler) = fixture();
    let non_utf8 = b"\xff\xfe name";
    let file = handle(open(&mut handler, non_utf8, SSH_FXF_WRITE | SSH_FXF_CREAT | SSH_FXF_EXCL));
    assert_eq!(code(handler.handle_request(Request::Write { handle: file.clone(), offset: 3, data: name(b"abc") })), 0);
    assert_eq!(code(handler.handle_request(Request::Close { handle: file })), 0);

    let list = handle(handler.handle_request(Request::Opendir { path: name(b".") }));
    let Ok(Response::Name(entries)) = handler.handle_request(Request::Readdir { handle: list.clone() }) else {
        panic!()
    };
    let entry = entries.iter().find(|entry| entry.name == non_utf8).unwrap();
    assert_eq!(entry.attrs.size, Some(6));
    assert!(entry.long_name.starts_with(b"-rw-") && entry.long_name.ends_with(non_utf8));
    assert_eq!(code(handler.handle_request(Request::Readdir { handle: list })), 1);

    let file = handle(open(&mut handler, non_utf8, SSH_FXF_READ));
    let Ok(Response::Data(data)) =
        handler.handle_request(Request::Read { handle: file.clone(), offset: 2, length: 100 })
    else {
        panic!()
    };
    assert_eq!(data.as_ref(), b"\0abc");
    assert_eq!(code(handler.handle_request(Request::Read { handle: file, offset: 6, length: 100 })), 1);
    assert_eq!(code(handler.handle_request(Request::Remove { path: name(non_utf8) })), 0);
    assert_eq!(code(open(&mut handler, non_utf8, SSH_FXF_READ)), 2);
}

#[test]
fn realpath_resolves_links_and_rejects_loops() {
    let (home, mut handler) = fixture();
    let root = fs::canonicalize(home.path()).unwrap();
    fs::create_dir(home.path().join("d")).unwrap();
    link("d", home.path().join("to-d")).unwrap();
    link("loop", home.path().join("loop")).unwrap();
    let mut realpath = |path: &str| match handler.handle_request(Request::Realpath { path: name(path.as_bytes()) }) {
        Ok(Response::Name(names)) => Ok(PathBuf::from(String::from_utf8(names[0].name.clone()).unwrap())),
        Err(status) => Err(status.code),
        other => panic!("{other:?}"),
    };
    assert_eq!(realpath("."), Ok(root.clone()));
    assert_eq!(realpath("to-d/../d/."), Ok(root.join("d")));
    assert_eq!(realpath("d/new"), Ok(root.join("d/new")));
    assert_eq!(realpath("/../../x/y/../z"), Ok(PathBuf::from("/x/z")));
    assert_eq!(realpath("loop"), Err(2));
    assert_eq!(code(open(&mut handler, b"loop", SSH_FXF_READ)), 2);
    assert_eq!(code(handler.handle_request(Request::Lstat { path: name(b"loop") })), 0);
}

#[test]
fn names_are_limited_to_255_bytes() {
    let (_home, mut handler) = fixture();
    assert_eq!(code(open(&mut handler, &[b'n'; 255], SSH_FXF_WRITE | SSH_FXF_CREAT)), 0);
    assert_eq!(code(open(&mut handler, &[b'n'; 256], SSH_FXF_WRITE | SSH_FXF_CREAT)), 5);
    assert_eq!(code(open(&mut handler, b"a\0b", SSH_FXF_WRITE | SSH_FXF_CREAT)), 5);
}

#[test]
fn rename_replaces_only_on_request() {
    let (home, mut handler) = fixture();
    for file in ["a", "b"] {
        fs::write(home.path().join(file), file).unwrap();
    }
    let rename = |replace| Request::Rename { from: name(b"a"), to: name(b"b"), replace };
    assert_eq!(code(handler.handle_request(rename(false))), 4);
    assert_eq!(code(handler.handle_request(rename(true))), 0);
    assert_eq!(fs::read(home.path().join("b")).unwrap(), b"a");
}

#[test]
fn setstat_follows_links_and_lsetstat_does_not() {
    let (home, mut handler) = fixture();
    fs::write(home.path().join("f"), "12345").unwrap();
    link("f", home.path().join("l")).unwrap();
    let attrs = FileAttrs {
        size: Some(3),
        permissions: Some(0o100_600),
        times: Some((1_000_000, 2_000_000)),
        ..FileAttrs::default()
    };
    assert_eq!(code(handler.handle_request(Request::Setstat { path: name(b"l"), attrs })), 0);
    let only_times = FileAttrs { times: Some((5, 6)), ..FileAttrs::default() };
    assert_eq!(code(handler.handle_request(Request::Lsetstat { path: name(b"l"), attrs: only_times })), 0);
    let Ok(Response::Attrs(attrs)) = handler.handle_request(Request::Stat { path: name(b"f") }) else { panic!() };
    assert_eq!((attrs.size, attrs.permissions, attrs.times), (Some(3), Some(0o100_600), Some((1_000_000, 2_000_000))));
    let Ok(Response::Attrs(attrs)) = handler.handle_request(Request::Lstat { path: name(b"l") }) else { panic!() };
    assert_eq!(attrs.times, Some((5, 6)));
}

#[test]
fn number_of_handles_is_limited() {
    let (_home, mut handler) = fixture();
    let open_files: Vec<Bytes> =
        (0..MAX_HANDLES).map(|_| handle(open(&mut handler, b"f", SSH_FXF_WRITE | SSH_FXF_CREAT))).collect();
    assert_eq!(code(open(&mut handler, b"f", SSH_FXF_READ)), 4);
    assert_eq!(code(handler.handle_request(Request::Opendir { path: name(b".") })), 4);
    assert_eq!(code(handler.handle_request(Request::Close { handle: open_files[7].clone() })), 0);
    assert_eq!(code(open(&mut handler, b"f", SSH_FXF_READ)), 0);
}

#[test]
fn invalid_handles_are_rejected() {
    let (_home, mut handler) = fixture();
    for handle in [&b""[..], b"\0\0\0\x07", b"longer than any"] {
        assert_eq!(code(handler.handle_request(Request::Close { handle: name(handle) })), 2);
        assert_eq!(code(handler.handle_request(Request::Read { handle: name(handle), offset: 0, length: 1 })), 2);
    }
}

#[test]
fn open_of_fifo_without_writer_does_not_block() {
    let (home, mut handler) = fixture();
    let fifo = home.path().join("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let reading = open(&mut handler, b"fifo", SSH_FXF_READ);
    assert_eq!(code(reading), 0);
}

#[test]
fn full_disk_is_reported() {
    let mut handler = SftpHandler::new(PathBuf::from("/"), SymlinkOrder::default());
    let file = handle(open(&mut handler, b"/dev/full", SSH_FXF_WRITE));
    let result = handler.handle_request(Request::Write { handle: file, offset: 0, data: name(b"x") });
    assert_eq!(result.unwrap_err().message, "No space left on device");
}

#[test]
fn limits_and_home_directory_are_reported() {
    let (home, mut handler) = fixture();
    assert!(matches!(handler.handle_request(Request::Limits), Ok(Response::Limits { .. })));
    for path in [&b"~"[..], b"~/"] {
        let Ok(Response::Name(names)) = handler.handle_request(Request::ExpandPath { path: name(path) }) else {
            panic!()
        };
        assert_eq!(names[0].name, fs::canonicalize(home.path()).unwrap().as_os_str().as_bytes());
    }
    assert_eq!(code(handler.handle_request(Request::ExpandPath { path: name(b"~bob") })), 2);
    assert_eq!(code(handler.handle_request(Request::Unknown)), 8);
}
