//! How many connections may be there that have not logged in, and who gives way to one more.
//!
//! Nobody is refused. Somebody who opens connections and keeps them would else lock the owner out, by filling all places
//! once. A client says who it is as soon as it is connected, so those who said nothing give way first.

/// More are not kept at a time.
const MOST: usize = 256;

/// Which of those who are there gives way to one more; `spoke` says of each whether it said anything yet. `dice` is a
/// random number.
pub fn gives_way(spoke: &[bool], dice: u32) -> Option<usize> {
    if spoke.len() < MOST {
        return None;
    }
    let silent = spoke.iter().filter(|spoke| !**spoke).count();
    let chosen = |count: usize| dice as usize % count;
    if silent == 0 {
        return Some(chosen(spoke.len()));
    }
    spoke.iter().enumerate().filter(|(_, spoke)| !**spoke).nth(chosen(silent)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn while_there_is_room_nobody_gives_way() {
        assert_eq!(gives_way(&[], 7), None);
        assert_eq!(gives_way(&[false; MOST - 1], 7), None);
        assert_eq!(gives_way(&[false; MOST], 7), Some(7));
    }

    #[test]
    fn who_is_logging_in_stays_while_anybody_is_silent() {
        let mut spoke = [true; MOST];
        spoke[9] = false;
        assert!((0..1000).all(|dice| gives_way(&spoke, dice) == Some(9)));
    }

    proptest! {
        #[test]
        fn it_is_somebody_who_is_there_and_silent_if_anybody_is(
            spoke in prop::collection::vec(any::<bool>(), MOST..MOST + 9), dice: u32,
        ) {
            let place = gives_way(&spoke, dice).unwrap();
            prop_assert!(!spoke[place] || spoke.iter().all(|spoke| *spoke));
        }
    }
}
