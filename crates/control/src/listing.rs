//! The content of a home directory: its first levels with their disk usage.
//!
//! It is compressed by the agent and stored by the operator as it is. File names and sizes come from a user's server, so
//! readers must not trust them.

use std::fmt;
use std::io::{self, Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The disk usage of a home and the largest parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// Allocated bytes of everything in the home. Hard links are counted once.
    pub used_bytes: u64,
    /// The number of entries that are not directories.
    pub files: u64,
    /// Whether something could not be read in time. Sizes are lower limits then.
    pub incomplete: bool,
    /// The number of entries of the listed levels that `entries` does not contain.
    pub omitted: u64,
    pub entries: Vec<ListingEntry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListingEntry {
    /// Relative to the home. A directory ends with a slash. Control characters and bytes that are not UTF-8 are escaped.
    pub path: String,
    /// Allocated bytes, with everything below.
    pub bytes: u64,
    /// The number of entries that are not directories, with everything below.
    pub files: u64,
}

/// The part of a reply that describes the home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HomeContent {
    pub used_bytes: u64,
    pub files: u64,
    pub listing: CompressedListing,
}

/// A [`Listing`] as JSON, compressed with gzip. In messages it is base64.
#[derive(Clone, PartialEq, Eq)]
pub struct CompressedListing(Vec<u8>);

impl Listing {
    /// The paths together, before they are compressed.
    const MAX_PATH_BYTES: usize = 256 << 10;

    /// Compresses the listing. Its entries must be in the order of their importance: the last ones are dropped if it
    /// would be too large. The others are sorted by path.
    pub fn compress(mut self) -> HomeContent {
        let (used_bytes, files) = (self.used_bytes, self.files);
        let mut entries = std::mem::take(&mut self.entries);
        let found = entries.len();
        let mut bytes = 0_usize;
        let fits = |entry: &ListingEntry| {
            bytes = bytes.saturating_add(entry.path.len());
            bytes <= Self::MAX_PATH_BYTES
        };
        entries.truncate(entries.iter().map(fits).take_while(|fits| *fits).count());
        let with_first = |count: usize| {
            let mut entries = entries[..count].to_vec();
            entries.sort_unstable();
            let dropped = u64::try_from(found - count).unwrap_or(u64::MAX);
            Self { entries, omitted: self.omitted.saturating_add(dropped), ..self }.encode()
        };
        let all = with_first(entries.len());
        if all.len() <= CompressedListing::MAX_BYTES {
            return HomeContent { used_bytes, files, listing: CompressedListing(all) };
        }
        let (mut low, mut high) = (0, entries.len());
        let mut largest = with_first(low);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let encoded = with_first(middle);
            if encoded.len() <= CompressedListing::MAX_BYTES {
                (low, largest) = (middle, encoded);
            } else {
                high = middle - 1;
            }
        }
        HomeContent { used_bytes, files, listing: CompressedListing(largest) }
    }

    fn encode(&self) -> Vec<u8> {
        // Writing to memory cannot fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&json).and_then(|()| encoder.finish()).unwrap_or_default()
    }
}

impl CompressedListing {
    pub const MAX_BYTES: usize = 32 << 10;

    /// JSON may need six bytes for one of a path.
    const MAX_JSON_BYTES: u64 = 2 << 20;

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn decompress(&self) -> io::Result<Listing> {
        let mut json = Vec::new();
        GzDecoder::new(self.0.as_slice()).take(Self::MAX_JSON_BYTES).read_to_end(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

/// Omits the content, which contains names of a user's files.
impl fmt::Debug for CompressedListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompressedListing({} bytes)", self.0.len())
    }
}

impl Serialize for CompressedListing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for CompressedListing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        if bytes.len() > Self::MAX_BYTES {
            let limit = Self::MAX_BYTES;
            return Err(D::Error::custom(format!("listing of {} bytes exceeds the limit of {limit}", bytes.len())));
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
impl CompressedListing {
    pub fn test(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(content: &HomeContent) -> Listing {
        content.listing.decompress().unwrap()
    }

    fn entry(path: String, bytes: u64) -> ListingEntry {
        ListingEntry { path, bytes, files: 1 }
    }

    #[test]
    fn small_listing_is_complete_and_sorted_by_path() {
        let listing = Listing { used_bytes: 7, files: 2, omitted: 1, ..Listing::default() };
        let entries = vec![entry("b".into(), 5), entry("a/".into(), 2)];
        let content = Listing { entries, ..listing.clone() }.compress();
        assert_eq!((content.used_bytes, content.files), (7, 2));
        let decoded = decode(&content);
        assert_eq!(decoded.entries, [entry("a/".into(), 2), entry("b".into(), 5)]);
        assert_eq!(Listing { entries: vec![], ..decoded }, listing);
    }

    #[test]
    fn large_listing_keeps_the_most_important_entries() {
        // Names that cannot be compressed well.
        let random = |number: u64| format!("{:016x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let entries: Vec<ListingEntry> = (0..4000).map(|number| entry(random(number), 4000 - number)).collect();
        let content = Listing { entries: entries.clone(), ..Listing::default() }.compress();
        assert!(content.listing.as_bytes().len() <= CompressedListing::MAX_BYTES);
        let decoded = decode(&content);
        let kept = decoded.entries.len();
        assert!(kept > 1500, "{kept}");
        assert_eq!(decoded.omitted, 4000 - kept as u64);
        let mut expect = entries[..kept].to_vec();
        expect.sort_unstable();
        assert_eq!(decoded.entries, expect);
        // Long names are dropped before they are compressed.
        let entries = (0..4000).map(|number| entry(format!("{number:04}{}", "n".repeat(4000)), 1)).collect();
        let decoded = decode(&Listing { entries, ..Listing::default() }.compress());
        assert_eq!((decoded.entries.len(), decoded.omitted), (65, 3935));
    }

    #[test]
    fn listing_that_is_too_large_is_rejected() {
        let text = |length: usize| format!("\"{}\"", STANDARD.encode(vec![0; length]));
        assert!(serde_json::from_str::<CompressedListing>(&text(CompressedListing::MAX_BYTES)).is_ok());
        let error = serde_json::from_str::<CompressedListing>(&text(CompressedListing::MAX_BYTES + 1)).unwrap_err();
        assert!(error.to_string().starts_with("listing of 32769 bytes exceeds the limit of 32768"), "{error}");
        assert!(serde_json::from_str::<CompressedListing>("\"%\"").is_err());
    }

    #[test]
    fn invalid_listing_is_an_error() {
        assert!(CompressedListing::test(b"text").decompress().is_err());
        // One that expands without end is cut off, and is then invalid.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b' '; 8 << 20]).unwrap();
        assert!(CompressedListing(encoder.finish().unwrap()).decompress().is_err());
    }
}
