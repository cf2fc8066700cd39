//! Flow control of input: how much a client may send before its data is consumed. No I/O.
//!
//! russh extends a channel's window as soon as data arrives, not when it is consumed, and offers one control: the size
//! to which the window is extended next. Not reading from the connection is no alternative: window adjustments for the
//! server's output arrive on the same connection, and a process that waits for its output to be taken reads no input.
//! So a client whose data is not consumed gets a minimal window, and a larger one when it is.

/// Buffered input of one channel above which its window shrinks.
const LOW_WATERMARK: usize = 1 << 20;

/// Buffered input of one channel above which the windows of all channels of the connection shrink.
const HIGH_WATERMARK: usize = 16 << 20;

/// Buffered input of one channel after which its consumers are scheduled. All tasks share one thread, and reading from
/// a fast client would never yield.
const YIELD_AFTER: usize = 128 << 10;

/// Initial window of a channel. When the server starts a key exchange, the client may have sent twice as much, on all
/// channels together, before it learns of it; russh treats more than that as an attack. The value exceeds usual socket
/// buffers.
pub const INITIAL_WINDOW: u32 = 8 << 20;

/// Total of all later windows of a connection, for the same reason.
const TOTAL_WINDOW: u32 = 8 << 20;

const MAX_WINDOW: u32 = 4 << 20;

/// Window of a channel while another one of the connection is above the low watermark. Also the minimum share of a
/// channel among many.
const SHARED_WINDOW: u32 = 256 << 10;

/// The smallest window that russh extends when it is used up.
const MIN_WINDOW: u32 = 2;

/// Returns the next window of a channel, given its own buffered bytes, those of the fullest channel, and the number of
/// channels.
pub fn window_size(buffered: usize, largest: usize, channels: usize) -> u32 {
    if buffered > LOW_WATERMARK || largest > HIGH_WATERMARK {
        return MIN_WINDOW;
    }
    if largest > LOW_WATERMARK {
        return SHARED_WINDOW;
    }
    let channels = u32::try_from(channels).unwrap_or(u32::MAX).max(1);
    (TOTAL_WINDOW / channels).clamp(SHARED_WINDOW, MAX_WINDOW)
}

/// What to do before the next read from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAction {
    Read,
    /// Let other tasks run.
    Yield,
    /// Wait, because the input is not consumed.
    Delay,
}

/// Decides by the bytes buffered for the fullest channel, and whether other tasks ran since the last read.
pub fn read_action(largest: usize, yielded: bool) -> ReadAction {
    if largest > YIELD_AFTER && !yielded {
        ReadAction::Yield
    } else if largest > LOW_WATERMARK {
        ReadAction::Delay
    } else {
        ReadAction::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumed_channels_share_the_total_window() {
        for (channels, mebibytes) in [(0, 4), (1, 4), (2, 4), (4, 2), (8, 1)] {
            assert_eq!(window_size(0, LOW_WATERMARK, channels), mebibytes << 20, "{channels}");
        }
        assert_eq!(window_size(0, 0, 200), SHARED_WINDOW);
    }

    #[test]
    fn unconsumed_channel_gets_the_minimum_and_others_a_smaller_window() {
        assert_eq!(window_size(LOW_WATERMARK + 1, LOW_WATERMARK + 1, 1), MIN_WINDOW);
        assert_eq!(window_size(0, LOW_WATERMARK + 1, 2), SHARED_WINDOW);
    }

    #[test]
    fn reading_is_delayed_only_if_input_is_not_consumed_after_a_yield() {
        assert_eq!(read_action(YIELD_AFTER, false), ReadAction::Read);
        assert_eq!(read_action(LOW_WATERMARK + 1, false), ReadAction::Yield);
        assert_eq!(read_action(LOW_WATERMARK + 1, true), ReadAction::Delay);
        assert_eq!(read_action(LOW_WATERMARK, true), ReadAction::Read);
    }

    #[test]
    fn high_watermark_limits_all_channels() {
        assert_eq!(window_size(0, HIGH_WATERMARK + 1, 2), MIN_WINDOW);
    }

    #[test]
    fn window_is_never_too_small_to_be_extended() {
        for buffered in [0, LOW_WATERMARK + 1, HIGH_WATERMARK + 1] {
            // russh extends a window that is below half of its size, so that must be possible.
            assert!(window_size(buffered, buffered, 1) / 2 >= 1);
        }
    }
}
