//! The listing of the content of a restore point. It comes from a user's server, so its size is limited.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::error::{Error, Result};

/// Uncompressed.
const MAX_BYTES: u64 = 2 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listing {
    pub used_bytes: u64,
    pub files: u64,
    /// Whether something was not counted. Sizes are lower limits then.
    pub incomplete: bool,
    /// The number of entries of the listed levels that are missing.
    pub omitted: u64,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// A directory ends with a slash. Unusual characters are escaped.
    pub path: String,
    /// With everything below.
    pub bytes: u64,
    pub files: u64,
}

impl Listing {
    /// Decompresses and parses a listing.
    pub fn parse(point: &str, compressed: &[u8]) -> Result<Self> {
        let invalid = |cause: String| {
            Error::failed(format!("invalid listing of restore point {point}: {cause}"))
                .with_hint("run `devctl disk browse` to open the restore point instead")
        };
        let mut json = Vec::new();
        let mut decoder = GzDecoder::new(compressed).take(MAX_BYTES + 1);
        decoder.read_to_end(&mut json).map_err(|error| invalid(error.to_string()))?;
        if json.len() as u64 > MAX_BYTES {
            return Err(invalid(format!("more than {MAX_BYTES} bytes")));
        }
        serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn listing_is_decompressed() {
        let json = br#"{"usedBytes":4096,"files":1,"newer":true,"entries":[{"path":"a/b","bytes":4096,"files":1}]}"#;
        let listing = Listing::parse("home-1", &compress(json)).unwrap();
        assert_eq!((listing.used_bytes, listing.files, listing.incomplete), (4096, 1, false));
        assert_eq!(listing.entries, [Entry { path: "a/b".into(), bytes: 4096, files: 1 }]);
    }

    #[test]
    fn invalid_and_huge_listings_are_errors() {
        for bytes in [b"text".to_vec(), compress(b"7"), compress(&vec![b' '; 64 << 20])] {
            let error = Listing::parse("home-1", &bytes).unwrap_err();
            assert!(error.message.starts_with("invalid listing of restore point home-1: "), "{error:?}");
        }
    }
}
