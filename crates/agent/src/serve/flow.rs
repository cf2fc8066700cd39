//! How much input a client may send ahead of the processes that read it, as decisions.
//!
//! The library gives a client new room as soon as its data arrives, not when it is consumed, and leaves us one number to
//! say: the size to which the window is filled up next time, for all channels of the connection alike. Not to read from
//! the connection until there is room would be no way out: the client's permission for our own output comes the same way,
//! and a process that waits for its output to be taken reads no input. So a client that is ahead is given hardly any room
//! at all, and has it back when its data is consumed.

/// Input of one channel that is kept without a second thought.
pub const PLENTY: usize = 1 << 20;

/// Input of one channel that is kept so that others on the same connection may go on.
const TOO_MUCH: usize = 16 << 20;

/// The window of a new channel, and of one whose input is taken as it comes.
pub const WINDOW: u32 = 2 << 20;

/// For a channel that is read while another one of the same connection is not: filled up too, whenever this one is.
const SHARED: u32 = 256 << 10;

/// The least that makes the client come back: it is filled up when it is used up.
const TRICKLE: u32 = 2;

/// The size of the next window, by what is kept for the channel it is given to and what is kept for the worst of all.
pub fn window(own: usize, worst: usize) -> u32 {
    if own > PLENTY || worst > TOO_MUCH {
        TRICKLE
    } else if worst > PLENTY {
        SHARED
    } else {
        WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_read_has_a_full_window() {
        assert_eq!(window(0, 0), WINDOW);
        assert_eq!(window(PLENTY, PLENTY), WINDOW);
    }

    #[test]
    fn who_is_not_read_waits_and_others_hardly_notice() {
        assert_eq!(window(PLENTY + 1, PLENTY + 1), TRICKLE);
        assert_eq!(window(0, PLENTY + 1), SHARED);
    }

    #[test]
    fn memory_is_bounded_whoever_else_wants_to_go_on() {
        assert_eq!(window(0, TOO_MUCH + 1), TRICKLE);
    }

    #[test]
    fn a_client_is_never_left_without_a_reason_to_come_back() {
        for own in [0, PLENTY + 1, TOO_MUCH + 1] {
            // The library fills up below half of it, so it must be possible to be below.
            assert!(window(own, own) / 2 >= 1);
        }
    }
}
