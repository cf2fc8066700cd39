//! Authentication: authorized keys and certificates.

pub mod access_list;
pub mod certificate;
pub mod key_list;
