//! The result of comparing two directory trees, which the agent writes as the termination message of its container.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};

/// The number of paths that differ, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeDiff {
    pub added: u64,
    pub removed: u64,
    pub modified: u64,
    /// Each after `A`, `D` or `M` and a space. Control characters and bytes that are not UTF-8 are escaped.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Whether there are more paths than `paths` contains.
    #[serde(default)]
    pub truncated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidTreeDiff {
    #[error("invalid base64: {0}")]
    Base64(base64::DecodeError),
    #[error("cannot decompress: {0}")]
    Compression(std::io::Error),
    #[error("invalid JSON: {0}")]
    Json(serde_json::Error),
}

impl TreeDiff {
    /// The kubelet truncates longer termination messages.
    pub const MAX_MESSAGE_BYTES: usize = 4096;
    /// The limit of the API.
    pub const MAX_PATHS: usize = 1000;
    /// The paths together.
    pub const MAX_PATH_BYTES: usize = 32 << 10;
    /// JSON may need six bytes for one.
    const MAX_JSON_BYTES: u64 = 256 << 10;

    /// Encodes the result as a termination message: compressed, because sorted paths repeat most of each other. Paths at
    /// the end are dropped if it would be too long.
    pub fn to_message(&self) -> String {
        let (mut low, mut high) = (0, self.paths.len());
        let mut longest = self.encode(low);
        let all = self.encode(high);
        if all.len() <= Self::MAX_MESSAGE_BYTES {
            return all;
        }
        while low < high {
            let middle = (low + high).div_ceil(2);
            let text = self.encode(middle);
            if text.len() <= Self::MAX_MESSAGE_BYTES {
                (low, longest) = (middle, text);
            } else {
                high = middle - 1;
            }
        }
        longest
    }

    fn encode(&self, paths: usize) -> String {
        let kept = Self {
            paths: self.paths.iter().take(paths).cloned().collect(),
            truncated: self.truncated || paths < self.paths.len(),
            ..*self
        };
        // Writing to memory cannot fail.
        let json = serde_json::to_vec(&kept).unwrap_or_default();
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        let compressed = encoder.write_all(&json).and_then(|()| encoder.finish()).unwrap_or_default();
        STANDARD.encode(compressed)
    }

    pub fn from_message(message: &str) -> Result<Self, InvalidTreeDiff> {
        let compressed = STANDARD.decode(message.trim()).map_err(InvalidTreeDiff::Base64)?;
        let mut json = Vec::new();
        let mut decoder = ZlibDecoder::new(compressed.as_slice()).take(Self::MAX_JSON_BYTES);
        decoder.read_to_end(&mut json).map_err(InvalidTreeDiff::Compression)?;
        serde_json::from_slice(&json).map_err(InvalidTreeDiff::Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(count: usize, name: impl Fn(usize) -> String) -> TreeDiff {
        let paths = (0..count).map(|number| format!("M {}", name(number))).collect();
        TreeDiff { added: u64::MAX, removed: u64::MAX, modified: u64::MAX, paths, truncated: false }
    }

    #[test]
    fn result_is_decoded_from_its_message() {
        let similar = diff(400, |number| format!("src/project/module/file-{number:04}.rs"));
        let message = similar.to_message();
        assert!(message.len() <= TreeDiff::MAX_MESSAGE_BYTES, "{}", message.len());
        assert_eq!(TreeDiff::from_message(&format!("{message}\n")).unwrap(), similar);
        assert_eq!(TreeDiff::from_message(&TreeDiff::default().to_message()).unwrap(), TreeDiff::default());
    }

    #[test]
    fn paths_that_do_not_fit_are_dropped_from_the_end() {
        // Names that cannot be compressed well.
        let random = |number: usize| format!("{:016x}", (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let long = diff(2000, random);
        let message = long.to_message();
        assert!(message.len() <= TreeDiff::MAX_MESSAGE_BYTES, "{}", message.len());
        let decoded = TreeDiff::from_message(&message).unwrap();
        assert!(decoded.truncated && decoded.paths.len() > 200, "{}", decoded.paths.len());
        assert_eq!(decoded.paths[..], long.paths[..decoded.paths.len()]);
        assert_eq!(decoded.modified, u64::MAX);
    }

    #[test]
    fn invalid_messages_are_errors() {
        for message in ["", "odc-agent: failed", "AAAA", "e30="] {
            assert!(TreeDiff::from_message(message).is_err(), "{message}");
        }
        // A message that expands without end is cut off, and is then invalid.
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b' '; 2 << 20]).unwrap();
        let bomb = STANDARD.encode(encoder.finish().unwrap());
        assert!(TreeDiff::from_message(&bomb).is_err());
    }
}
