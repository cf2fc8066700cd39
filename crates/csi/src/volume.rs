//! Volumes and snapshots as values, and whether an existing one satisfies a repeated request.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::capacity::{ByteSize, CapacityRange};
use crate::name::{Name, ParseNameError};

/// What a volume was created from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Snapshot(Name),
    Volume(Name),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(name) => write!(f, "snapshot/{name}"),
            Self::Volume(name) => write!(f, "volume/{name}"),
        }
    }
}

impl FromStr for Source {
    type Err = ParseRecordError;

    fn from_str(text: &str) -> Result<Self, ParseRecordError> {
        match text.split_once('/') {
            Some(("snapshot", name)) => Ok(Self::Snapshot(name.parse()?)),
            Some(("volume", name)) => Ok(Self::Volume(name.parse()?)),
            _ => Err(ParseRecordError),
        }
    }
}

/// A value in the pool that this driver did not write.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("value not written by this driver")]
pub struct ParseRecordError;

impl From<ParseNameError> for ParseRecordError {
    fn from(_: ParseNameError) -> Self {
        Self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: Name,
    pub size: u64,
    pub source: Option<Source>,
}

/// Requested volume, validated.
#[derive(Debug, Clone)]
pub struct VolumeRequest {
    pub name: Name,
    pub range: CapacityRange,
    pub source: Option<Source>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub name: Name,
    /// Volume that the snapshot was taken of, which may be gone.
    pub volume: Name,
    /// Size of the volume at that time, the minimum for volumes restored from the snapshot.
    pub size: u64,
    pub created: Timestamp,
}

/// Reason for which an existing object does not satisfy a request of the same name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("volume {name} exists with size {size}, outside the requested range")]
    Size { name: Name, size: ByteSize },
    #[error("volume {name} exists with another content source")]
    Source { name: Name },
    #[error("snapshot {name} exists of another volume, {volume}")]
    Volume { name: Name, volume: Name },
}

impl VolumeRequest {
    /// Checks whether an existing volume of the same name is the requested one. A volume that was expanded since still
    /// satisfies its first request.
    pub fn check_existing(&self, existing: &Volume) -> Result<(), Conflict> {
        if self.source != existing.source {
            return Err(Conflict::Source { name: existing.name.clone() });
        }
        if !self.range.contains(existing.size) {
            return Err(Conflict::Size { name: existing.name.clone(), size: ByteSize(existing.size) });
        }
        Ok(())
    }
}

impl Snapshot {
    /// Checks whether this is the snapshot that was requested under the same name.
    pub fn check_source(&self, volume: &Name) -> Result<(), Conflict> {
        if self.volume == *volume {
            return Ok(());
        }
        Err(Conflict::Volume { name: self.name.clone(), volume: self.volume.clone() })
    }
}

/// Seconds and nanoseconds since 1970, stored as `SECONDS.NANOSECONDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp(Duration);

impl Timestamp {
    pub fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    pub fn to_proto(self) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(self.0.subsec_nanos()).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}

impl FromStr for Timestamp {
    type Err = ParseRecordError;

    fn from_str(text: &str) -> Result<Self, ParseRecordError> {
        let (seconds, nanos) = text.split_once('.').ok_or(ParseRecordError)?;
        let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000).ok_or(ParseRecordError)?;
        Ok(Self(Duration::new(seconds.parse().map_err(|_| ParseRecordError)?, nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn check(required: u64, limit: Option<u64>, source: Option<&str>, expected: &Result<(), Conflict>) {
        let existing = Volume { name: name("a"), size: 20, source: Some(Source::Volume(name("b"))) };
        let source = source.map(|source| source.parse().unwrap());
        let request = VolumeRequest { name: name("a"), range: CapacityRange { required, limit }, source };
        assert_eq!(request.check_existing(&existing), *expected);
    }

    #[test]
    fn repeated_request_is_satisfied_also_after_an_expansion() {
        check(20, Some(20), Some("volume/b"), &Ok(()));
        check(10, None, Some("volume/b"), &Ok(()));
        check(0, None, Some("volume/b"), &Ok(()));
    }

    #[test]
    fn request_with_other_size_or_source_conflicts() {
        let size = || Err(Conflict::Size { name: name("a"), size: ByteSize(20) });
        check(21, None, Some("volume/b"), &size());
        check(10, Some(10), Some("volume/b"), &size());
        for source in [None, Some("snapshot/b"), Some("volume/c")] {
            check(20, None, source, &Err(Conflict::Source { name: name("a") }));
        }
    }

    #[test]
    fn snapshot_of_another_volume_conflicts() {
        let snapshot = Snapshot { name: name("s"), volume: name("a"), size: 1, created: Timestamp::now() };
        assert_eq!(snapshot.check_source(&name("a")), Ok(()));
        assert_eq!(snapshot.check_source(&name("b")), Err(Conflict::Volume { name: name("s"), volume: name("a") }));
    }

    #[test]
    fn records_parse_as_written() {
        let now = Timestamp::now();
        assert_eq!(now.to_string().parse(), Ok(now));
        assert_eq!(
            "5.000000007".parse::<Timestamp>().map(Timestamp::to_proto).map(|time| (time.seconds, time.nanos)),
            Ok((5, 7))
        );
        for text in ["", "5", "5.x", "-1.0", "1.1000000000"] {
            assert_eq!(text.parse::<Timestamp>(), Err(ParseRecordError), "{text}");
        }
        for text in ["snapshot/s-1", "volume/v"] {
            assert_eq!(text.parse::<Source>().map(|source| source.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "volume", "volume/../x", "other/v"] {
            assert_eq!(text.parse::<Source>(), Err(ParseRecordError), "{text}");
        }
    }
}
