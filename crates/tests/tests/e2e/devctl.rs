//! devctl as people use it: its real executable, with the rights of a user and no more.

mod keys;
mod life;
mod person;
mod queue;
mod submit;
mod terminal;
mod trouble;
mod ways;
