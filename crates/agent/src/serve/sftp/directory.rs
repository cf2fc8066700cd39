//! Listings: the entries of a directory in portions, each with a line as `ls -l` prints it.

use std::io;

use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};

use crate::serve::sftp::attributes::Attributes;
use crate::serve::sftp::packet::Entry;

/// Entries in one answer. A name has at most 255 bytes, so they fit into a packet.
const PORTION: usize = 128;

/// The next ones; none at the end.
pub fn next(directory: &mut Dir) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while entries.len() < PORTION {
        let Some(entry) = directory.read().transpose()? else { break };
        let name = entry.file_name().to_bytes().to_vec();
        // One that vanished meanwhile has a name and nothing else.
        let stat = statat(directory.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let line = stat.as_ref().map_or_else(|| name.clone(), |stat| line(stat, &name));
        entries.push(Entry { name, line, attributes: stat.as_ref().map(Attributes::from).unwrap_or_default() });
    }
    Ok(entries)
}

fn line(stat: &Stat, name: &[u8]) -> Vec<u8> {
    let (mode, links, size) = (mode(stat.st_mode), stat.st_nlink, stat.st_size);
    let date = date(stat.st_mtime);
    let mut line = format!("{mode} {links:>3} {:<8} {:<8} {size:>8} {date} ", stat.st_uid, stat.st_gid).into_bytes();
    line.extend_from_slice(name);
    line
}

fn mode(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Day and year, in UTC: what zone the reader is in, nobody told us.
fn date(seconds: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // Days since 1 March 0000, so that the leap day is a year's last.
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + era * 400 + i64::from(month >= 10);
    let name = MONTHS[usize::try_from((month + 2) % 12).unwrap_or_default()];
    format!("{name} {day:>2} {year:>5}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "Jan  1  1970"),
            (951_782_400, "Feb 29  2000"),
            (951_868_800, "Mar  1  2000"),
            (1_798_761_599, "Dec 31  2026"),
            (-1, "Dec 31  1969"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn modes_are_written_as_everywhere() {
        for (bits, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "lrwxrwxrwx"),
            (0o104_755, "-rwsr-xr-x"),
            (0o041_777, "drwxrwxrwt"),
            (0o102_644, "-rw-r-Sr--"),
        ] {
            assert_eq!(mode(bits), text);
        }
    }
}
