//! What the operator and helpers say to the agent, and what an agent, which runs in a user's server, answers the operator.

use odc_control::{Frames, Misunderstood, Reply, read_reply, read_request, write_reply, write_request};

use crate::campaign::{Campaign, Happened};

const WORDS: &[&str] = &[
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
    "\"listing\":",
];

/// Which kind of complaint, without the words of the input.
fn kind(misunderstood: Misunderstood) -> Happened {
    let kind = match &misunderstood {
        Misunderstood::NoMessage(error) => format!("no message: {:?}", error.classify()),
        Misunderstood::Version(_) => "version".to_owned(),
        Misunderstood::UnknownRequest(_) => "unknown".to_owned(),
        Misunderstood::Invalid(error) => {
            let words = error.to_string();
            let of_the_input = |symbol: char| "`\",:".contains(symbol) || symbol.is_ascii_digit();
            format!("invalid: {}", words.split(of_the_input).next().unwrap_or_default())
        }
    };
    // Whoever sent it can be told, whatever it was.
    let refused = write_reply(&Reply::from(misunderstood)).unwrap();
    assert!(matches!(read_reply(refused.trim_ascii()), Ok(Reply::Refused { .. })));
    kind
}

fn name(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

#[test]
fn a_request_is_refused_or_means_the_same_when_it_is_said_again() {
    Campaign::new("request", 20_000).words(WORDS).run(|input| match read_request(input) {
        Ok(request) => {
            let line = write_request(&request).unwrap();
            assert_eq!(read_request(line.trim_ascii()).unwrap(), request);
            name(&request)
        }
        Err(misunderstood) => kind(misunderstood),
    });
}

#[test]
fn a_reply_is_refused_or_means_the_same_when_it_is_said_again() {
    Campaign::new("reply", 20_000).words(WORDS).run(|input| match read_reply(input) {
        Ok(reply) => {
            let line = write_reply(&reply).unwrap();
            assert_eq!(read_reply(line.trim_ascii()).unwrap(), reply);
            name(&reply)
        }
        Err(misunderstood) => kind(misunderstood),
    });
}

#[test]
fn lines_are_the_same_in_whatever_pieces_they_come() {
    Campaign::new("request", 5_000).words(&["\n", "\n\n", "\r\n"]).run(|input| {
        let lines = |piece: usize| {
            let (mut frames, mut lines) = (Frames::default(), Vec::new());
            for part in input.chunks(piece) {
                frames.push(part);
                while let Some(line) = frames.take().unwrap() {
                    lines.push(line);
                }
            }
            lines
        };
        let whole = lines(usize::MAX);
        assert_eq!(lines(1), whole);
        assert_eq!(lines(7), whole);
        format!("{} lines", whole.len().min(8))
    });
}
