//! Connections at the same time: no user gets all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// All together.
const ALL: usize = 256;
/// Of one user, but for root.
const OF_ONE: usize = 32;
/// Of which none but root gets the last ones.
const FOR_ROOT: usize = 32;

/// How many each user has.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<u32, usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    uid: u32,
}

impl Places {
    /// One more for a user, if there is one.
    pub(super) fn take(places: &Arc<Places>, uid: u32) -> Option<Place> {
        let mut taken = places.taken();
        let all: usize = taken.values().sum();
        let own = taken.get(&uid).copied().unwrap_or(0);
        let is_free = if uid == 0 { all < ALL } else { all < ALL - FOR_ROOT && own < OF_ONE };
        is_free.then(|| {
            taken.insert(uid, own + 1);
            Place { places: Arc::clone(places), uid }
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        match taken.get_mut(&self.uid) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_gets_all() {
        let places = Arc::new(Places::default());
        let take =
            |uid: u32, count: usize| -> Vec<Place> { (0..count).map_while(|_| Places::take(&places, uid)).collect() };
        let mut of_one = take(7, 300);
        assert_eq!((of_one.len(), take(8, 5).len()), (OF_ONE, 5));
        of_one.truncate(30);
        assert_eq!(take(7, 300).len(), 2);
        let others: Vec<Place> = (100..200).flat_map(|uid| take(uid, 300)).collect();
        assert_eq!(of_one.len() + others.len(), ALL - FOR_ROOT);
        assert_eq!((take(8, 1).len(), take(0, 300).len()), (0, FOR_ROOT));
        drop((of_one, others));
        assert_eq!(take(0, 300).len(), ALL);
        assert!(places.taken().is_empty());
    }
}
