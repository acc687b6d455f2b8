//! Who is there, who may come, and who has to go for him. Pure.
//!
//! Whoever reaches the port can open connections and say nothing. So those that were not greeted yet are few, and a new one takes the
//! place of an old one: the oldest of the address that has most of them, so that who wants to keep others out pushes himself out.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use super::Limits;

/// Where somebody comes from: an IPv4 address, or a network of IPv6, of which one host can have all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Origin(IpAddr);

impl Origin {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                Self(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into())
            }
            address => Self(address),
        }
    }
}

/// A connection.
#[derive(Debug)]
struct Guest<T> {
    from: Origin,
    was_greeted: bool,
    /// It was told to go, and has not gone yet.
    has_to_go: bool,
    is: Arc<T>,
}

/// The connections, by numbers that rise.
#[derive(Debug)]
pub(super) struct Guests<T>(BTreeMap<u64, Guest<T>>);

impl<T> Default for Guests<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Whether one more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// There are too many.
    Full,
    /// There are too many from there.
    FullFromThere,
    /// It may; this one has to go for it.
    Comes { goes: Option<u64> },
}

impl<T> Guests<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|guest| &*guest.is)
    }

    /// Programs on the machine itself are not told apart, so the limit of one address is not for them.
    pub(super) fn entry(&self, address: IpAddr, limits: &Limits) -> Entry {
        // Those that have to go hold a thread until they have gone.
        if self.0.len() >= limits.connections {
            return Entry::Full;
        }
        let from = Origin::of(address);
        let staying = || self.0.iter().filter(|(_, guest)| !guest.has_to_go);
        let strangers = || staying().filter(|(_, guest)| !guest.was_greeted);
        if !from.0.is_loopback() && staying().filter(|(_, guest)| guest.from == from).count() >= limits.of_address {
            let oldest = strangers().find(|(_, guest)| guest.from == from);
            return oldest.map_or(Entry::FullFromThere, |(number, _)| Entry::Comes { goes: Some(*number) });
        }
        if strangers().count() < limits.strangers {
            return Entry::Comes { goes: None };
        }
        let mut of_each: HashMap<Origin, usize> = HashMap::new();
        strangers().for_each(|(_, guest)| *of_each.entry(guest.from).or_default() += 1);
        // Of several that have as many, the first that came.
        let goes = strangers().max_by_key(|(number, guest)| (of_each[&guest.from], std::cmp::Reverse(**number)));
        goes.map_or(Entry::Full, |(number, _)| Entry::Comes { goes: Some(*number) })
    }

    pub(super) fn come(&mut self, number: u64, address: IpAddr, is: Arc<T>) {
        let guest = Guest { from: Origin::of(address), was_greeted: false, has_to_go: false, is };
        self.0.insert(number, guest);
    }

    /// Who has to go.
    pub(super) fn send_away(&mut self, number: u64) -> Option<Arc<T>> {
        let guest = self.0.get_mut(&number)?;
        guest.has_to_go = true;
        Some(Arc::clone(&guest.is))
    }

    /// False where it has to go all the same: another one has got its place.
    pub(super) fn greet(&mut self, number: u64) -> bool {
        self.0.get_mut(&number).is_some_and(|guest| {
            guest.was_greeted = !guest.has_to_go;
            guest.was_greeted
        })
    }

    pub(super) fn go(&mut self, number: u64) {
        self.0.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: usize, strangers: usize, of_address: usize) -> Limits {
        Limits { connections, strangers, of_address, ..Limits::default() }
    }

    /// Guests from these addresses; those with a star were greeted.
    fn guests(from: &[&str]) -> Guests<()> {
        let mut guests = Guests::default();
        for (number, address) in (0..).zip(from) {
            guests.come(number, address.trim_end_matches('*').parse().unwrap(), Arc::new(()));
            assert!(!address.ends_with('*') || guests.greet(number));
        }
        guests
    }

    fn entry(there: &[&str], new: &str, limits: &Limits) -> Entry {
        guests(there).entry(new.parse().unwrap(), limits)
    }

    const fn for_it(number: u64) -> Entry {
        Entry::Comes { goes: Some(number) }
    }

    const FREE: Entry = Entry::Comes { goes: None };

    #[test]
    fn strangers_push_out_the_oldest_of_those_that_are_most() {
        let few = limits(100, 3, 100);
        assert_eq!(entry(&["10.0.0.1", "10.0.0.1"], "10.0.0.1", &few), FREE);
        assert_eq!(entry(&["10.0.0.1*", "10.0.0.1*", "10.0.0.1*"], "10.0.0.1", &few), FREE);
        assert_eq!(entry(&["10.0.0.2", "10.0.0.1", "10.0.0.1"], "10.0.0.3", &few), for_it(1));
        assert_eq!(entry(&["10.0.0.2", "10.0.0.1", "10.0.0.1"], "10.0.0.1", &few), for_it(1));
        assert_eq!(entry(&["10.0.0.3*", "10.0.0.1", "10.0.0.2", "10.0.0.4"], "10.0.0.3", &few), for_it(1));
        // Those that go already leave their places at once, though not their threads.
        let mut there = guests(&["10.0.0.1", "10.0.0.1", "10.0.0.1"]);
        assert!(there.send_away(0).is_some());
        assert_eq!(there.entry([10, 0, 0, 1].into(), &few), FREE);
        assert_eq!(there.entry([10, 0, 0, 1].into(), &limits(3, 3, 100)), Entry::Full);
        assert!(!there.greet(0) && there.greet(1), "it comes too late");
        there.go(0);
        assert_eq!(there.entry([10, 0, 0, 1].into(), &limits(3, 3, 100)), FREE);
    }

    #[test]
    fn one_address_has_only_so_many_and_of_those_the_strangers_go_first() {
        let two = limits(100, 100, 2);
        assert_eq!(entry(&["10.0.0.1*", "10.0.0.1*"], "10.0.0.1", &two), Entry::FullFromThere);
        assert_eq!(entry(&["10.0.0.1*", "10.0.0.1*"], "10.0.0.2", &two), FREE);
        assert_eq!(entry(&["10.0.0.1*", "10.0.0.1"], "10.0.0.1", &two), for_it(1));
        assert_eq!(entry(&["10.0.0.1*", "10.0.0.1*"], "::ffff:10.0.0.1", &two), Entry::FullFromThere);
        // A host of IPv6 has as many addresses as it likes.
        assert_eq!(entry(&["fd00::1*", "fd00::2*"], "fd00::3", &two), Entry::FullFromThere);
        assert_eq!(entry(&["fd00::1*", "fd00::2*"], "fd00:0:0:1::3", &two), FREE);
        for own in ["127.0.0.1", "::1"] {
            assert_eq!(entry(&["127.0.0.1*", "127.0.0.1*", "::1*", "::1*"], own, &two), FREE);
        }
    }
}
