//! Files that are not in memory, among those that are.

use std::path::PathBuf;

use crate::host::Stays;
use crate::places::{Places, Run};
use crate::survey::Candidate;

/// Blocks of a file that may lie between two others: what the paper calls small.
const LIKELY_BLOCKS: u64 = 12;

/// The files of a directory in its order; `None` for one of which nothing is known.
///
/// Where one such was listed between two files that have a gap between them as large as it may be, it is taken to lie there: files
/// that lie side by side with it are not to be torn from it. Anywhere else it is as if it was not there.
pub(super) fn with_unseen(files: impl IntoIterator<Item = Option<Candidate>>) -> Vec<Candidate> {
    let (mut all, mut end, mut unseen) = (Vec::new(), None, 0);
    for file in files {
        let Some(file) = file else {
            unseen += 1;
            continue;
        };
        if let (Some(from), Some(to)) = (end, file.places.first()) {
            all.extend(between(from, to, unseen));
        }
        if let Some(own) = file.places.end() {
            (end, unseen) = (Some(own), 0);
        }
        all.push(file);
    }
    all
}

fn between(from: u64, to: u64, unseen: u64) -> Option<Candidate> {
    let gap = to.checked_sub(from).filter(|&gap| gap > 0 && gap <= unseen * LIKELY_BLOCKS)?;
    let places = Places::of([Run { logical: 0, place: from, blocks: gap }])?;
    Some(Candidate::new(PathBuf::new(), 0, places, Some(Stays::NotCached)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{Item, Rules, plan};

    fn file(place: u64, blocks: u64) -> Option<Candidate> {
        let places = Places::of([Run { logical: 0, place, blocks }]).unwrap();
        Some(Candidate::new("file".into(), 1, places, None))
    }

    fn drawn(files: impl IntoIterator<Item = Option<Candidate>>) -> Vec<(u64, u64, bool)> {
        let told = |file: Candidate| (file.places.first().unwrap(), file.places.blocks(), file.stays.is_none());
        with_unseen(files).into_iter().map(told).collect()
    }

    #[test]
    fn an_unseen_file_fills_a_gap_of_its_size() {
        assert_eq!(drawn([file(10, 2), None, file(16, 3)]), [(10, 2, true), (12, 4, false), (16, 3, true)]);
        assert_eq!(drawn([file(10, 2), None, file(24, 3)]).len(), 3);
        assert_eq!(drawn([file(10, 2), None, file(25, 3)]).len(), 2, "no small file is as large");
        assert_eq!(drawn([file(10, 2), None, None, file(25, 3)]).len(), 3, "but two may be");
    }

    #[test]
    fn elsewhere_it_is_as_if_it_was_not_there() {
        assert_eq!(drawn([None, file(10, 2), None]), [(10, 2, true)]);
        assert_eq!(drawn([file(16, 2), None, file(10, 3)]).len(), 2, "the next one lies before");
        assert_eq!(drawn([file(10, 2), None, file(12, 3)]).len(), 2, "there is no gap");
        assert_eq!(drawn([file(10, 2), file(13, 3)]).len(), 2, "nothing was listed between them");
    }

    /// Every second file of a directory that lies in order is in memory: nothing is to be moved.
    #[test]
    fn what_lies_in_order_stays_though_half_of_it_is_unseen() {
        let half = (0..40).map(|number| if number % 2 == 0 { file(number * 4, 4) } else { None });
        let files = with_unseen(half);
        let items: Vec<Item<'_>> = files.iter().map(Candidate::item).collect();
        assert!(plan(&items, &Rules::for_regions(64)).regions.is_empty());
        let seen: Vec<Item<'_>> = items.into_iter().filter(|item| item.may_move).collect();
        assert!(!plan(&seen, &Rules::for_regions(64)).regions.is_empty(), "but for what is between");
    }
}
