//! Authentication: authorized keys and certificates.

pub mod access;
pub mod certificate;
pub mod key_list;
