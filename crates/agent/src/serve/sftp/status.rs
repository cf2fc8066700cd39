//! Status codes, draft-ietf-secsh-filexfer-02 section 7.

use std::io;

use rustix::io::Errno;

pub const SSH_FX_OK: u32 = 0;
pub const SSH_FX_EOF: u32 = 1;
pub const SSH_FX_NO_SUCH_FILE: u32 = 2;
pub const SSH_FX_PERMISSION_DENIED: u32 = 3;
pub const SSH_FX_FAILURE: u32 = 4;
pub const SSH_FX_BAD_MESSAGE: u32 = 5;
pub const SSH_FX_OP_UNSUPPORTED: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: u32,
    pub message: String,
}

impl Status {
    pub fn ok() -> Self {
        Self { code: SSH_FX_OK, message: "Success".to_owned() }
    }

    pub fn eof() -> Self {
        Self { code: SSH_FX_EOF, message: "End of file".to_owned() }
    }

    pub fn unsupported() -> Self {
        Self { code: SSH_FX_OP_UNSUPPORTED, message: "Operation unsupported".to_owned() }
    }
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        let code = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP => SSH_FX_NO_SUCH_FILE,
            Errno::PERM | Errno::ACCESS | Errno::ROFS => SSH_FX_PERMISSION_DENIED,
            Errno::NAMETOOLONG | Errno::INVAL => SSH_FX_BAD_MESSAGE,
            Errno::NOSYS | Errno::OPNOTSUPP => SSH_FX_OP_UNSUPPORTED,
            _ => SSH_FX_FAILURE,
        };
        let message = io::Error::from(errno).to_string();
        // Without the error number, which is specific to this system.
        let message = message.split(" (os error").next().unwrap_or_default().to_owned();
        Self { code, message }
    }
}

impl From<io::Error> for Status {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self { code: SSH_FX_FAILURE, message: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_mapped_to_code_and_message() {
        for (errno, code, message) in [
            (Errno::NOENT, SSH_FX_NO_SUCH_FILE, "No such file or directory"),
            (Errno::NOSPC, SSH_FX_FAILURE, "No space left on device"),
            (Errno::ROFS, SSH_FX_PERMISSION_DENIED, "Read-only file system"),
            (Errno::LOOP, SSH_FX_NO_SUCH_FILE, "Too many levels of symbolic links"),
            (Errno::NAMETOOLONG, SSH_FX_BAD_MESSAGE, "File name too long"),
        ] {
            assert_eq!(Status::from(errno), Status { code, message: message.to_owned() });
        }
    }
}
