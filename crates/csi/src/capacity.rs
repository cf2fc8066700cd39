//! Sizes of volumes: bounds, parsing, and the choice within a capacity range.

use std::fmt;
use std::str::FromStr;

use crate::proto;

/// Unit of allocation of btrfs; sizes are multiples of it.
const BLOCK_SIZE: u64 = 4096;
/// Below this size, the metadata of a few files would fill a volume.
pub const MIN_VOLUME_SIZE: u64 = 16 << 20;
pub const MAX_VOLUME_SIZE: u64 = 64 << 40;
/// Size of a volume without requested capacity and without source.
pub const DEFAULT_VOLUME_SIZE: u64 = 10 << 30;

/// Requested capacity, validated. Zero as `required` means no minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapacityRange {
    pub required: u64,
    pub limit: Option<u64>,
}

/// Reason for which a capacity range is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    #[error("negative capacity")]
    Negative,
    #[error("required capacity {required} exceeds the limit {limit}")]
    Empty { required: ByteSize, limit: ByteSize },
    #[error("required capacity {required} exceeds the maximum size of a volume, {max}", max = ByteSize(MAX_VOLUME_SIZE))]
    TooLarge { required: ByteSize },
    #[error("capacity limit {limit} is below the minimum size {min}")]
    TooSmall { limit: ByteSize, min: ByteSize },
}

impl CapacityRange {
    pub fn parse(range: Option<&proto::csi::CapacityRange>) -> Result<Self, RangeError> {
        let Some(range) = range else { return Ok(Self::default()) };
        let required = u64::try_from(range.required_bytes).map_err(|_| RangeError::Negative)?;
        let limit = u64::try_from(range.limit_bytes).map_err(|_| RangeError::Negative)?;
        let limit = (limit > 0).then_some(limit);
        if let Some(limit) = limit.filter(|limit| *limit < required) {
            return Err(RangeError::Empty { required: ByteSize(required), limit: ByteSize(limit) });
        }
        if required > MAX_VOLUME_SIZE {
            return Err(RangeError::TooLarge { required: ByteSize(required) });
        }
        Ok(Self { required, limit })
    }

    /// Reports whether a volume of this size satisfies the request.
    pub fn contains(self, size: u64) -> bool {
        size >= self.required && self.limit.is_none_or(|limit| size <= limit)
    }

    /// Chooses the size of a new volume: the required one, at least `floor`, or `default` if none is required.
    pub fn choose(self, floor: u64, default: u64) -> Result<u64, RangeError> {
        let wanted = if self.required == 0 { default.min(self.limit.unwrap_or(default)) } else { self.required };
        let floor = floor.max(MIN_VOLUME_SIZE);
        let size = wanted.max(floor).next_multiple_of(BLOCK_SIZE);
        match self.limit {
            Some(limit) if size > limit => Err(RangeError::TooSmall { limit: ByteSize(limit), min: ByteSize(size) }),
            _ => Ok(size),
        }
    }
}

/// A number of bytes that parses and prints like a Kubernetes quantity: `512Mi`, `10Gi`, `1500M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid size; expected a whole number with an optional suffix Ki, Mi, Gi, Ti, k, M, G or T, for example 100Gi"
)]
pub struct ParseByteSizeError;

const SUFFIXES: [(&str, u64); 8] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, ParseByteSizeError> {
        let suffix = SUFFIXES.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
        let (digits, unit) = suffix.unwrap_or((text, 1));
        // `parse` would accept a sign.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseByteSizeError);
        }
        let number: u64 = digits.parse().map_err(|_| ParseByteSizeError)?;
        number.checked_mul(unit).map(Self).ok_or(ParseByteSizeError)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = SUFFIXES.iter().take(4).find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match binary {
            Some((suffix, unit)) => write!(f, "{}{suffix}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(required: i64, limit: i64) -> Result<CapacityRange, RangeError> {
        CapacityRange::parse(Some(&proto::csi::CapacityRange { required_bytes: required, limit_bytes: limit }))
    }

    fn check_choice(required: u64, limit: u64, floor: u64, expected: Option<u64>) {
        let range = CapacityRange { required, limit: (limit > 0).then_some(limit) };
        assert_eq!(range.choose(floor, 100 * MIB).ok(), expected, "{required} to {limit}, at least {floor}");
    }

    #[test]
    fn size_is_the_required_one_in_whole_blocks() {
        check_choice(50 * MIB, 0, 0, Some(50 * MIB));
        check_choice(50 * MIB + 1, 0, 0, Some(50 * MIB + 4096));
        check_choice(0, 0, 0, Some(100 * MIB));
        check_choice(0, 60 * MIB, 0, Some(60 * MIB));
        check_choice(50 * MIB, 0, 70 * MIB, Some(70 * MIB));
    }

    #[test]
    fn small_sizes_are_raised_to_the_minimum_within_the_limit() {
        check_choice(1, 0, 0, Some(MIN_VOLUME_SIZE));
        check_choice(1, MIB, 0, None);
        check_choice(50 * MIB, 60 * MIB, 70 * MIB, None);
        check_choice(50 * MIB + 1, 50 * MIB + 1, 0, None);
    }

    #[test]
    fn impossible_ranges_are_rejected() {
        assert_eq!(range(-1, 0), Err(RangeError::Negative));
        assert_eq!(range(0, -1), Err(RangeError::Negative));
        assert!(matches!(range(2, 1), Err(RangeError::Empty { .. })));
        assert!(matches!(range(i64::MAX, 0), Err(RangeError::TooLarge { .. })));
        assert_eq!(CapacityRange::parse(None), Ok(CapacityRange::default()));
    }

    #[test]
    fn range_contains_sizes_between_its_bounds() {
        let range = CapacityRange { required: 10, limit: Some(20) };
        assert_eq!([9, 10, 20, 21].map(|size| range.contains(size)), [false, true, true, false]);
        assert!(CapacityRange::default().contains(1));
    }

    #[test]
    fn sizes_parse_and_print_like_quantities() {
        for (text, bytes) in [("0", 0), ("512Mi", 512 * MIB), ("10G", 10_000_000_000), ("3Ti", 3 << 40), ("7k", 7000)] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "Gi", "-1", "+1", "1.5Gi", "1 Gi", "1GiB", "99999999999Ti"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ParseByteSizeError), "{text}");
        }
        assert_eq!(ByteSize(10 << 30).to_string(), "10Gi");
        assert_eq!(ByteSize(1536 * MIB).to_string(), "1536Mi");
        assert_eq!(ByteSize(0).to_string(), "0");
    }
}
