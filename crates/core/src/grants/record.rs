//! What is learned about a flavor, as it is stored.

use odc_api::v1alpha1 as api;

use crate::scheduler::{Promises, Record, Stays};

pub(super) fn write(record: &Record) -> api::Record {
    let (waits, levels, given, kept) = record.promises.parts();
    api::Record {
        stays: record.stays.iter().map(|stays| api::Stays { counts: stays.counts().to_vec() }).collect(),
        promises: Some(api::KeptPromises {
            given,
            kept50: kept[0],
            kept90: kept[1],
            waits: waits.to_vec(),
            levels: levels.iter().map(|level| level.unsigned_abs()).collect(),
        }),
    }
}

/// Nothing for one of another size, of an older or newer operator: it is learned anew.
pub(super) fn read(stored: &api::Record) -> Option<Record> {
    let stays: Option<Vec<Stays>> = stored.stays.iter().map(|stays| Stays::of(&stays.counts)).collect();
    let promises = match &stored.promises {
        Some(kept) => {
            let levels: Option<Vec<i32>> = kept.levels.iter().map(|level| i32::try_from(*level).ok()).collect();
            Promises::of(&kept.waits, &levels?, kept.given, [kept.kept50, kept.kept90])?
        }
        None => Promises::default(),
    };
    Some(Record { stays: stays?.try_into().ok()?, promises })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_what_is_read() {
        let mut record = Record::default();
        for stay in [60, 600, 3_000] {
            record.left(3_600, stay);
            record.left(100_000, stay);
            let given = record.promises.give(stay, None);
            record.promises.learn(given, stay * 2);
        }
        assert_eq!(read(&write(&record)), Some(record));
    }

    #[test]
    fn a_record_of_another_size_is_learned_anew() {
        let mut stored = write(&Record::default());
        stored.stays.pop();
        assert_eq!(read(&stored), None);
        let mut stored = write(&Record::default());
        stored.stays[0].counts.push(1);
        assert_eq!(read(&stored), None);
        assert_eq!(read(&api::Record::default()), None);
    }
}
