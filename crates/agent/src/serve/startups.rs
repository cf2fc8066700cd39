//! How many connections may be there that have not logged in. As with sshd's `MaxStartups`, some are refused at random
//! before all are, so that a flood of strangers does not lock the owner out.

/// Up to here, everybody is let in.
const FREE: u32 = 64;

/// From here on, nobody is.
const FULL: u32 = 256;

/// `dice` is a random number.
pub fn refuses(unauthenticated: u32, dice: u32) -> bool {
    match unauthenticated {
        0..FREE => false,
        FREE..FULL => {
            // From three in ten at the beginning to all at the end.
            let share = 30 + 70 * (unauthenticated - FREE) / (FULL - FREE);
            dice % 100 < share
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(unauthenticated: u32) -> usize {
        (0..100).filter(|dice| refuses(unauthenticated, *dice)).count()
    }

    #[test]
    fn few_are_let_in_and_many_are_refused() {
        assert_eq!(refused(0), 0);
        assert_eq!(refused(FREE - 1), 0);
        assert_eq!(refused(FREE), 30);
        assert_eq!(refused(u32::MAX), 100);
    }

    #[test]
    fn the_more_there_are_the_fewer_are_let_in_and_none_only_when_it_is_full() {
        let shares: Vec<usize> = (FREE..FULL).map(refused).collect();
        assert!(shares.is_sorted());
        assert!(shares.iter().all(|share| *share < 100));
    }
}
