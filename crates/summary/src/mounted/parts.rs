//! Whether something is counted in more than one part of a directory, each of which was counted by itself: what lies in it, and what is
//! mounted below.

use std::path::Path;

use super::{Mounted, Place};

/// How it was found what a part comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// A server told it, without what is mounted below.
    #[default]
    Told,
    /// It was walked, with what is mounted below.
    Walked,
    /// It is no directory.
    File,
}

/// The parts so far.
#[derive(Debug)]
pub struct Parts<'a> {
    mounted: &'a Mounted,
    parts: Vec<Part>,
    walked: Vec<&'a Path>,
    may_count_twice: bool,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    file_system: u64,
    /// Something in it has names elsewhere.
    leads_out: bool,
    is_file: bool,
}

impl Part {
    /// Whether an inode may be counted in both. All other names of a file that is mounted somewhere may lie in one directory, of which none
    /// leads out then.
    fn may_share(&self, other: &Part) -> bool {
        let may_hold = |part: &Part, other: &Part| part.leads_out && (other.leads_out || part.is_file);
        self.file_system == other.file_system && (may_hold(self, other) || may_hold(other, self))
    }
}

impl<'a> Parts<'a> {
    /// Of what lies in the directory itself; whether something of that has names elsewhere.
    pub fn begin(mounted: &'a Mounted, leads_out: bool) -> Parts<'a> {
        let own = mounted.own.map(|file_system| Part { file_system, leads_out, is_file: false });
        Parts { mounted, parts: own.into_iter().collect(), walked: Vec::new(), may_count_twice: false }
    }

    /// Whether a place lies in another one that was walked, and counted there.
    pub fn hold(&self, place: &Place) -> bool {
        self.walked.iter().any(|walked| place.below.starts_with(walked))
    }

    /// One more part: what a place comes to, and whether something of that has names elsewhere.
    pub fn add(&mut self, place: &'a Place, how: How, leads_out: bool) {
        let part = |of: &Place| Part { file_system: of.file_system, leads_out, is_file: how == How::File };
        let mut new = vec![part(place)];
        if how == How::Walked {
            new.extend(self.mounted.further_in(&place.below).map(part));
            self.may_count_twice |= self.mounted.counts_elsewhere(&place.below);
            self.walked.push(&place.below);
        }
        self.may_count_twice |= self.parts.iter().any(|part| new.iter().any(|new| part.may_share(new)));
        self.parts.extend(new);
    }

    /// Only a walk of all of it tells then what it comes to.
    pub fn may_count_twice(&self) -> bool {
        self.may_count_twice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether something may count twice in a directory of file system 1 and in one that is mounted in it.
    fn may_count_twice(leads_out: bool, (file_system, how, place_leads_out): (u64, How, bool)) -> bool {
        let place = Place { below: "in".into(), file_system };
        let mounted = Mounted { own: Some(1), places: vec![place], again: Vec::new() };
        let mut parts = Parts::begin(&mounted, leads_out);
        parts.add(&mounted.places[0], how, place_leads_out);
        parts.may_count_twice()
    }

    #[test]
    fn inodes_may_be_shared_where_names_lead_from_one_part_to_another() {
        for (leads_out, place, expected) in [
            (true, (1, How::Told, true), true),
            (true, (2, How::Told, true), false),
            (true, (1, How::Told, false), false),
            (false, (1, How::Told, true), false),
            (false, (1, How::Told, false), false),
            // A file with several names, and the directory that has all others.
            (false, (1, How::File, true), true),
            (true, (2, How::File, true), false),
            (true, (1, How::File, false), false),
        ] {
            assert_eq!(may_count_twice(leads_out, place), expected, "{leads_out} {place:?}");
        }
    }

    #[test]
    fn who_walks_comes_to_what_is_mounted_further_in() {
        let place = |below: &str, file_system| Place { below: below.into(), file_system };
        let places = vec![place("a", 2), place("a/in", 3), place("b", 3)];
        let mounted = |again: Vec<Place>| Mounted { own: Some(1), places: places.clone(), again };
        let twice = |mounted: &Mounted, leads_out| {
            let mut parts = Parts::begin(mounted, false);
            parts.add(&mounted.places[0], How::Walked, leads_out);
            assert!(parts.hold(&mounted.places[1]) && !parts.hold(&mounted.places[2]));
            parts.add(&mounted.places[2], How::Told, true);
            parts.may_count_twice()
        };
        assert!(twice(&mounted(Vec::new()), true), "what lies in the one further in may have a name in the other one");
        assert!(!twice(&mounted(Vec::new()), false));
        assert!(twice(&mounted(vec![place("a/again", 1)]), false), "it counts in the directory itself, too");
        assert!(!twice(&mounted(vec![place("a/again", 2)]), false), "the walk has met it before");
    }
}
