//! Forwards log records of russh about certificates that it rejects itself, because they are not valid at this time or
//! have a wrong signature. Its other records are about malformed traffic and are dropped.

use std::sync::Arc;

use log::{LevelFilter, Log, Metadata, Record};

use crate::log::Logger;

struct RusshLogBridge(Arc<Logger>);

pub fn install(logger: &Arc<Logger>) {
    // Fails if a logger is installed already.
    if log::set_boxed_logger(Box::new(RusshLogBridge(Arc::clone(logger)))).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

impl Log for RusshLogBridge {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= LevelFilter::Warn && metadata.target().starts_with("russh::server")
    }

    fn log(&self, record: &Record) {
        let text = record.args().to_string();
        if self.enabled(record.metadata()) && text.starts_with("Certificate ") {
            self.0.log(format!("rejected login: {text}"));
        }
    }

    fn flush(&self) {}
}
