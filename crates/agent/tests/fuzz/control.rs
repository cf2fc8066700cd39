//! Control messages in both directions. Replies come from an agent in a user's server, so the operator must not trust
//! them.

use odc_control::{LineDecoder, ProtocolError, Reply, read_reply, read_request, write_reply, write_request};

use crate::runner::{Runner, Signature};

const DICTIONARY: &[&str] = &[
    "\"type\":",
    "\"version\":1",
    "\"request\":",
    "\"reply\":",
    "null",
    "true",
    "-1",
    "1e999",
    "18446744073709551616",
    "[]",
    "{}",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"quiesce\"",
    "\"setAccess\"",
    "\"keys\":",
    "\"controlCas\":",
    "\"withinSeconds\":",
    "\"keepAlive\"",
    "\"seconds\":",
    "\"signals\"",
    "\"quiesced\"",
    "\"preStop\":",
    "\"notStarted\":",
    "\"flush\"",
    "\"flushed\"",
    "\"home\":",
    "\"listing\":",
];

/// Returns the kind of the error, without text of the input.
fn error_signature(error: ProtocolError) -> Signature {
    let signature = match &error {
        ProtocolError::Malformed(error) => format!("malformed: {:?}", error.classify()),
        ProtocolError::Version(_) => "version".to_owned(),
        ProtocolError::UnknownRequest(_) => "unknown".to_owned(),
        ProtocolError::Invalid(error) => {
            let message = error.to_string();
            let is_input = |symbol: char| "`\",:".contains(symbol) || symbol.is_ascii_digit();
            format!("invalid: {}", message.split(is_input).next().unwrap_or_default())
        }
    };
    // Every error can be sent as a reply.
    let refused = write_reply(&Reply::from(error)).unwrap();
    assert!(matches!(read_reply(refused.trim_ascii()), Ok(Reply::Refused { .. })));
    signature
}

fn variant_name(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

#[test]
fn request_is_rejected_or_round_trips() {
    Runner::new("request", 20_000).dictionary(DICTIONARY).run(|input| match read_request(input) {
        Ok(request) => {
            let line = write_request(&request).unwrap();
            assert_eq!(read_request(line.trim_ascii()).unwrap(), request);
            variant_name(&request)
        }
        Err(error) => error_signature(error),
    });
}

#[test]
fn reply_is_rejected_or_round_trips() {
    Runner::new("reply", 20_000).dictionary(DICTIONARY).run(|input| match read_reply(input) {
        Ok(reply) => {
            let line = write_reply(&reply).unwrap();
            assert_eq!(read_reply(line.trim_ascii()).unwrap(), reply);
            variant_name(&reply)
        }
        Err(error) => error_signature(error),
    });
}

#[test]
fn lines_do_not_depend_on_chunk_size() {
    Runner::new("request", 5_000).dictionary(&["\n", "\n\n", "\r\n"]).run(|input| {
        let lines = |chunk_size: usize| {
            let (mut decoder, mut lines) = (LineDecoder::default(), Vec::new());
            for chunk in input.chunks(chunk_size) {
                decoder.push(chunk);
                while let Some(line) = decoder.next_line().unwrap() {
                    lines.push(line);
                }
            }
            lines
        };
        let expect = lines(usize::MAX);
        assert_eq!(lines(1), expect);
        assert_eq!(lines(7), expect);
        format!("{} lines", expect.len().min(8))
    });
}
