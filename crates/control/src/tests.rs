//! Round trips of all messages, and robustness against invalid input.

mod strategy;

use proptest::prelude::*;

use super::*;

#[test]
fn request_serialization_is_stable() {
    for (request, text) in [
        (Request::Signals, r#"{"type":"signals"}"#),
        (
            Request::SetDeadline {
                remaining_seconds: Some(60),
                idle: Some(IdlePolicy { limit_seconds: 1800, action: IdleAction::Hibernate }),
            },
            r#"{"type":"setDeadline","remainingSeconds":60,"idle":{"limitSeconds":1800,"action":"hibernate"}}"#,
        ),
        (
            Request::Notify { kind: NoticeKind::Idle, text: Some("soon".into()) },
            r#"{"type":"notify","kind":"idle","text":"soon"}"#,
        ),
        (
            Request::SetAccess(Access { keys: vec!["k".into()], ..Access::default() }),
            r#"{"type":"setAccess","keys":["k"],"userCas":[],"controlCas":[]}"#,
        ),
        (Request::Quiesce { within_seconds: 30 }, r#"{"type":"quiesce","withinSeconds":30}"#),
        (Request::Flush { within_seconds: 8 }, r#"{"type":"flush","withinSeconds":8}"#),
    ] {
        let line = String::from_utf8(write_request(&request).unwrap()).unwrap();
        assert_eq!(line, format!("{{\"version\":1,\"request\":{text}}}\n"));
    }
}

#[test]
fn every_request_name_is_listed() {
    for request in strategy::one_of_each() {
        let line = write_request(&request).unwrap();
        assert_eq!(read_request(line.trim_ascii()).unwrap(), request);
    }
    assert_eq!(strategy::one_of_each().len(), request::NAMES.len());
}

#[test]
fn invalid_message_is_rejected_with_reason() {
    for (line, expect) in [
        ("", "malformed message: "),
        ("[]", "malformed message: "),
        ("{}", "malformed message: missing field `version`"),
        (r#"{"version":2,"request":"new"}"#, "unsupported version 2, expected 1"),
        (r#"{"version":1}"#, "malformed message: missing field `request`"),
        (r#"{"version":1,"request":{"type":"dance"}}"#, "unknown request \"dance\""),
        (r#"{"version":1,"request":{"type":"quiesce"}}"#, "invalid message: missing field `withinSeconds`"),
        (r#"{"version":1,"request":{"type":"quiesce","withinSeconds":-1}}"#, "invalid message: "),
        (r#"{"version":1,"request":{"type":"jupyter","on":"yes"}}"#, "invalid message: "),
    ] {
        let Reply::Refused { reason } = read_request(line.as_bytes()).unwrap_err().into() else { panic!() };
        assert!(reason.starts_with(expect), "{line}: {reason}");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let line = br#"{"version":1,"more":1,"request":{"type":"quiesce","withinSeconds":5,"more":{}}}"#;
    assert_eq!(read_request(line).unwrap(), Request::Quiesce { within_seconds: 5 });
}

#[test]
fn access_list_is_bounded() {
    let access = |keys: Vec<String>| write_request(&Request::SetAccess(Access { keys, ..Access::default() })).unwrap();
    let fits = access(vec!["k".repeat(400); Access::MAX_KEYS]);
    assert!(read_request(fits.trim_ascii()).is_ok());
    let many = access(vec![String::new(); Access::MAX_KEYS + 1]);
    assert!(read_request(many.trim_ascii()).unwrap_err().to_string().contains("2001 keys exceed the limit of 2000"));
    let long = access(vec!["k".repeat(Access::MAX_KEY_BYTES + 1)]);
    assert!(read_request(long.trim_ascii()).is_err());
}

#[test]
fn reply_of_an_agent_without_a_compressed_listing_is_read() {
    let line = br#"{"version":1,"reply":{"type":"quiesced","preStop":null,"synced":true,"listing":"a","listingTruncated":true}}"#;
    let Reply::Quiesced(quiesced) = read_reply(line).unwrap() else { panic!() };
    assert!(quiesced.synced && quiesced.home.is_none());
}

#[test]
fn longest_listing_fits_into_one_line() {
    let listing = CompressedListing::test(&vec![0; CompressedListing::MAX_BYTES]);
    let text = || Some(Text::new("\n".repeat(Text::MAX_BYTES)));
    let quiesced = Quiesced {
        pre_stop: None,
        pre_stop_log: text(),
        synced: true,
        sync_error: text(),
        home: Some(HomeContent { used_bytes: u64::MAX, files: u64::MAX, listing }),
    };
    assert!(write_reply(&Reply::Quiesced(Box::new(quiesced))).is_ok());
}

proptest! {
    #[test]
    fn request_round_trips(request in strategy::request()) {
        let line = write_request(&request).unwrap();
        prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        prop_assert_eq!(read_request(line.trim_ascii()).unwrap(), request);
    }

    #[test]
    fn reply_round_trips(reply in strategy::reply()) {
        let line = write_reply(&reply).unwrap();
        prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        prop_assert_eq!(read_reply(line.trim_ascii()).unwrap(), reply);
    }

    #[test]
    fn random_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_request(&bytes).is_err());
        prop_assert!(read_reply(&bytes).is_err());
    }

    #[test]
    fn corrupted_message_does_not_panic(
        request in strategy::request(), reply in strategy::reply(), at: prop::sample::Index, byte: u8,
    ) {
        let mut line = write_request(&request).unwrap();
        let place = at.index(line.len());
        line[place] = byte;
        let _ = read_request(&line);
        let mut line = write_reply(&reply).unwrap();
        let place = at.index(line.len());
        line[place] = byte;
        let _ = read_reply(&line);
    }

    #[test]
    fn arbitrary_json_does_not_panic(value in strategy::json(), name in prop::sample::select(&request::NAMES[..])) {
        let mut value = value;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("type".into(), name.into());
        }
        let line = serde_json::json!({"version": 1, "request": value, "reply": value}).to_string();
        let _ = read_request(line.as_bytes());
        let _ = read_reply(line.as_bytes());
    }
}
