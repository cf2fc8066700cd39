//! Reads files up to a size limit, because the agent does not control their size.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Returns the content of a file, at most its first `max_bytes`.
pub fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?, max_bytes)
}

/// Returns the end of a file, at most its last `max_bytes`. Invalid UTF-8 is replaced.
pub fn read_tail(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max_bytes)))?;
    Ok(String::from_utf8_lossy(&read_from(file, max_bytes)?).into_owned())
}

/// Returns the rest of an open file, at most `max_bytes`.
pub fn read_from(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(max_bytes).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_end_of_a_long_file_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_bounded(&file, 4).unwrap(), b"0123");
        assert_eq!(read_tail(&file, 4).unwrap(), "6789");
        assert_eq!(read_bounded(&file, 20).unwrap(), b"0123456789");
        assert_eq!(read_tail(&file, 20).unwrap(), "0123456789");
        assert!(read_tail(&dir.path().join("missing"), 4).is_err());
    }
}
