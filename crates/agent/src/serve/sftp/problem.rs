//! What went wrong, in the protocol's few words and in the system's own.

use std::io;

use rustix::io::Errno;

pub const OK: u32 = 0;
pub const END: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const PERMISSION_DENIED: u32 = 3;
const FAILURE: u32 = 4;
const BAD_MESSAGE: u32 = 5;
const UNSUPPORTED: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: u32,
    pub text: String,
}

impl Status {
    pub fn ok() -> Self {
        Self { code: OK, text: "done".to_owned() }
    }

    pub fn end() -> Self {
        Self { code: END, text: "no more".to_owned() }
    }

    pub fn unsupported() -> Self {
        Self { code: UNSUPPORTED, text: "this server does not know that request".to_owned() }
    }
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        let code = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP => NO_SUCH_FILE,
            Errno::PERM | Errno::ACCESS | Errno::ROFS => PERMISSION_DENIED,
            Errno::NAMETOOLONG | Errno::INVAL => BAD_MESSAGE,
            Errno::NOSYS | Errno::OPNOTSUPP => UNSUPPORTED,
            _ => FAILURE,
        };
        let text = io::Error::from(errno).to_string();
        // Without the number, which is of this system.
        let text = text.split(" (os error").next().unwrap_or_default().to_owned();
        Self { code, text }
    }
}

impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self { code: FAILURE, text: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_words_are_kept() {
        for (errno, code, text) in [
            (Errno::NOENT, NO_SUCH_FILE, "No such file or directory"),
            (Errno::NOSPC, FAILURE, "No space left on device"),
            (Errno::ROFS, PERMISSION_DENIED, "Read-only file system"),
            (Errno::LOOP, NO_SUCH_FILE, "Too many levels of symbolic links"),
            (Errno::NAMETOOLONG, BAD_MESSAGE, "File name too long"),
        ] {
            assert_eq!(Status::from(errno), Status { code, text: text.to_owned() });
        }
    }
}
