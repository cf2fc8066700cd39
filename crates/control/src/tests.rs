//! What was said is what is heard, and nothing that arrives can do harm.

mod strategy;

use proptest::prelude::*;

use super::*;

#[test]
fn requests_look_as_documented() {
    for (request, text) in [
        (Request::Signals, r#"{"type":"signals"}"#),
        (
            Request::SetDeadline {
                remaining_seconds: Some(60),
                idle: Some(IdleTerms { limit_seconds: 1800, action: IdleAction::Hibernate }),
            },
            r#"{"type":"setDeadline","remainingSeconds":60,"idle":{"limitSeconds":1800,"action":"hibernate"}}"#,
        ),
        (
            Request::Notify { about: About::Idle, text: Some("soon".into()) },
            r#"{"type":"notify","about":"idle","text":"soon"}"#,
        ),
        (
            Request::SetAccess(Access { keys: vec!["k".into()], ..Access::default() }),
            r#"{"type":"setAccess","keys":["k"],"userCas":[],"controlCas":[]}"#,
        ),
        (Request::Quiesce { within_seconds: 30 }, r#"{"type":"quiesce","withinSeconds":30}"#),
    ] {
        let line = String::from_utf8(write_request(&request).unwrap()).unwrap();
        assert_eq!(line, format!("{{\"version\":1,\"request\":{text}}}\n"));
    }
}

#[test]
fn every_request_is_known_by_its_name() {
    for request in strategy::one_of_each() {
        let line = write_request(&request).unwrap();
        assert_eq!(read_request(line.trim_ascii()).unwrap(), request);
    }
    assert_eq!(strategy::one_of_each().len(), request::NAMES.len());
}

#[test]
fn what_is_not_understood_is_refused_with_a_sentence() {
    for (line, expect) in [
        ("", "this is no message: "),
        ("[]", "this is no message: "),
        ("{}", "this is no message: missing field `version`"),
        (r#"{"version":2,"request":"new"}"#, "version 2 is not known here, only 1"),
        (r#"{"version":1}"#, "this is no message: missing field `request`"),
        (r#"{"version":1,"request":{"type":"dance"}}"#, "the request \"dance\" is not known here"),
        (r#"{"version":1,"request":{"type":"quiesce"}}"#, "the message cannot be used: missing field `withinSeconds`"),
        (r#"{"version":1,"request":{"type":"quiesce","withinSeconds":-1}}"#, "the message cannot be used: "),
        (r#"{"version":1,"request":{"type":"jupyter","on":"yes"}}"#, "the message cannot be used: "),
    ] {
        let Reply::Refused { reason } = read_request(line.as_bytes()).unwrap_err().into() else { panic!() };
        assert!(reason.starts_with(expect), "{line}: {reason}");
    }
}

#[test]
fn a_newer_speaker_may_add_fields() {
    let line = br#"{"version":1,"more":1,"request":{"type":"quiesce","withinSeconds":5,"more":{}}}"#;
    assert_eq!(read_request(line).unwrap(), Request::Quiesce { within_seconds: 5 });
}

#[test]
fn an_access_list_has_bounds() {
    let access = |keys: Vec<String>| write_request(&Request::SetAccess(Access { keys, ..Access::default() })).unwrap();
    let fits = access(vec!["k".repeat(400); Access::MOST_LINES]);
    assert!(read_request(fits.trim_ascii()).is_ok());
    let many = access(vec![String::new(); Access::MOST_LINES + 1]);
    assert!(read_request(many.trim_ascii()).unwrap_err().to_string().contains("2001 keys, where 2000 are allowed"));
    let long = access(vec!["k".repeat(Access::LONGEST_LINE + 1)]);
    assert!(read_request(long.trim_ascii()).is_err());
}

#[test]
fn the_longest_listing_fits_into_a_line() {
    let listing = Listing::new("\"\n".repeat(Listing::MOST));
    let text = || Some(Text::new("\n".repeat(Text::MOST)));
    let quiesced = Quiesced {
        pre_stop: None,
        pre_stop_log: text(),
        synced: true,
        not_synced: text(),
        listing: Some(listing),
        listing_cut: true,
    };
    assert!(write_reply(&Reply::Quiesced(Box::new(quiesced))).is_ok());
}

proptest! {
    #[test]
    fn a_request_arrives_as_it_was_sent(request in strategy::request()) {
        let line = write_request(&request).unwrap();
        prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        prop_assert_eq!(read_request(line.trim_ascii()).unwrap(), request);
    }

    #[test]
    fn a_reply_arrives_as_it_was_sent(reply in strategy::reply()) {
        let line = write_reply(&reply).unwrap();
        prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        prop_assert_eq!(read_reply(line.trim_ascii()).unwrap(), reply);
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_request(&bytes).is_err());
        prop_assert!(read_reply(&bytes).is_err());
    }

    #[test]
    fn a_spoilt_message_is_refused_or_means_something(
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
    fn odd_json_is_refused(value in strategy::json(), name in prop::sample::select(&request::NAMES[..])) {
        let mut value = value;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("type".into(), name.into());
        }
        let line = serde_json::json!({"version": 1, "request": value, "reply": value}).to_string();
        let _ = read_request(line.as_bytes());
        let _ = read_reply(line.as_bytes());
    }
}
