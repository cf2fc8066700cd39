//! How messages follow each other in a stream of bytes: each is a line, and no line is longer than a mebibyte.

use serde::Serialize;

/// Of a line, without its end.
pub const LONGEST: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of more than {LONGEST} bytes")]
pub struct TooLong;

/// A message as a line. JSON writes line breaks within texts differently, so the one at the end is the only one.
pub fn line(message: &impl Serialize) -> Result<Vec<u8>, TooLong> {
    // None of our types can fail to be written; if one ever could, nothing is better sent than half of it.
    let mut line = serde_json::to_vec(message).map_err(|_| TooLong)?;
    if line.len() > LONGEST {
        return Err(TooLong);
    }
    line.push(b'\n');
    Ok(line)
}

/// Puts lines together from what arrives in pieces. Never holds more than one line and one piece.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Of `bytes`, how many are known to hold no line's end.
    searched: usize,
}

impl Frames {
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole line, without its end. After an error the rest of the stream means nothing.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| at + self.searched);
        match end {
            Some(end) if end > LONGEST => Err(TooLong),
            Some(end) => {
                let rest = self.bytes.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.truncate(end);
                self.searched = 0;
                Ok(Some(line))
            }
            None if self.bytes.len() > LONGEST => Err(TooLong),
            None => {
                self.searched = self.bytes.len();
                Ok(None)
            }
        }
    }

    /// Whether the stream may end here without cutting a message off.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut frames = Frames::default();
        let mut lines = Vec::new();
        for piece in pieces {
            frames.push(piece);
            while let Some(line) = frames.take()? {
                lines.push(line);
            }
        }
        Ok(lines)
    }

    #[test]
    fn a_line_may_be_as_long_as_allowed_and_not_a_byte_longer() {
        let mut longest = vec![b'x'; LONGEST];
        longest.push(b'\n');
        assert_eq!(all(&[&longest]).unwrap(), [&longest[..LONGEST]]);
        assert_eq!(all(&[b"x", &longest]), Err(TooLong));
        assert_eq!(all(&[&vec![b'x'; LONGEST + 1]]), Err(TooLong));
        assert_eq!(all(&[&vec![b'x'; LONGEST]]), Ok(vec![]));
        assert_eq!(line(&"x".repeat(LONGEST)), Err(TooLong));
        assert_eq!(line(&"x".repeat(LONGEST - 2)).unwrap().len(), LONGEST + 1);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_cut(text in "[ab\n]{0,60}", cuts in prop::collection::vec(0usize..60, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let mut expect: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            expect.pop();
            prop_assert_eq!(all(&pieces).unwrap(), expect);
        }
    }
}
