//! The orders of figure 5 of the qtar paper, as orders of a plan.

use std::collections::HashMap;

use onesweep_layout::AddressTrust;

use super::Root;
use crate::{
    catalogue::{Catalogue, EntryId},
    order::Order,
    plan::{Strategy, SweepOrder},
    settings::Settings,
    walk::WalkOrder,
};

/// The order for roots on one spindle, and why it is not by fragment.
pub(super) fn choose(settings: &Settings, roots: &[Root]) -> (Order, Option<String>) {
    let wanted = match (settings.order, settings.strategy()) {
        (Order::Auto, Strategy::Vanilla) => Order::Directory,
        (order, _) => order,
    };
    let seekless = roots.iter().all(|root| root.placement.is_seekless());
    let meaningless = roots.iter().map(|root| &root.placement.trust).find(|trust| !trust.is_order());
    resolve(wanted, seekless, meaningless)
}

/// Whether nobody asked for an order: then what is cached may come first. Who asks for that of the directories gets it, whatever is
/// cached.
pub(super) fn is_free(settings: &Settings) -> bool {
    settings.order == Order::Auto && settings.strategy() != Strategy::Vanilla
}

fn resolve(wanted: Order, seekless: bool, meaningless: Option<&AddressTrust>) -> (Order, Option<String>) {
    match (wanted, meaningless) {
        (Order::Auto, _) if seekless => (Order::Directory, Some("the disk has no seeks to save".into())),
        (Order::Auto | Order::Fragment | Order::FirstExtent, Some(trust)) => (Order::Inode, Some(trust.to_string())),
        (Order::FirstExtentPerDirectory, Some(trust)) => (Order::InodePerDirectory, Some(trust.to_string())),
        (Order::Auto, None) => (Order::Fragment, None),
        (order, _) => (order, None),
    }
}

/// `order` as a plan has it. `walked` says how the catalogue came about.
pub(super) fn sweep_order(catalogue: &Catalogue, files: &[EntryId], order: Order, walked: WalkOrder) -> SweepOrder {
    let address = |id| catalogue.first_block_address(id).unwrap_or(u64::MAX);
    let inode = |id| catalogue.get(id).ino;
    let mut list: Vec<u32> = (0..files.len() as u32).collect();
    let id = |file: u32| files[file as usize];
    match order {
        Order::Auto | Order::Fragment => return SweepOrder::Fragment,
        Order::Inode => list.sort_by_key(|&file| (catalogue.get(id(file)).device, inode(id(file)))),
        Order::FirstExtent => list.sort_by_cached_key(|&file| address(id(file))),
        Order::InodePerDirectory | Order::FirstExtentPerDirectory | Order::Directory => {
            let ranks = directory_ranks(catalogue, files, walked);
            list.sort_by_cached_key(|&file| {
                let within = match order {
                    Order::InodePerDirectory => inode(id(file)),
                    Order::FirstExtentPerDirectory => address(id(file)),
                    _ => 0,
                };
                (ranks[&catalogue.get(id(file)).parent], within, id(file))
            });
        }
    }
    SweepOrder::WholeFiles(list)
}

/// When listing 1 of the qtar paper comes to the directory of each file: parents first, children as they are listed.
fn directory_ranks(catalogue: &Catalogue, files: &[EntryId], walked: WalkOrder) -> HashMap<EntryId, u32> {
    if walked == WalkOrder::DepthFirst {
        // The walk was that very order, so entries have risen with it.
        return files.iter().rev().map(|&id| (catalogue.get(id).parent, id.0)).collect();
    }
    let mut children: HashMap<EntryId, Vec<EntryId>> = HashMap::new();
    for id in (0..catalogue.len()).map(EntryId) {
        let entry = catalogue.get(id);
        if entry.is_directory() {
            children.entry(entry.parent).or_default().push(id);
        }
    }
    let mut ranks = HashMap::from([(EntryId::NONE, 0)]);
    let mut stack: Vec<EntryId> = children.remove(&EntryId::NONE).unwrap_or_default();
    stack.reverse();
    while let Some(directory) = stack.pop() {
        ranks.insert(directory, ranks.len() as u32);
        stack.extend(children.remove(&directory).unwrap_or_default().into_iter().rev());
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Volume;
    use onesweep_layout::Meaningless;

    const DIRECTORY: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;

    /// `/`: a (8), d1 { b (6), c (2) }, d2 { d (4), e (1) }, with inodes in brackets and addresses ten times as high
    /// but for `a`, which lies first, and `e`, which lies last: orders by inode and by address differ within `d2` too.
    fn catalogue() -> (Catalogue, Vec<EntryId>) {
        let mut catalogue = Catalogue::new();
        let volume = catalogue.volume_number(Volume { dev: 1, shown_dev: 1, block: 4096, base: 0, image: None });
        let root = catalogue.add_root(b"/", "/".into(), volume, DIRECTORY, 20).unwrap();
        let mut add =
            |parent, name: &str, ino, mode| catalogue.add(parent, name.as_bytes(), ino, volume, mode).unwrap();
        let (a, d1, d2) = (add(root, "a", 8, FILE), add(root, "d1", 21, DIRECTORY), add(root, "d2", 22, DIRECTORY));
        let (d, e) = (add(d2, "d", 4, FILE), add(d2, "e", 1, FILE));
        let (b, c) = (add(d1, "b", 6, FILE), add(d1, "c", 2, FILE));
        for id in [a, b, c, d, e] {
            catalogue.get_mut(id).size = 4096;
            let address = match id {
                id if id == a => 0,
                id if id == e => 9 * 40_960,
                id => catalogue.get(id).ino * 40_960,
            };
            catalogue.add_fragment(id, Some(address), 0, 4096);
        }
        (catalogue, vec![a, e, c, d, b])
    }

    fn names(order: Order) -> String {
        let (catalogue, files) = catalogue();
        let SweepOrder::WholeFiles(list) = sweep_order(&catalogue, &files, order, WalkOrder::CScan) else {
            return "by fragment".into();
        };
        list.iter().map(|&file| catalogue.name(files[file as usize])[0] as char).collect()
    }

    #[test]
    fn the_bars_of_figure_5() {
        assert_eq!(names(Order::Fragment), "by fragment");
        assert_eq!(names(Order::FirstExtent), "acdbe");
        assert_eq!(names(Order::Inode), "ecdba");
        assert_eq!(names(Order::InodePerDirectory), "acbed");
        assert_eq!(names(Order::FirstExtentPerDirectory), "acbde");
        assert_eq!(names(Order::Directory), "abcde");
    }

    #[test]
    fn auto_sweeps_unless_it_is_known_to_be_no_use() {
        let network = AddressTrust::Meaningless(Meaningless::Network { fs_type: "nfs".into() });
        assert_eq!(resolve(Order::Auto, false, None), (Order::Fragment, None));
        assert_eq!(resolve(Order::Auto, true, None).0, Order::Directory);
        assert_eq!(resolve(Order::Auto, false, Some(&network)).0, Order::Inode);
        assert_eq!(resolve(Order::Fragment, true, None), (Order::Fragment, None), "who asks for it gets it");
        assert_eq!(resolve(Order::Fragment, false, Some(&network)).0, Order::Inode);
        assert!(resolve(Order::Fragment, false, Some(&network)).1.is_some());
    }
}
