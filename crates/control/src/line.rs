//! Line framing: each message is one line of at most [`MAX_LINE_BYTES`].

use serde::Serialize;

/// Maximum length of a line without its line break.
pub const MAX_LINE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message exceeds {MAX_LINE_BYTES} bytes")]
pub struct LineTooLong;

/// Encodes a message as a line. JSON escapes line breaks within strings, so the one at the end is the only one.
pub fn encode_line(message: &impl Serialize) -> Result<Vec<u8>, LineTooLong> {
    // Serialization of the message types cannot fail. If it did, nothing is sent rather than a partial message.
    let mut line = serde_json::to_vec(message).map_err(|_| LineTooLong)?;
    if line.len() > MAX_LINE_BYTES {
        return Err(LineTooLong);
    }
    line.push(b'\n');
    Ok(line)
}

/// Assembles lines from chunks of a byte stream. Buffers at most one line and one chunk.
#[derive(Debug, Default)]
pub struct LineDecoder {
    bytes: Vec<u8>,
    /// The number of leading `bytes` known to contain no line break.
    searched: usize,
}

impl LineDecoder {
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// Returns the next complete line without its line break. After an error the stream must be closed.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| at + self.searched);
        match end {
            Some(end) if end > MAX_LINE_BYTES => Err(LineTooLong),
            Some(end) => {
                let rest = self.bytes.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.truncate(end);
                self.searched = 0;
                Ok(Some(line))
            }
            None if self.bytes.len() > MAX_LINE_BYTES => Err(LineTooLong),
            None => {
                self.searched = self.bytes.len();
                Ok(None)
            }
        }
    }

    /// Reports whether no partial line is buffered.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut decoder = LineDecoder::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(line) = decoder.next_line()? {
                lines.push(line);
            }
        }
        Ok(lines)
    }

    #[test]
    fn line_of_maximum_length_is_accepted_and_longer_one_rejected() {
        let mut longest = vec![b'x'; MAX_LINE_BYTES];
        longest.push(b'\n');
        assert_eq!(decode(&[&longest]).unwrap(), [&longest[..MAX_LINE_BYTES]]);
        assert_eq!(decode(&[b"x", &longest]), Err(LineTooLong));
        assert_eq!(decode(&[&vec![b'x'; MAX_LINE_BYTES + 1]]), Err(LineTooLong));
        assert_eq!(decode(&[&vec![b'x'; MAX_LINE_BYTES]]), Ok(vec![]));
        assert_eq!(encode_line(&"x".repeat(MAX_LINE_BYTES)), Err(LineTooLong));
        assert_eq!(encode_line(&"x".repeat(MAX_LINE_BYTES - 2)).unwrap().len(), MAX_LINE_BYTES + 1);
    }

    proptest! {
        #[test]
        fn decoded_lines_do_not_depend_on_chunk_boundaries(text in "[ab\n]{0,60}", cuts in prop::collection::vec(0usize..60, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let mut expect: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            expect.pop();
            prop_assert_eq!(decode(&chunks).unwrap(), expect);
        }
    }
}
