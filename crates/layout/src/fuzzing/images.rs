//! Whole images: a small sound one with some bytes changed.

use std::{collections::BTreeMap, io, sync::Mutex};

use super::{Checker, Counted, mounted, options};
use crate::{
    block_read::BlockRead,
    tables::{
        Tables, Tree, Wanted,
        ext4::{self, Ext4},
        ntfs::{Decompressor, Ntfs, Options},
        xfs::{self, Xfs},
    },
};

/// Bytes that are kept, copied and made right together.
const PIECE: usize = 4096;
/// Bytes of metadata that a change can choose between.
const PLACE: usize = 64;
/// More than any scan of a small image takes.
const READS: u64 = 1 << 20;

/// A sound image, of which only what isn't zero takes memory.
pub struct Image {
    pieces: BTreeMap<u64, Box<[u8]>>,
    len: u64,
    /// Where there is metadata that readers look at.
    places: Vec<u64>,
    sealed: Option<ext4::fuzzing::Sealed>,
}

impl Image {
    /// Takes an image of ext4, NTFS or XFS.
    ///
    /// # Panics
    ///
    /// When it isn't sound.
    pub fn new(bytes: &[u8]) -> Image {
        let pieces = (0..).zip(bytes.chunks(PIECE)).filter(|(_, piece)| piece.iter().any(|&byte| byte != 0));
        let pieces = pieces.map(|(index, piece)| (index, piece.into())).collect();
        let len = bytes.len() as u64;
        let mut image = Image { pieces, len, places: Vec::new(), sealed: ext4::fuzzing::Sealed::of(bytes) };
        let recorder = Recorder { image: &image, reads: Mutex::default() };
        let mut tables: Box<dyn Tables> = match (bytes.get(3..11), bytes.get(..4)) {
            (Some(b"NTFS    "), _) => Box::new(Ntfs::open(&recorder, Options::default()).expect("a sound NTFS")),
            (_, Some(b"XFSB")) => Box::new(Xfs::open(&recorder).expect("a sound XFS")),
            _ => Box::new(Ext4::open(&recorder).expect("a sound ext4")),
        };
        let checker = Checker::scan(&mut *tables, len);
        assert!(checker.inodes.len() > 10 && checker.first.is_none(), "{checker:?}");
        drop(tables);
        let reads = recorder.reads.into_inner().expect("a lock");
        let places = (0..len).step_by(PLACE).filter(|&at| {
            let is_read = reads.iter().any(|&(start, end)| start < at + PLACE as u64 && at < end);
            is_read && bytes[at as usize..].iter().take(PLACE).any(|&byte| byte != 0)
        });
        image.places = places.collect();
        image
    }

    fn generation(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        let _ = self.read_at(&mut bytes, at);
        u32::from_le_bytes(bytes)
    }

    /// The image with the changes of an input: three bytes of which place, which byte of it, and what it becomes.
    fn changed(&self, options: u8, changes: &[u8]) -> Changed<'_> {
        let mut changed = Changed { image: self, pieces: Vec::new() };
        for change in changes.chunks_exact(4).take(64) {
            let place = usize::from(change[0]) | usize::from(change[1]) << 8;
            let at = self.places[place % self.places.len()] + u64::from(change[2]) % PLACE as u64;
            let (index, within) = (at / PIECE as u64, (at % PIECE as u64) as usize);
            let piece = match changed.pieces.iter().position(|(piece, _)| *piece == index) {
                Some(position) => &mut changed.pieces[position].1,
                None => {
                    let mut piece = vec![0; PIECE];
                    let length = (self.len - index * PIECE as u64).min(PIECE as u64) as usize;
                    let _ = self.read_at(&mut piece[..length], index * PIECE as u64);
                    changed.pieces.push((index, piece));
                    &mut changed.pieces.last_mut().expect("a piece").1
                }
            };
            if let Some(byte) = piece.get_mut(within) {
                *byte = change[3];
            }
        }
        if options & 1 != 0 {
            self.seal(&mut changed.pieces);
        }
        changed
    }

    /// Makes checksums right.
    fn seal(&self, pieces: &mut [(u64, Vec<u8>)]) {
        for (index, piece) in pieces {
            let start = *index * PIECE as u64;
            if let Some(sealed) = &self.sealed {
                sealed.seal(piece, start, |at| self.generation(at));
            }
            let mut from = 0;
            while from < PIECE {
                let place = xfs::fuzzing::Place { at: start + from as u64, identity: None, owner: None };
                let sealed = xfs::fuzzing::seal(&mut piece[from..], place, &[512, 512, 4096, 4096]);
                from += sealed.unwrap_or(512);
            }
        }
    }
}

impl BlockRead for Image {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        read_pieces(buffer, at, self.len, |index| self.pieces.get(&index).map(|piece| &**piece))
    }

    fn len(&self) -> u64 {
        self.len
    }
}

fn read_pieces<'a>(
    mut buffer: &mut [u8],
    mut at: u64,
    len: u64,
    piece: impl Fn(u64) -> Option<&'a [u8]>,
) -> io::Result<()> {
    let end = at.checked_add(buffer.len() as u64).filter(|&end| end <= len);
    end.ok_or(io::ErrorKind::UnexpectedEof)?;
    while !buffer.is_empty() {
        let within = (at % PIECE as u64) as usize;
        let length = buffer.len().min(PIECE - within);
        let (now, behind) = buffer.split_at_mut(length);
        match piece(at / PIECE as u64).and_then(|piece| piece.get(within..within + length)) {
            Some(bytes) => now.copy_from_slice(bytes),
            None => now.fill(0),
        }
        (buffer, at) = (behind, at + length as u64);
    }
    Ok(())
}

/// Keeps where was read.
struct Recorder<'a> {
    image: &'a Image,
    reads: Mutex<Vec<(u64, u64)>>,
}

impl BlockRead for Recorder<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.reads.lock().expect("a lock").push((at, at.saturating_add(buffer.len() as u64)));
        self.image.read_at(buffer, at)
    }

    fn len(&self) -> u64 {
        self.image.len
    }
}

pub(super) struct Changed<'a> {
    image: &'a Image,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl BlockRead for Changed<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        read_pieces(buffer, at, self.image.len, |index| {
            let changed = self.pieces.iter().find(|(piece, _)| *piece == index).map(|(_, piece)| &**piece);
            changed.or_else(|| self.image.pieces.get(&index).map(|piece| &**piece))
        })
    }

    fn len(&self) -> u64 {
        self.image.len
    }
}

/// The image as an input changes it, but for the first byte, which chooses between images.
pub(super) fn changed<'a>(image: &'a Image, input: &[u8]) -> Counted<Changed<'a>> {
    let (options, changes) = options(input.get(1..).unwrap_or_default());
    Counted::new(image.changed(options, changes), READS)
}

fn look(tables: &mut dyn Tables, len: u64) -> Checker {
    let checker = Checker::scan(tables, len);
    // What was found makes a tree that ends.
    if let Ok(tree) = Tree::read(tables, Wanted { xattrs: true, ..Wanted::default() }, |_| ()) {
        let mut visited = 0_u64;
        let _ = tree.walk(tree.root(), &mut |_| {
            visited += 1;
            std::ops::ControlFlow::Continue(())
        });
        assert!(visited <= checker.names + 1, "{visited} places by {} names", checker.names);
    }
    checker
}

/// One thing to fuzz with a whole image.
#[derive(Clone, Copy, Debug)]
pub struct ImageTarget {
    /// Its name, which is that of its folder of inputs, too.
    pub name: &'static str,
    /// The folder of its images.
    pub images: &'static str,
    /// Panics where a promise is broken.
    pub run: fn(&Image, &[u8]),
}

/// The targets of whole images.
pub const IMAGE_TARGETS: [ImageTarget; 6] = [
    ImageTarget { name: "ext4_image", images: "ext4_image", run: ext4_image },
    ImageTarget { name: "xfs_image", images: "xfs_image", run: xfs_image },
    ImageTarget { name: "ntfs_image", images: "ntfs_image", run: ntfs_image },
    ImageTarget { name: "ext4_mounted", images: "ext4_image", run: mounted::ext4 },
    ImageTarget { name: "xfs_mounted", images: "xfs_image", run: mounted::xfs },
    ImageTarget { name: "ntfs_mounted", images: "ntfs_image", run: mounted::ntfs },
];

/// A byte that chose the image, whether checksums are made right, and the changes.
fn ext4_image(image: &Image, input: &[u8]) {
    let device = changed(image, input);
    if let Ok(mut tables) = Ext4::open(&device) {
        look(&mut tables, device.len());
    }
}

/// As [`ext4_image`].
fn xfs_image(image: &Image, input: &[u8]) {
    let device = changed(image, input);
    if let Ok(mut tables) = Xfs::open(&device) {
        look(&mut tables, device.len());
    }
}

/// As [`ext4_image`]; packed files are read, too.
fn ntfs_image(image: &Image, input: &[u8]) {
    let device = changed(image, input);
    if let Ok(mut tables) = Ntfs::open(&device, Options { force_dirty: input.len().is_multiple_of(2) }) {
        let checker = look(&mut tables, device.len());
        for file in &checker.packed {
            let mut packed =
                Decompressor::new(&device, &file.extents, file.size, tables.facts().compression_unit_bytes);
            let _ = packed.read(0, &mut vec![0; file.size.min(256 << 10) as usize]);
        }
    }
}
