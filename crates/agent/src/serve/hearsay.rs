//! What the library refuses before we are asked, for the log: certificates that are out of date or whose signature is wrong.
//! Everything else it says is about clients that talk nonsense, and not worth a line.

use std::sync::Arc;

use log::{LevelFilter, Log, Metadata, Record};

use crate::init::journal::Journal;

struct Hearsay(Arc<Journal>);

pub fn listen(journal: &Arc<Journal>) {
    // Somebody else may listen already; then nothing is missed.
    if log::set_boxed_logger(Box::new(Hearsay(Arc::clone(journal)))).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

impl Log for Hearsay {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= LevelFilter::Warn && metadata.target().starts_with("russh::server")
    }

    fn log(&self, record: &Record) {
        let text = record.args().to_string();
        if self.enabled(record.metadata()) && text.starts_with("Certificate ") {
            self.0.say(format!("refused somebody: {text}"));
        }
    }

    fn flush(&self) {}
}
