//! Lines that are too many for one answer: the server tells of each directory by itself, a portion at a time, and they are put
//! together here.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    io,
    os::fd::BorrowedFd,
};

use onesweep_summary::{
    service::{
        client::Client,
        portions::{Cursor, Link, Piece, PieceId},
        protocol::{Figures, Head, LEFT_OUT_MAX, LeftOut, Name, Question, Refusal, Row},
    },
    summaries::Freshness,
};

/// Asks for all portions. The rows are as in an answer in one; what has changed meanwhile may be in some and not in others.
pub(super) fn gather(
    client: &mut Client,
    directory: BorrowedFd<'_>,
    question: &Question,
    head: Head,
) -> io::Result<Result<(Head, Vec<Row>), Refusal>> {
    // All was brought up to date for the answer that was too long.
    let (freshness, depth) = (Freshness::Cached, question.depth);
    let asked = Question { freshness, one_file_system: question.one_file_system, ..Question::plain() };
    let (mut tree, mut cursor) = (Tree::default(), Cursor::default());
    loop {
        let portion = match client.portion(directory, &asked, cursor, |piece| tree.add(piece))? {
            Ok(portion) => portion,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match portion.next {
            // It must not go round in circles, whatever the server says.
            Some(next) if next > cursor => cursor = next,
            _ => break,
        }
    }
    let (rows, left_out) = tree.rows(depth);
    // Where something is left out it isn't told which of the names are.
    let leads_out = match left_out[..] {
        [] => rows.last().is_some_and(|top| top.total.freed < top.total.allocated),
        _ => tree.pieces.iter().any(|piece| !piece.links.is_empty()),
    };
    let (lines, partial) = (rows.len() as u64, !left_out.is_empty());
    Ok(Ok((Head { lines, partial, leads_out, left_out, ..head }, rows)))
}

/// Directories, in the order in which they came.
#[derive(Default)]
struct Tree {
    pieces: Vec<Piece>,
    places: HashMap<PieceId, usize>,
}

/// A directory on the way down.
struct Entered {
    place: usize,
    /// Those in it that aren't done.
    children: std::vec::IntoIter<usize>,
    total: Figures,
}

impl Tree {
    fn add(&mut self, piece: Piece) {
        match self.places.entry(piece.id) {
            Entry::Vacant(vacant) => {
                vacant.insert(self.pieces.len());
                self.pieces.push(piece);
            }
            // Further links of the same.
            Entry::Occupied(known) => self.pieces[*known.get()].links.extend(piece.links),
        }
    }

    /// The lines down to a depth, each after those in it, these in the order of their names; and what of the tree is left out, some
    /// of it. Directories whose way down was lost, for one on it was moved between two portions, are none.
    fn rows(&self, depth: u32) -> (Vec<Row>, Vec<LeftOut>) {
        let Some(top) = self.pieces.iter().position(|piece| piece.parent.is_none()) else { return Default::default() };
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.pieces.len()];
        for (place, piece) in self.pieces.iter().enumerate() {
            let above = piece.parent.and_then(|parent| self.places.get(&parent));
            above.into_iter().for_each(|&above| below[above].push(place));
        }
        let names: Vec<Vec<u8>> = self.pieces.iter().map(|piece| piece.name.clone().into_bytes()).collect();
        below.iter_mut().for_each(|children| children.sort_by(|&one, &other| names[one].cmp(&names[other])));
        let (mut rows, mut left_out, mut counted) = (Vec::new(), Vec::new(), HashSet::new());
        let mut enter = |place: usize| Entered {
            place,
            children: std::mem::take(&mut below[place]).into_iter(),
            total: Figures::default(),
        };
        let mut way = vec![enter(top)];
        while let Some(at) = way.last_mut() {
            if let Some(child) = at.children.next() {
                way.push(enter(child));
                continue;
            }
            let Some(Entered { place, total: mut below, .. }) = way.pop() else { break };
            let piece = &self.pieces[place];
            let (mut own, freed) = (piece.own, piece.freed);
            for link in &piece.links {
                // Once in all, where its first name is.
                if counted.insert((piece.id[0], link.ino)) {
                    own += &figures_of(link);
                }
            }
            below += &own;
            let total = Figures { freed, ..below };
            if let Some(why) = piece.left_out.clone() {
                let steps: Vec<&[u8]> = way.iter().skip(1).map(|above| &names[above.place][..]).collect();
                let mut path = steps.join(&b'/');
                if !way.is_empty() {
                    path.extend(if steps.is_empty() { &b""[..] } else { b"/" });
                    path.extend(&names[place]);
                }
                left_out.push(LeftOut { path: Name::of(&path), why });
            }
            if let Some(above) = way.last_mut() {
                above.total += &total;
            }
            if way.len() <= depth as usize {
                let name = Name::of(if way.is_empty() { b"" } else { &names[place] });
                let depth = way.len() as u32;
                rows.push(Row { name, depth, total, own, newest: None, largest: None, past: None });
            }
        }
        if !left_out.is_empty() {
            // As in an answer in one.
            for row in &mut rows {
                (row.total.freed, row.own.freed) = (0, 0);
            }
        }
        left_out.truncate(LEFT_OUT_MAX);
        left_out.sort();
        (rows, left_out)
    }
}

fn figures_of(link: &Link) -> Figures {
    let Link { bytes, allocated, is_file, .. } = *link;
    Figures { bytes, allocated, files: is_file.into(), others: (!is_file).into(), ..Figures::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(ino: u64, parent: Option<u64>, name: &str) -> Piece {
        let own = Figures { bytes: 1, directories: 1, freed: 5, ..Figures::default() };
        let parent = parent.map(|ino| [0, ino, 0]);
        Piece { id: [0, ino, 0], parent, name: Name::of(name.as_bytes()), own, freed: 9, links: vec![], left_out: None }
    }

    fn link(ino: u64) -> Link {
        Link { ino, bytes: 100, allocated: 512, is_file: true }
    }

    fn told(rows: &[Row]) -> Vec<(String, u32, i64, i64)> {
        let name = |row: &Row| String::from_utf8(row.name.clone().into_bytes()).unwrap();
        rows.iter().map(|row| (name(row), row.depth, row.total.bytes, row.own.bytes)).collect()
    }

    #[test]
    fn pieces_come_together_in_the_order_of_lines() {
        let tree = || {
            let mut tree = Tree::default();
            tree.add(Piece { links: vec![link(7)], ..piece(5, Some(2), "b") });
            tree.add(piece(3, Some(2), "a"));
            tree.add(Piece { links: vec![link(7), link(8)], ..piece(2, None, "") });
            tree.add(Piece { links: vec![link(8)], ..piece(4, Some(5), "in b") });
            tree.add(piece(9, Some(1000), "lost"));
            // The rest of one with many links.
            tree.add(Piece { links: vec![link(11)], ..piece(5, Some(2), "b") });
            tree
        };
        let all = [("a", 1, 1, 1), ("in b", 2, 101, 101), ("b", 1, 302, 201), ("", 0, 304, 1)];
        let named = all.map(|(name, depth, total, own)| (name.to_owned(), depth, total, own));
        let (rows, left_out) = tree().rows(u32::MAX);
        assert_eq!((told(&rows), left_out), (named.to_vec(), vec![]));
        let top = rows.last().unwrap();
        assert_eq!((top.total.files, top.total.directories, top.total.freed, top.own.freed), (3, 4, 9, 5));
        let flat: Vec<_> = named.into_iter().filter(|line| line.1 < 2).collect();
        assert_eq!(told(&tree().rows(1).0), flat);
        let mut closed = tree();
        closed.add(Piece { left_out: Some("why".to_owned()), ..piece(6, Some(5), "shut") });
        let (rows, left_out) = closed.rows(0);
        assert_eq!(left_out, [LeftOut { path: Name::of(b"b/shut"), why: "why".to_owned() }]);
        assert_eq!((rows[0].total.freed, rows[0].total.directories), (0, 5));
    }

    #[test]
    fn those_that_lie_in_each_other_are_left_out() {
        let mut tree = Tree::default();
        tree.add(piece(2, None, ""));
        tree.add(piece(3, Some(4), "a"));
        tree.add(piece(4, Some(3), "b"));
        assert_eq!(told(&tree.rows(u32::MAX).0), [(String::new(), 0, 1, 1)]);
    }
}
