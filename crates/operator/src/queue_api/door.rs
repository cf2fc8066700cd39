//! Who may begin a handshake. It costs us a key exchange before we know anything about whoever knocks, so everybody has
//! a limit of their own: one noisy neighbour does not keep the API server waiting outside.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// At once, from everywhere.
const ALL: usize = 256;
/// At once, from one place. An API server greets us with as many as it has questions.
const OF_ONE: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct Door(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Somebody whose handshake is not over, for as long as this is kept.
#[derive(Debug)]
pub struct Knock {
    door: Door,
    from: IpAddr,
}

impl Door {
    /// Nothing if too many knock already.
    pub fn enter(&self, from: IpAddr) -> Option<Knock> {
        let from = neighbourhood(from);
        let mut knocking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if knocking.values().sum::<usize>() >= ALL {
            return None;
        }
        let count = knocking.entry(from).or_default();
        if *count >= OF_ONE {
            return None;
        }
        *count += 1;
        Some(Knock { door: self.clone(), from })
    }
}

impl Drop for Knock {
    fn drop(&mut self) {
        let mut knocking = self.door.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = knocking.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                knocking.remove(&self.from);
            }
        }
    }
}

/// One machine has as many IPv6 addresses as it likes, all with the same beginning.
fn neighbourhood(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        from @ IpAddr::V4(_) => from,
        IpAddr::V6(from) => IpAddr::V6(Ipv6Addr::from_bits(from.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn one_place_does_not_take_what_is_left_to_others() {
        let door = Door::default();
        let (noisy, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut inside: Vec<Knock> = (0..OF_ONE).filter_map(|_| door.enter(noisy)).collect();
        assert_eq!(inside.len(), OF_ONE);
        assert!(door.enter(noisy).is_none());
        assert!(door.enter(other).is_some());
        inside.pop();
        assert!(door.enter(noisy).is_some());
    }

    #[test]
    fn all_together_have_a_limit_and_nothing_is_kept_of_those_who_left() {
        let door = Door::default();
        let all: Vec<_> = (0..300).map(|number| door.enter(Ipv4Addr::from_bits(number).into())).collect();
        assert_eq!(all.iter().flatten().count(), ALL);
        drop(all);
        assert!(door.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_machine_is_one_place_whatever_address_it_takes() {
        let place = |text: &str| neighbourhood(text.parse().unwrap());
        assert_eq!(place("fd00:1:2:3::1"), place("fd00:1:2:3:aaaa::2"));
        assert_ne!(place("fd00:1:2:3::1"), place("fd00:1:2:4::1"));
        assert_eq!(place("::ffff:10.0.0.1"), place("10.0.0.1"));
        assert_ne!(place("10.0.0.1"), place("10.0.0.2"));
    }
}
