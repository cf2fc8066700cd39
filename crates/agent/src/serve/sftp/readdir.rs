//! Directory entries in batches, each with a line in the format of `ls -l`.

use std::io;

use jiff::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};

use crate::serve::sftp::attrs::FileAttrs;
use crate::serve::sftp::packet::Entry;

/// Entries per response. A name has at most 255 bytes, so the response fits into a packet.
const BATCH_SIZE: usize = 128;

/// Returns the next entries; none at the end.
pub fn next_batch(directory: &mut Dir) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while entries.len() < BATCH_SIZE {
        let Some(entry) = directory.read().transpose()? else { break };
        let name = entry.file_name().to_bytes().to_vec();
        // An entry that was removed in between has only a name.
        let stat = statat(directory.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let long_name = stat.as_ref().map_or_else(|| name.clone(), |stat| long_name(stat, &name));
        entries.push(Entry { name, long_name, attrs: stat.as_ref().map(FileAttrs::from).unwrap_or_default() });
    }
    Ok(entries)
}

fn long_name(stat: &Stat, name: &[u8]) -> Vec<u8> {
    let (mode, links, size) = (format_mode(stat.st_mode), stat.st_nlink, stat.st_size);
    let date = format_date(stat.st_mtime);
    let mut line = format!("{mode} {links:>3} {:<8} {:<8} {size:>8} {date} ", stat.st_uid, stat.st_gid).into_bytes();
    line.extend_from_slice(name);
    line
}

fn format_mode(mode: u32) -> String {
    let file_type = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let mut text = String::from(file_type);
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

/// Returns month, day and year in UTC; the time zone of the client is unknown.
fn format_date(seconds: i64) -> String {
    let seconds = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(seconds).unwrap_or_default().strftime("%b %e  %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted_in_utc() {
        for (seconds, text) in [
            (0, "Jan  1  1970"),
            (951_782_400, "Feb 29  2000"),
            (951_868_800, "Mar  1  2000"),
            (1_798_761_599, "Dec 31  2026"),
            (-1, "Dec 31  1969"),
            (i64::MAX, "Dec 30  9999"),
        ] {
            assert_eq!(format_date(seconds), text);
        }
    }

    #[test]
    fn modes_are_formatted_like_ls() {
        for (bits, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "lrwxrwxrwx"),
            (0o104_755, "-rwsr-xr-x"),
            (0o041_777, "drwxrwxrwt"),
            (0o102_644, "-rw-r-Sr--"),
        ] {
            assert_eq!(format_mode(bits), text);
        }
    }
}
