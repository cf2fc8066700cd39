//! Estimated start times: a second plan with expected instead of maximum runtimes, corrected by past estimates.

mod backlog;
pub(super) mod forecast;
pub(super) mod history;
