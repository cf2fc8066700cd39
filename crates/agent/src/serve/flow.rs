//! How much input a client may send ahead of the processes that read it, as decisions.
//!
//! The library gives a client new room as soon as its data arrives, not when it is consumed, and leaves us one number to
//! say: the size to which the window is filled up next time, for all channels of the connection alike. Not to read from
//! the connection until there is room would be no way out: the client's permission for our own output comes the same way,
//! and a process that waits for its output to be taken reads no input. So a client that is ahead is given hardly any room
//! at all, and has it back when its data is consumed.

/// Input of one channel that is kept without a second thought.
const PLENTY: usize = 1 << 20;

/// Input of one channel that is kept so that others on the same connection may go on.
const TOO_MUCH: usize = 16 << 20;

/// Input of one channel after which those who hand it on have their turn. One thread does everything, and reading from a
/// client that always has more would never end by itself.
const TURN: usize = 128 << 10;

/// The window of a new channel. When we ask for new keys, the client may have sent twice as much, on all channels together,
/// before it hears of it; what is more, the library takes for an attack. It is chosen so that buffers of a usual size in
/// between hold less.
pub const FIRST_WINDOW: u32 = 8 << 20;

/// What all channels together are given later, for the same reason.
const ALL_WINDOWS: u32 = 8 << 20;

const LARGEST_WINDOW: u32 = 4 << 20;

/// For a channel that is read while another one of the same connection is not: filled up too, whenever this one is. Also
/// the least that a channel has that is one of many.
const SMALL_WINDOW: u32 = 256 << 10;

/// The least that makes the client come back: it is filled up when it is used up.
const TRICKLE: u32 = 2;

/// The size of the next window, by what is kept for the channel it is given to, what is kept for the worst of all, and how
/// many there are.
pub fn window(own: usize, worst: usize, channels: usize) -> u32 {
    if own > PLENTY || worst > TOO_MUCH {
        return TRICKLE;
    }
    if worst > PLENTY {
        return SMALL_WINDOW;
    }
    let channels = u32::try_from(channels).unwrap_or(u32::MAX).max(1);
    (ALL_WINDOWS / channels).clamp(SMALL_WINDOW, LARGEST_WINDOW)
}

/// What comes before the next look at the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Read,
    /// Everybody else's turn, if there is anything to do.
    GiveWay,
    /// A pause: whoever should take the input does not.
    Rest,
}

/// By what is kept for the worst of all channels, and whether others had their turn since the last look.
pub fn pace(worst: usize, gave_way: bool) -> Pace {
    if worst > TURN && !gave_way {
        Pace::GiveWay
    } else if worst > PLENTY {
        Pace::Rest
    } else {
        Pace::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_read_has_a_large_window_and_many_share() {
        for (channels, mebibytes) in [(0, 4), (1, 4), (2, 4), (4, 2), (8, 1)] {
            assert_eq!(window(0, PLENTY, channels), mebibytes << 20, "{channels}");
        }
        assert_eq!(window(0, 0, 200), SMALL_WINDOW);
    }

    #[test]
    fn who_is_not_read_waits_and_others_hardly_notice() {
        assert_eq!(window(PLENTY + 1, PLENTY + 1, 1), TRICKLE);
        assert_eq!(window(0, PLENTY + 1, 2), SMALL_WINDOW);
    }

    #[test]
    fn a_client_that_is_ahead_pauses_only_if_nobody_takes_its_input() {
        assert_eq!(pace(TURN, false), Pace::Read);
        assert_eq!(pace(PLENTY + 1, false), Pace::GiveWay);
        assert_eq!(pace(PLENTY + 1, true), Pace::Rest);
        assert_eq!(pace(PLENTY, true), Pace::Read);
    }

    #[test]
    fn memory_is_bounded_whoever_else_wants_to_go_on() {
        assert_eq!(window(0, TOO_MUCH + 1, 2), TRICKLE);
    }

    #[test]
    fn a_client_is_never_left_without_a_reason_to_come_back() {
        for own in [0, PLENTY + 1, TOO_MUCH + 1] {
            // The library fills up below half of it, so it must be possible to be below.
            assert!(window(own, own, 1) / 2 >= 1);
        }
    }
}
